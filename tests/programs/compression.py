"""Fewer bits, fewer weights, fewer trained weights: quantisation, pruning, distillation, adapters; and reinforcement."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from programs.program import Family, descend, descending

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


@FAMILY.add("spiking", "custom function", "loop")
def spiking_network_with_surrogate_gradients():
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x > 0).to(x.dtype)

        @staticmethod
        def backward(ctx, gradient):
            return gradient / (1 + 10 * ctx.saved_tensors[0].abs()).square()

    enter, leave = nn.Linear(6, 12), nn.Linear(12, 3)
    optimizer = torch.optim.Adam([*enter.parameters(), *leave.parameters()], lr=1e-2)

    def loss_of(batch):
        x, y = batch
        charge, out = torch.zeros(len(x), 12), 0
        for _ in range(5):
            charge = 0.9 * charge + enter(x)
            spikes = Spike.apply(charge - 1)
            charge = charge * (1 - spikes.detach())
            out = out + leave(spikes)
        return F.cross_entropy(out / 5, y)

    return descending(optimizer, loss_of, clears_first=True), labelled()


@FAMILY.add("pruning", "hooks")
def pruned_by_masks():
    model = net()
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    prune.ln_structured(model[2], "weight", amount=0.25, n=2, dim=1)
    return classified(
        model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    ), labelled()


@FAMILY.add("distillation", "frozen", "inference mode")
def distillation_from_a_frozen_teacher():
    teacher, student = net(width=32).eval(), net(width=8)
    match = nn.Linear(8, 32)
    optimizer = torch.optim.AdamW([*student.parameters(), *match.parameters()])

    def loss_of(batch):
        x, y = batch
        with torch.no_grad():
            deep = teacher[:2](x)
            target = teacher[2](deep)
        shallow = student[:2](x)
        logits = student[2](shallow)
        soft = (
            F.kl_div(
                F.log_softmax(logits / 4, 1),
                F.log_softmax(target / 4, 1),
                reduction="batchmean",
                log_target=True,
            )
            * 16
        )
        return 0.5 * F.cross_entropy(logits, y) + 0.5 * soft + 0.1 * F.mse_loss(match(shallow), deep)

    return descending(optimizer, loss_of, clears_first=True), labelled()


class LowRank(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = (
            nn.Parameter(torch.randn(rank, base.in_features) * 0.1),
            nn.Parameter(torch.zeros(base.out_features, rank)),
        )
        self.scale, self.dropout = alpha / rank, nn.Dropout(0.1)

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(self.dropout(x), self.down), self.up)


@FAMILY.add("lora", "frozen", "random")
def low_rank_adapters():
    model = net()
    model[0], model[2] = LowRank(model[0]), LowRank(model[2])
    return classified(
        model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    ), labelled()


@FAMILY.add("frozen", "bias only", "groups")
def fine_tuning_biases_and_the_head():
    model = nn.Sequential(
        nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias") or name.startswith("5."))
    groups = [
        {"params": [p], "lr": 0.1 / (i + 1)}
        for i, p in enumerate(p for p in model.parameters() if p.requires_grad)
    ]
    return classified(model, torch.optim.SGD(groups, lr=0.1, weight_decay=1e-3)), labelled()


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
    optimizer = torch.optim.Adam([*policy.parameters(), log_spread])

    def loss_of(batch):
        states, reward = batch
        distribution = Normal(policy(states), log_spread.exp())
        action = distribution.sample()
        score = (reward - action.square().sum(1)).detach()
        return -(distribution.log_prob(action).sum(1) * (score - score.mean())).mean()

    return descending(optimizer, loss_of, clears_first=True), (torch.randn(40, 4), torch.randn(40))


@FAMILY.add("preference", "reference model", "log probabilities")
def direct_preference_optimisation():
    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.head = (
                nn.Embedding(11, 8),
                nn.GRU(8, 8, batch_first=True),
                nn.Linear(8, 11),
            )

        def forward(self, ids):
            return self.head(self.rnn(self.embed(ids))[0])

    model = Tiny()
    reference = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def log_probability(net, ids):
        return net(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2).sum(1)

    def step(batch):
        chosen, rejected = batch["chosen"], batch["rejected"]
        with torch.no_grad():
            base = log_probability(reference, chosen) - log_probability(reference, rejected)
        ours = log_probability(model, chosen) - log_probability(model, rejected)
        loss = -F.logsigmoid(0.1 * (ours - base)).mean()
        descend(optimizer, loss, clears_first=True)
        return {"loss": loss.detach(), "accuracy": (ours > base).float().mean()}

    return step, {"chosen": torch.randint(0, 11, (5, 4)), "rejected": torch.randint(0, 11, (5, 4))}
