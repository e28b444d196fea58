"""A user's trainer whose steps end in lines for people, not for tensors: host code after the last operation."""

from __future__ import annotations

import functools
import linecache
import logging
import math
import types
from pathlib import Path

import torch
from torch import nn

from frontends.steps import net, sgd

SEEN = 0
FILE = str(Path(__file__).with_name("written_steps.py"))
logger = logging.getLogger("a user's")


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count=1):
        self.total += value * count
        self.count += count


class Trainer:
    """A user's trainer; the last lines of its steps are for people, not for tensors."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = net()
        self.optimizer = sgd(self.model, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        self.meter = Meter()
        self.history = {}
        self.log = []
        self.n = 0
        self.__hidden = 0
        self.ema = 0.0
        self.heat = 1.0
        self.best = math.inf
        self.average = torch.zeros(())
        self.averaged = torch.optim.swa_utils.AveragedModel(self.model)
        self.shown = []
        self.word = "a"
        self.locked = types.MappingProxyType({"log": []})

    def update(self, x, scale=1.0):
        loss = self.model(x).square().mean() * scale
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def lengthen(self):
        self.word = self.word + "a"

    def keeps_the_best(self, x):
        loss = self.update(x).item()
        if loss < self.best:
            self.best = loss
        return loss

    def measures(self, batch):
        x, y = batch
        out = self.model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            correct = (out.argmax(1) == y).sum()
            self.n += correct.item()
        return {"loss": loss.item(), "accuracy": correct.item() / len(y), "n": self.n}

    def reads_a_parameter(self, x):
        weight, rates = self.model[0].weight, [g["lr"] for g in self.optimizer.param_groups]
        parts = {"norms": [x.norm()]}
        loss = self.update(x)
        parts["norms"].append(weight.norm().item())
        parts["same"] = weight is self.model[0].weight and weight.grad is None
        self.log.append(parts)
        self.log.append(rates)
        return loss.detach()

    def returns_early(self, x):
        if len(x) < 2:
            return None
        loss = self.update(x)
        self.n += 1
        return loss.detach()

    def leaves_before_it_clears(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.n += 1
        if self.n == 2:
            return None
        self.optimizer.zero_grad()
        return loss.detach()

    def defines_what_it_shows_with(self, x):
        width = 4
        scale = lambda value: value * 2.0  # noqa: E731

        def shown(value):
            return f"{scale(value):.{width}f}"

        def squared(out):
            return out.square().mean()

        loss = squared(self.model(x))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.shown.append([shown(value.item()) for value in (loss, squared(x))])
        return max((scale(row.item()) for row in x.sum(1)), key=lambda value: -value)

    def keeps_a_generator_in_a_variable(self, x):
        each = self.model(x).square().mean(1)
        each.mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        rows = (row.item() for row in each)
        largest = max(rows)
        self.shown.append(f"{largest:.4f}")
        return largest


# Statements of steps of the trainer, by name.
WRITTEN = {
    "counts": "loss = self.update(x); self.n += 1; return loss.detach()",
    "counts_in_private": "loss = self.update(x); self.__hidden += 1; return loss.detach()",
    "counts_globally": "global SEEN; loss = self.update(x); SEEN += len(x); return loss.detach()",
    "appends_numbers": "loss = self.update(x); self.log.append(loss.item()); "
    'return {"loss": float(loss.detach()), "seen": len(self.log)}',
    "appends_tensors": "loss = self.update(x); self.log.append(loss.detach()); self.log.append(loss); return self.log[-1]",
    "fills_a_history": "loss = self.update(x); self.history[len(self.history)] = round(loss.item(), 4); return loss.detach()",
    "meters": "loss = self.update(x); self.meter.update(loss.item(), x.size(0)); return self.meter.total / self.meter.count",
    "shows": "loss = self.update(x); self.shown.append(f'{loss.item():.3f} {loss.detach()}'); print(f'{loss.item():.3f}'); "
    'logger.warning("loss %s", loss.detach()); return loss.detach()',
    "averages": "loss = self.update(x); self.ema = 0.9 * self.ema + 0.1 * loss.item(); "
    "self.average = 0.9 * self.average + 0.1 * loss.detach(); return self.ema",
    "averages_the_model": "loss = self.update(x); self.averaged.update_parameters(self.model); return loss.detach()",
    "schedules": "loss = self.model(x).square().mean(); loss.backward(); self.optimizer.step(); self.scheduler.step(); "
    "self.optimizer.zero_grad(); return loss.detach()",
    "reads_gradients": "loss = self.model(x).square().mean(); loss.backward(); self.optimizer.step(); "
    "self.log.append([p.grad.norm().item() for p in self.model.parameters()]); self.optimizer.zero_grad(); "
    "return loss.detach()",
    "cools": "loss = self.update(x, self.heat); self.heat = self.heat * 0.5; return loss.detach()",
    "logs_the_rate": "loss = self.update(x); rate = self.scheduler.get_last_lr()[0]; rows = len(x); "
    "self.log.append((rate, rows)); self.scheduler.step(); return loss.detach()",
    "adds_in_place": "loss = self.update(x); total = loss.detach(); total += 1; self.log.append(total.item()); "
    "return loss.item()",
}
# Host code where it cannot run after the program, and the reason that is told.
REFUSED = {
    "between": (
        "out = self.model(x); self.log.append(len(x)); return self.update(x) + out.sum()",
        "a backward pass comes after it",
    ),
    "hands_on_an_object": (
        "notes = types.SimpleNamespace(rows=len(x)); loss = self.update(x); self.log.append(notes.rows); return loss.detach()",
        "variable notes holds a SimpleNamespace",
    ),
    "hands_on_a_list_of_its_own": (
        'log = self.locked["log"]; loss = self.update(x); self.n += 1; log.append(loss.item()); return loss.detach()',
        "variable log is or holds a list or dict that is kept elsewhere",
    ),
    "reads_what_it_writes": (
        'loss = self.update(x * len(self.word)); self.word = self.word + "a"; return loss.detach()',
        "it writes self.word, which the step reads",
    ),
    "updates_behind": (
        (
            "loss = self.model(x).square().mean(); loss.backward(); self.log.append(len(x)); self.optimizer.step(); "
            "return loss.detach()"
        ),
        "an optimizer's update comes after it",
    ),
    "trains_in_a_function_of_its_own": (
        "once = lambda part: self.update(part); loss = once(x); self.log.append(len(x)); return loss + once(x)",
        "a backward pass comes after it",
    ),
    "reads_what_a_function_of_its_own_writes": (
        "note = lambda: self.lengthen(); loss = self.update(x * len(self.word)); note(); return loss.detach()",
        "it writes self.word, which the step reads",
    ),
}


def _with_steps(table):
    """The trainer with a method for each row of statements, which have a source as others have."""
    lines = [
        "class Trainer(Trainer):\n",
        *(f"    def {name}(self, x): {text}\n" for name, text in table.items()),
    ]
    linecache.cache[FILE] = len(lines), None, lines, FILE
    made = {"Trainer": Trainer}
    exec(compile("".join(lines), FILE, "exec"), globals(), made)
    return made["Trainer"]


BY_METHOD = [
    *WRITTEN,
    *(name for name in vars(Trainer) if name[0] != "_" and name not in {"update", "lengthen"}),
]
Trainer = _with_steps(WRITTEN | {name: text for name, (text, _) in REFUSED.items()})
REASONS = {name: reason for name, (_, reason) in REFUSED.items()}


def with_closure(trainer):
    count, step = 0, trainer.update

    def inner(x, *, scale=2.0, **options):
        nonlocal count
        loss = step(x * scale)
        count += 1
        trainer.log.append((count, loss.item(), sorted(options)))
        return loss.detach()

    return inner


def with_partial(trainer):
    return functools.partial(Trainer.counts, trainer)


class Called:
    def __init__(self, trainer):
        self.trainer = trainer

    def __call__(self, x):
        loss = self.trainer.update(x)
        self.trainer.n += 1
        return loss.item()


STEPS = {name: functools.partial(lambda name, trainer: getattr(trainer, name), name) for name in BY_METHOD}
STEPS |= {"closure": with_closure, "partial": with_partial, "callable": Called}
