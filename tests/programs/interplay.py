"""Networks that train each other: adversaries, and agents with targets."""

from __future__ import annotations

import copy
import itertools

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.program import Family

FAMILY = Family("adversarial and reinforced")


def net(*sizes, act=nn.LeakyReLU):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def frozen_copy(model):
    return copy.deepcopy(model).requires_grad_(False)


@torch.no_grad()
def follow(target, source, share):
    for t, s in zip(target.parameters(), source.parameters(), strict=True):
        t.lerp_(s, share)


# -- adversaries


def adversaries(critic_loss, writer_loss, *, between=None, toggled=False, rounds=1):
    """Generator and critic that take turns."""
    writer, critic = net(4, 12, 6), net(6, 12, 1)
    for_writer = optim.Adam(writer.parameters(), 1e-3, (0.5, 0.9))
    for_critic = optim.RMSprop(critic.parameters(), 1e-3)

    def step(real):
        for _ in range(rounds):
            if toggled:
                critic.requires_grad_(True)
            with torch.no_grad():
                fake = writer(torch.randn(len(real), 4))
            for_critic.zero_grad()
            loss_c = critic_loss(critic(real), critic(fake))
            if between is not None:
                loss_c = loss_c + between(critic, real, fake)
            loss_c.backward()
            for_critic.step()
        if toggled:
            critic.requires_grad_(False)
        for_writer.zero_grad()
        loss_w = writer_loss(critic(writer(torch.randn(len(real), 4))))
        loss_w.backward()
        for_writer.step()
        return loss_c.detach(), loss_w.detach()

    return step, torch.randn(32, 6), critic


def wasserstein(real, fake):
    return fake.mean() - real.mean()


def hinge(real, fake):
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


def slope_penalty(critic, real, fake):
    share = torch.rand(len(real), 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return 10 * (slope.norm(2, dim=1) - 1).square().mean()


@FAMILY.add("gan", "flags")
def hinge_gan_with_flags_toggled():
    return adversaries(hinge, lambda fake: -fake.mean(), toggled=True)[:2]


@FAMILY.add("gan", "flags", "penalty")
def wasserstein_penalty_with_flags_toggled():
    return adversaries(wasserstein, lambda fake: -fake.mean(), between=slope_penalty, toggled=True, rounds=2)[
        :2
    ]


@FAMILY.add("gan", "clip")
def wasserstein_gan_with_clipped_weights():
    step, batch, critic = adversaries(wasserstein, lambda fake: -fake.mean(), rounds=2)

    def clipped(real):
        losses = step(real)
        with torch.no_grad():
            for p in critic.parameters():
                p.clamp_(-0.01, 0.01)
        return losses

    return clipped, batch


@FAMILY.add("gan", "penalty")
def gan_with_a_penalty_on_real_slopes():
    def penalty(critic, real, _fake):
        real = real.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
        return 5 * slope.square().sum(1).mean()

    return adversaries(
        lambda real, fake: F.softplus(fake).mean() + F.softplus(-real).mean(),
        lambda fake: F.softplus(-fake).mean(),
        between=penalty,
    )[:2]


@FAMILY.add("gan", "average")
def least_squares_gan_with_an_average_of_the_generator():
    writer, critic = net(4, 12, 6), net(6, 12, 1)
    average = frozen_copy(writer)
    both = {"writer": optim.Adam(writer.parameters(), 1e-3), "critic": optim.Adam(critic.parameters(), 1e-3)}

    def step(real):
        fake = writer(torch.randn(len(real), 4))
        loss = (critic(real) - 1).square().mean() + critic(fake.detach()).square().mean()
        both["critic"].zero_grad()
        loss.backward()
        both["critic"].step()
        fooled = (critic(fake) - 1).square().mean()
        both["writer"].zero_grad()
        fooled.backward()
        both["writer"].step()
        follow(average, writer, 0.1)
        return loss.detach(), fooled.detach()

    return step, torch.randn(32, 6)


@FAMILY.add("gan", "reversal")
def domain_adversary_by_reversed_gradients():
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return -ctx.scale * grad, None

    body, label, domain = net(6, 12, 8), nn.Linear(8, 3), nn.Linear(8, 2)
    optimizer = optim.SGD(nn.ModuleList([body, label, domain]).parameters(), 0.1, momentum=0.9)

    def step(batch):
        x, y, where = batch
        hidden = body(x)
        loss = F.cross_entropy(label(hidden), y) + F.cross_entropy(domain(Reverse.apply(hidden, 0.3)), where)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(48, 6), torch.randint(0, 3, (48,)), torch.randint(0, 2, (48,)))


@FAMILY.add("adversarial", "input gradients")
def training_on_projected_attacks():
    model = net(6, 24, 3)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(batch):
        x, y = batch
        model.requires_grad_(False)
        delta = torch.zeros_like(x).uniform_(-0.1, 0.1)
        for _ in range(3):
            delta.requires_grad_(True)
            loss = F.cross_entropy(model(x + delta), y)
            (slope,) = torch.autograd.grad(loss, delta)
            delta = (delta + 0.05 * slope.sign()).clamp(-0.1, 0.1).detach()
        model.requires_grad_(True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x + delta), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(48, 6), torch.randint(0, 3, (48,)))


# -- agents


def transitions(count=48):
    return {
        "state": torch.randn(count, 5),
        "action": torch.randint(0, 3, (count,)),
        "reward": torch.randn(count),
        "next": torch.randn(count, 5),
        "done": (torch.rand(count) < 0.2).float(),
    }


def q_learning(*, double, copy_target):
    values = net(5, 24, 3, act=nn.ReLU)
    target = frozen_copy(values)
    optimizer = optim.Adam(values.parameters(), 1e-3)

    def step(batch):
        taken = values(batch["state"]).gather(1, batch["action"][:, None]).squeeze(1)
        with torch.no_grad():
            then = target(batch["next"])
            best = values(batch["next"]).argmax(1, keepdim=True) if double else then.argmax(1, keepdim=True)
            goal = batch["reward"] + 0.9 * (1 - batch["done"]) * then.gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(taken, goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(values.parameters(), 1.0)
        optimizer.step()
        if copy_target:
            target.load_state_dict(values.state_dict())
        else:
            follow(target, values, 0.05)
        return loss.detach()

    return step, transitions()


@FAMILY.add("rl", "target")
def q_learning_with_a_soft_target():
    return q_learning(double=False, copy_target=False)


@FAMILY.add("rl", "target")
def double_q_learning_with_a_copied_target():
    return q_learning(double=True, copy_target=True)


@FAMILY.add("rl", "policy gradient")
def policy_gradient_with_a_running_baseline():
    policy = net(5, 16, 3, act=nn.Tanh)
    optimizer = optim.Adam(policy.parameters(), 1e-2)
    baseline = torch.zeros(())

    def step(batch):
        returns = batch["reward"].flip(0).cumsum(0).flip(0)
        logits = policy(batch["state"])
        chosen = torch.distributions.Categorical(logits=logits, validate_args=False).log_prob(batch["action"])
        loss = -((returns - baseline) * chosen).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        baseline.lerp_(returns.mean(), 0.1)
        return loss.detach()

    return step, transitions()


@FAMILY.add("rl", "actor critic")
def advantage_actor_critic_with_shared_layers():
    body, actor, critic = net(5, 16, 16, act=nn.Tanh), nn.Linear(16, 3), nn.Linear(16, 1)
    optimizer = optim.RMSprop(nn.ModuleList([body, actor, critic]).parameters(), 7e-4, eps=1e-5)

    def step(batch):
        hidden = body(batch["state"])
        logits, value = actor(hidden), critic(hidden).squeeze(1)
        with torch.no_grad():
            goal = batch["reward"] + 0.9 * (1 - batch["done"]) * critic(body(batch["next"])).squeeze(1)
        log_p = logits.log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        chosen = log_p.gather(1, batch["action"][:, None]).squeeze(1)
        loss = -((goal - value.detach()) * chosen).mean() + 0.5 * F.mse_loss(value, goal) - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*body.parameters(), *actor.parameters(), *critic.parameters()], 0.5)
        optimizer.step()
        return {"loss": loss.detach(), "entropy": entropy.detach()}

    return step, transitions()


@FAMILY.add("rl", "ppo", "epochs")
def proximal_policy_over_epochs_and_chunks():
    actor, critic = net(5, 16, 3, act=nn.Tanh), net(5, 16, 1, act=nn.Tanh)
    optimizer = optim.Adam([*actor.parameters(), *critic.parameters()], 3e-4, eps=1e-5)

    def step(batch):
        with torch.no_grad():
            old = actor(batch["state"]).log_softmax(1).gather(1, batch["action"][:, None])
            advantage = batch["reward"] - critic(batch["state"]).squeeze(1)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        total = torch.zeros(())
        for _ in range(2):
            for part in torch.randperm(len(old)).chunk(2):
                new = actor(batch["state"][part]).log_softmax(1).gather(1, batch["action"][part][:, None])
                ratio = (new - old[part]).exp().squeeze(1)
                gain = torch.min(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part]).mean()
                value = F.mse_loss(critic(batch["state"][part]).squeeze(1), batch["reward"][part])
                loss = 0.5 * value - gain
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
        return total

    return step, transitions()


@FAMILY.add("rl", "sac", "several optimizers")
def soft_actor_critic_with_a_learned_temperature():
    actor = net(5, 16, 4, act=nn.ReLU)
    critics = nn.ModuleList([net(7, 16, 1, act=nn.ReLU) for _ in range(2)])
    targets = frozen_copy(critics)
    log_alpha = torch.zeros((), requires_grad=True)
    optimizers = [
        optim.Adam(actor.parameters(), 1e-3),
        optim.Adam(critics.parameters(), 1e-3),
        optim.Adam([log_alpha], 1e-3),
    ]

    def sample(state):
        mean, spread = actor(state).chunk(2, 1)
        spread = spread.clamp(-5, 2).exp()
        raw = mean + spread * torch.randn_like(mean)
        action = raw.tanh()
        log_p = -((raw - mean) / spread).square() / 2 - spread.log() - (1 - action.square() + 1e-6).log()
        return action, log_p.sum(1, keepdim=True)

    def least(networks, state, action):
        both = [each(torch.cat([state, action], 1)) for each in networks]
        return torch.min(*both), both

    def step(batch):
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            action, log_p = sample(batch["next"])
            then = least(targets, batch["next"], action)[0] - alpha * log_p
            goal = batch["reward"][:, None] + 0.9 * then
        now = least(critics, batch["state"], batch["did"])[1]
        losses = [sum(F.mse_loss(each, goal) for each in now)]
        optimizers[1].zero_grad()
        losses[0].backward()
        optimizers[1].step()
        critics.requires_grad_(False)
        action, log_p = sample(batch["state"])
        losses.append((alpha * log_p - least(critics, batch["state"], action)[0]).mean())
        optimizers[0].zero_grad()
        losses[1].backward()
        optimizers[0].step()
        critics.requires_grad_(True)
        losses.append(-(log_alpha * (log_p.detach() - 2.0)).mean())
        optimizers[2].zero_grad()
        losses[2].backward()
        optimizers[2].step()
        follow(targets, critics, 0.05)
        return [loss.detach() for loss in losses]

    return step, {**transitions(), "did": torch.rand(48, 2) * 2 - 1}


@FAMILY.add("rl", "ddpg", "target")
def deterministic_policy_with_two_targets():
    actor, critic = net(5, 16, 2, act=nn.ReLU), net(7, 16, 1, act=nn.ReLU)
    pairs = [(frozen_copy(actor), actor), (frozen_copy(critic), critic)]
    for_actor, for_critic = optim.Adam(actor.parameters(), 1e-4), optim.Adam(critic.parameters(), 1e-3)

    def step(batch):
        with torch.no_grad():
            action = pairs[0][0](batch["next"]).tanh()
            goal = batch["reward"][:, None] + 0.9 * pairs[1][0](torch.cat([batch["next"], action], 1))
        loss_c = F.mse_loss(critic(torch.cat([batch["state"], batch["did"]], 1)), goal)
        for_critic.zero_grad()
        loss_c.backward()
        for_critic.step()
        loss_a = -critic(torch.cat([batch["state"], actor(batch["state"]).tanh()], 1)).mean()
        for_actor.zero_grad()
        loss_a.backward()
        for_actor.step()
        for target, source in pairs:
            follow(target, source, 0.05)
        return loss_c.detach(), loss_a.detach()

    return step, {**transitions(), "did": torch.rand(48, 2) * 2 - 1}
