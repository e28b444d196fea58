"""How people write steps: hooks, contexts, operators of their own, schedulers, teachers, several passes, batches that change."""

from __future__ import annotations

import copy
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, descending, trained

FAMILY = Family("forms")


def net():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))


def labelled(count=64):
    return torch.randn(count, 6), torch.randint(0, 3, (count,))


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


@FAMILY.add("hooks", "tensor", "module")
def hooks_that_change_activations_and_gradients():
    model = net()
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 0.9,))
    model[1].register_forward_hook(lambda module, args, out: out.clamp(max=2))
    model[2].register_full_backward_hook(
        lambda module, inner, outer: tuple(g.clamp(-0.1, 0.1) for g in inner)
    )
    model[0].weight.register_hook(lambda g: g / (g.norm() + 1e-6))

    def loss_of(batch):
        hidden = model(batch[0])
        hidden.register_hook(lambda g: g * 2)
        return F.cross_entropy(hidden, batch[1])

    return descending(sgd(model), loss_of, clears_first=True), labelled()


def _smooth_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    picked = logits.log_softmax(1).gather(1, labels.unsqueeze(1))
    return -(0.9 * picked.mean() + 0.1 * logits.log_softmax(1).mean())


@FAMILY.add("compile", "jit")
def scripted_loss():
    model, criterion = net(), torch.jit.script(_smooth_loss)
    return trained(lambda batch: criterion(model(batch[0]), batch[1]), model), labelled()


@FAMILY.add("branches", "flags", "context manager")
def branches_on_plain_values_and_own_contexts():
    model = net()
    optimizer = sgd(model)
    settings = {"noise": 0.1, "mixed": False, "penalties": ("l1", "l2")}
    penalties = {"l1": lambda p: p.abs().sum(), "l2": lambda p: p.square().sum(), "max": lambda p: p.max()}

    @contextmanager
    def training(module):
        before = module.training
        module.train()
        try:
            yield module
        finally:
            module.train(before)

    def step(batch):
        x, y = batch
        if settings["noise"] > 0:
            x = x + settings["noise"] * torch.randn_like(x)
        mixed = torch.autocast("cpu", torch.bfloat16) if settings["mixed"] else nullcontext()
        with training(model) as active, mixed:
            loss = F.cross_entropy(active(x), y)
        for name in settings["penalties"]:
            loss = loss + 1e-4 * sum(penalties[name](p) for p in model.parameters() if p.ndim > 1)
        try:
            loss.backward()
        finally:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step, labelled()


@FAMILY.add("custom op")
def operators_of_ones_own():
    model = net()
    return trained(lambda batch: F.cross_entropy(swish(model(batch[0])), batch[1]), model), labelled()


@torch.library.custom_op("programs::swish", mutates_args=())
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@torch.library.custom_op("programs::swish_backward", mutates_args=())
def swish_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    share = torch.sigmoid(x)
    return gradient * share * (1 + x * (1 - share))


swish.register_fake(torch.empty_like)
swish_backward.register_fake(lambda gradient, x: torch.empty_like(x))
swish.register_autograd(
    lambda ctx, gradient: swish_backward(gradient, ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


@FAMILY.add("scheduler", "inside")
def scheduler_stepped_inside():
    model = net()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def step(batch):
        loss = descend(optimizer, F.cross_entropy(model(batch[0]), batch[1]), clears_first=True)
        scheduler.step()
        return loss

    return step, labelled()


@FAMILY.add("average", "teacher")
def mean_teacher_consistency():
    student = net()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = sgd(student, momentum=0.9)

    def step(batch):
        x, y = batch
        noisy = student(x + 0.05 * torch.randn_like(x))
        with torch.no_grad():
            calm = teacher(x).softmax(1)
        sure = (calm.amax(1) > 0.4).float()
        loss = F.cross_entropy(noisy, y) + (sure * (noisy.softmax(1) - calm).square().sum(1)).mean()
        descend(optimizer, loss, clears_first=True)
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.05)
        return loss.detach()

    return step, labelled()


@FAMILY.add("two losses", "retain_graph")
def two_backwards_through_one_graph():
    body, left, right = nn.Linear(6, 12), nn.Linear(12, 3), nn.Linear(12, 2)
    optimizer = torch.optim.Adam(nn.ModuleList([body, left, right]).parameters())

    def step(batch):
        x, y = batch
        hidden = torch.tanh(body(x))
        first, second = F.cross_entropy(left(hidden), y), F.cross_entropy(right(hidden), y % 2)
        optimizer.zero_grad()
        first.backward(retain_graph=True)
        shared = body.weight.grad.clone()
        body.weight.grad = None
        second.backward()
        other = body.weight.grad
        dot = (shared * other).sum()
        projected = torch.where(dot < 0, other - dot / shared.square().sum() * shared, other)
        body.weight.grad = shared + projected
        optimizer.step()
        return first.detach() + second.detach()

    return step, labelled()


@FAMILY.add("refused", "closure")
def optimizer_with_a_closure():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def step(batch):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch[0]), batch[1])
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return step, labelled()


@FAMILY.add("batch", "contrastive")
def a_queue_of_negatives_in_the_batch():
    encoder = net()
    optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)

    def step(batch):
        keys = F.normalize(encoder(batch["x"]), dim=1)
        negatives = torch.cat(batch["queue"])
        loss = F.cross_entropy(keys @ negatives.T / 0.1, torch.zeros(len(keys), dtype=torch.long))
        descend(optimizer, loss, clears_first=True)
        batch["queue"].append(keys.detach())
        batch["queue"].pop(0)
        return loss.detach()

    queue = [F.normalize(torch.randn(24, 3), dim=1) for _ in range(3)]
    return step, {"x": torch.randn(24, 6), "queue": queue}


class Accumulates:
    def __init__(self):
        self.model, self.calls = net(), 0
        self.optimizer = sgd(self.model)

    def step(self, batch):
        self.calls += 1
        loss = F.cross_entropy(self.model(batch[0]), batch[1]) / 2
        loss.backward()
        if self.calls % 2 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()


@FAMILY.add("accumulation")
def an_update_at_every_second_call():
    return Accumulates().step, labelled()
