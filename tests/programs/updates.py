"""Updates in the forms in which they are written: schedulers, averages, several passes, by hand."""

from __future__ import annotations

import copy
import types

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend

FAMILY = Family("updates")


def net():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))


def labelled(count=64):
    return torch.randn(count, 6), torch.randint(0, 3, (count,))


class Trainer:
    """Everything in attributes, the step a bound method that calls others."""

    def __init__(self, model, **options):
        self.model = model
        self.options = types.SimpleNamespace(**options)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=self.options.lr)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=self.options.smoothing)

    def loss(self, batch):
        inputs, labels = batch
        return self.criterion(self.model(inputs), labels)

    def training_step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        loss.backward()
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.optimizer.step()
        return loss.detach()


@FAMILY.add("scheduler", "inside")
def scheduler_stepped_inside():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        descend(optimizer, loss, clears_first=True)
        scheduler.step()
        return loss.detach()

    return step, labelled()


@FAMILY.add("scheduler", "inside", "momentum")
def one_cycle_inside():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=30)

    def step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        descend(optimizer, loss, clears_first=True)
        scheduler.step()
        return loss.detach()

    return step, labelled()


@FAMILY.add("average", "AveragedModel")
def exponential_average_by_averaged_model():
    model = net()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        descend(optimizer, loss, clears_first=True)
        average.update_parameters(model)
        return loss.detach()

    return step, labelled()


@FAMILY.add("average", "teacher")
def mean_teacher_consistency():
    student = net()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)

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
        first = F.cross_entropy(left(hidden), y)
        second = F.cross_entropy(right(hidden), y % 2)
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


@FAMILY.add("by hand", "momentum", "no optimizer")
def update_written_by_hand():
    model = net()
    momenta = [torch.zeros_like(p) for p in model.parameters()]

    def step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, momentum, gradient in zip(model.parameters(), momenta, gradients, strict=True):
                momentum.mul_(0.9).add_(gradient)
                parameter.sub_(0.1 * (gradient + 0.9 * momentum))
        return loss.detach()

    return step, labelled()


class Lion(torch.optim.Optimizer):
    """A user's own optimizer."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            slow, fast = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["average"] = torch.zeros_like(p)
                average = state["average"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((average * slow + p.grad * (1 - slow)).sign_(), alpha=-group["lr"])
                average.lerp_(p.grad, 1 - fast)


@FAMILY.add("by hand", "own optimizer")
def optimizer_of_ones_own():
    return Trainer.training_step.__get__(_with_lion()), labelled()


def _with_lion():
    trainer = Trainer(net(), lr=1e-3, smoothing=0.0, clip=None)
    trainer.optimizer = Lion(trainer.model.parameters(), weight_decay=0.1)
    return trainer


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
