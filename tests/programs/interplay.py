"""Networks that train each other: adversaries, agents with targets, encoders of moving averages, learned inner loops."""

from __future__ import annotations

import copy
import itertools

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.program import Family, descend, trained

FAMILY = Family("adversarial, reinforced and meta")


def net(*sizes, act=nn.LeakyReLU):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def follow(target, source, share):
    for t, s in zip(target.parameters(), source.parameters(), strict=True):
        t.lerp_(s, share)


def adversaries(critic_loss, *, between=None, rounds=1):
    """Generator and critic that take turns; the critic's flags are off in the generator's."""
    writer, critic = net(4, 12, 6), net(6, 12, 1)
    for_writer = optim.Adam(writer.parameters(), 1e-3, (0.5, 0.9))
    for_critic = optim.RMSprop(critic.parameters(), 1e-3)

    def step(real):
        for _ in range(rounds):
            critic.requires_grad_(True)
            with torch.no_grad():
                fake = writer(torch.randn(len(real), 4))
            loss_c = critic_loss(critic(real), critic(fake))
            if between is not None:
                loss_c = loss_c + between(critic, real, fake)
            descend(for_critic, loss_c, clears_first=True)
        critic.requires_grad_(False)
        loss_w = -critic(writer(torch.randn(len(real), 4))).mean()
        return loss_c.detach(), descend(for_writer, loss_w, clears_first=True)

    return step, torch.randn(32, 6)


def slope_penalty(critic, real, fake):
    share = torch.rand(len(real), 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return 10 * (slope.norm(2, dim=1) - 1).square().mean()


@FAMILY.add("gan", "flags")
def hinge_gan_with_flags_toggled():
    return adversaries(lambda real, fake: F.relu(1 - real).mean() + F.relu(1 + fake).mean())


@FAMILY.add("gan", "flags", "penalty")
def wasserstein_penalty_with_flags_toggled():
    return adversaries(lambda real, fake: fake.mean() - real.mean(), between=slope_penalty, rounds=2)


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
            (slope,) = torch.autograd.grad(F.cross_entropy(model(x + delta), y), delta)
            delta = (delta + 0.05 * slope.sign()).clamp(-0.1, 0.1).detach()
        model.requires_grad_(True)
        return descend(optimizer, F.cross_entropy(model(x + delta), y), clears_first=True)

    return step, (torch.randn(48, 6), torch.randint(0, 3, (48,)))


@FAMILY.add("rl", "target")
def double_q_learning_with_a_copied_target():
    values = net(5, 24, 3, act=nn.ReLU)
    target = copy.deepcopy(values).requires_grad_(False)
    optimizer = optim.Adam(values.parameters(), 1e-3)

    def step(batch):
        state, action, reward, following, done = batch
        taken = values(state).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = values(following).argmax(1, keepdim=True)
            goal = reward + 0.9 * (1 - done) * target(following).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(taken, goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(values.parameters(), 1.0)
        optimizer.step()
        target.load_state_dict(values.state_dict())
        return loss.detach()

    states = torch.randn(2, 48, 5)
    reward, done = torch.randn(48), (torch.rand(48) < 0.2).float()
    return step, (states[0], torch.randint(0, 3, (48,)), reward, states[1], done)


@FAMILY.add("contrastive", "moco", "queue")
def momentum_encoder_with_a_queue():
    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", F.normalize(torch.randn(6, 128), dim=0))
            self.register_buffer("at", torch.zeros((), dtype=torch.int64))

        @torch.no_grad()
        def put(self, keys):
            where = (self.at + torch.arange(len(keys))) % self.keys.shape[1]
            self.keys[:, where] = keys.t()
            self.at.add_(len(keys)).remainder_(self.keys.shape[1])

    encoder, queue = net(8, 16, 6), Queue()
    slow = copy.deepcopy(encoder).requires_grad_(False)
    optimizer = optim.SGD(encoder.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)

    def step(batch):
        q = F.normalize(encoder(batch[0]), dim=1)
        follow(slow, encoder, 0.01)
        with torch.no_grad():
            k = F.normalize(slow(batch[1]), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.keys.clone()], 1) / 0.07
        loss = descend(optimizer, F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.int64)))
        queue.put(k)
        return loss

    return step, (torch.randn(32, 8), torch.randn(32, 8))


@FAMILY.add("meta", "learned rates")
def rates_of_an_inner_loop_that_are_learned():
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    rates = nn.ParameterList([torch.full_like(p, 0.1) for p in model.parameters()])

    def applied(weights, x, y):
        first, bias, second, last = weights
        return F.cross_entropy(F.linear(torch.tanh(F.linear(x, first, bias)), second, last), y)

    def loss_of(batch):
        total = torch.zeros(())
        for x, y in zip(*batch, strict=True):
            fast = list(model.parameters())
            slopes = torch.autograd.grad(applied(fast, x, y), fast, create_graph=True)
            fast = [w - r * g for w, r, g in zip(fast, rates, slopes, strict=True)]
            total = total + applied(fast, x, y)
        return total

    return trained(loss_of, model, rates), (torch.randn(3, 20, 5), torch.randint(0, 3, (3, 20)))
