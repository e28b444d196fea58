"""Generative models: adversaries, variational bounds, flows, diffusion, energies."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, trained

FAMILY = Family("generative")


def net(*sizes, last=None):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
    return nn.Sequential(*layers[:-1], *([last] if last else []))


@FAMILY.add("vae", "torch.distributions")
def variational_autoencoder_with_distributions():
    from torch.distributions import Independent, Normal, kl_divergence

    encode, decode = net(6, 12, 6), net(3, 12, 6)

    def loss_of(x):
        mean, spread = encode(x).chunk(2, -1)
        posterior = Independent(
            Normal(mean, F.softplus(spread) + 1e-3, validate_args=False), 1, validate_args=False
        )
        prior = Independent(
            Normal(torch.zeros(3), torch.ones(3), validate_args=False), 1, validate_args=False
        )
        z = posterior.rsample()
        likelihood = Normal(decode(z), 0.5, validate_args=False).log_prob(x).sum(-1)
        return (kl_divergence(posterior, prior.expand(mean.shape[:1])) - likelihood).mean()

    return trained(loss_of, encode, decode), torch.randn(32, 6)


class Coupling(nn.Module):
    def __init__(self, width, flip):
        super().__init__()
        self.net, self.flip = net(width // 2, 10, width), flip

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        scale, shift = self.net(a).chunk(2, 1)
        scale = torch.tanh(scale)
        b = b * torch.exp(scale) + shift
        return torch.cat([b, a] if self.flip else [a, b], 1), scale.sum(1)


@FAMILY.add("flow")
def real_nvp():
    layers = nn.ModuleList(Coupling(6, bool(i % 2)) for i in range(4))
    mix = nn.Parameter(torch.linalg.qr(torch.randn(6, 6))[0])
    optimizer = torch.optim.Adam([*layers.parameters(), mix], lr=1e-3)

    def step(x):
        total = x.new_zeros(len(x))
        for layer in layers:
            x, logdet = layer(x)
            total = total + logdet
        x, total = x @ mix, total + torch.linalg.slogdet(mix)[1]
        likelihood = -0.5 * (x.square() + math.log(2 * math.pi)).sum(1) + total
        loss = -likelihood.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 5.0, norm_type=float("inf"))
        optimizer.step()
        return loss.detach()

    return step, torch.randn(40, 6)


@FAMILY.add("boltzmann", "by hand", "random")
def restricted_boltzmann_machine_without_autograd():
    weight, visible, hidden = torch.randn(8, 5) * 0.1, torch.zeros(8), torch.zeros(5)

    @torch.no_grad()
    def step(v):
        on = torch.sigmoid(v @ weight + hidden)
        sampled = torch.bernoulli(on)
        again = torch.sigmoid(sampled @ weight.T + visible)
        back = torch.sigmoid(again @ weight + hidden)
        weight.add_((v.T @ on - again.T @ back) / len(v), alpha=0.1)
        visible.add_((v - again).mean(0), alpha=0.1)
        hidden.add_((on - back).mean(0), alpha=0.1)
        return (v - again).square().mean()

    return step, torch.rand(30, 8).round()


@FAMILY.add("random state", "fork_rng", "dropout")
def consistency_of_two_views_with_the_same_masks():
    """One network sees a view and a noisy view with the same dropout masks; what it draws otherwise goes on as before."""
    network = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 24), nn.Dropout(0.1))

    def loss_of(batch):
        state = torch.random.get_rng_state()
        first = network(batch)
        with torch.random.fork_rng(devices=[]):
            noisy = batch + 0.1 * torch.randn_like(batch)
            torch.random.set_rng_state(state)
            second = network(noisy)
        return F.mse_loss(second, first.detach()) + (first * torch.rand_like(first)).square().mean()

    return trained(loss_of, network), torch.randn(64, 6)
