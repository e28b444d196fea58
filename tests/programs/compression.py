"""Fewer bits, fewer weights, fewer trained weights: quantisation, pruning, distillation, adapters; and reinforcement."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from programs.program import Family, descend, descending, trained

FAMILY = Family("compression and reinforcement")


def net(inside=6, outside=3, width=16):
    return nn.Sequential(nn.Linear(inside, width), nn.ReLU(), nn.Linear(width, outside))


def labelled(count=64):
    return torch.randn(count, 6), torch.randint(0, 3, (count,))


def classified(model, optimizer):

    return descending(optimizer, lambda batch: F.cross_entropy(model(batch[0]), batch[1]))


@FAMILY.add("quantisation", "fake quantize")
def quantisation_aware_training():
    class Quantized(nn.Linear):
        def __init__(self, inside, outside):
            super().__init__(inside, outside)
            self.register_buffer("low", torch.zeros(()))
            self.register_buffer("high", torch.ones(()))

        def forward(self, x):
            with torch.no_grad():
                self.low.lerp_(x.amin(), 0.1)
                self.high.lerp_(x.amax(), 0.1)
            scale = (self.high - self.low).clamp(min=1e-5) / 255
            zero = (-self.low / scale).round().clamp(0, 255).to(torch.int32)
            x = torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)
            scales = self.weight.detach().abs().amax(1) / 127
            weight = torch.fake_quantize_per_channel_affine(
                self.weight, scales, torch.zeros(len(scales), dtype=torch.int32), 0, -128, 127
            )
            return F.linear(x, weight, self.bias)

    model = nn.Sequential(Quantized(6, 16), nn.ReLU(), Quantized(16, 3))
    return classified(model, torch.optim.SGD(model.parameters(), lr=0.1)), labelled()


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


@FAMILY.add("binary", "custom function", "batch norm")
def binarised_network():
    first, second, norm = nn.Linear(6, 16, bias=False), nn.Linear(16, 3, bias=False), nn.BatchNorm1d(16)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), *norm.parameters()], lr=1e-2)

    def step(batch):
        x, y = batch
        h = Sign.apply(norm(F.linear(x, Sign.apply(first.weight))))
        loss = F.cross_entropy(F.linear(h, Sign.apply(second.weight)) / 4, y)
        descend(optimizer, loss, clears_first=True)
        with torch.no_grad():
            for p in (first.weight, second.weight):
                p.clamp_(-1, 1)
        return loss.detach()

    return step, labelled()


@FAMILY.add("pruning", "hooks")
def pruned_by_masks():
    model = net()
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    prune.ln_structured(model[2], "weight", amount=0.25, n=2, dim=1)
    return classified(
        model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    ), labelled()


@FAMILY.add("reinforcement", "torch.distributions", "loop")
def proximal_policy_optimisation():
    from torch.distributions import Categorical

    actor, critic = net(4, 3), net(4, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4, eps=1e-5)

    def step(rollout):
        states, actions, old, returns = rollout
        with torch.no_grad():
            advantage = returns - critic(states).squeeze(1)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for part in torch.arange(len(states)).chunk(2):
            policy = Categorical(logits=actor(states[part]), validate_args=False)
            ratio = (policy.log_prob(actions[part]) - old[part]).exp()
            clipped = ratio.clamp(0.8, 1.2)
            surrogate = -torch.min(ratio * advantage[part], clipped * advantage[part]).mean()
            loss = (
                surrogate
                + 0.5 * F.mse_loss(critic(states[part]).squeeze(1), returns[part])
                - 0.01 * policy.entropy().mean()
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()
        return loss.detach()

    return step, (torch.randn(40, 4), torch.randint(0, 3, (40,)), torch.randn(40) * 0.1 - 1, torch.randn(40))


@FAMILY.add("reinforcement", "torch.distributions", "checks", "default arguments")
def policy_gradient_with_default_checks():
    from torch.distributions import Normal

    policy = net(4, 2)
    log_spread = nn.Parameter(torch.zeros(2))

    def loss_of(batch):
        states, reward = batch
        distribution = Normal(policy(states), log_spread.exp())
        action = distribution.sample()
        score = (reward - action.square().sum(1)).detach()
        return -(distribution.log_prob(action).sum(1) * (score - score.mean())).mean()

    return trained(loss_of, policy, log_spread), (torch.randn(40, 4), torch.randn(40))
