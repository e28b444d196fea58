"""Networks that train each other: adversaries, and agents with targets."""

from __future__ import annotations

import copy
import itertools

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.program import Family, descend

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
        descend(optimizer, loss, clears_first=True)
        baseline.lerp_(returns.mean(), 0.1)
        return loss.detach()

    return step, transitions()
