"""Python around the operations: batches that a step changes, schedules of its own, seeds, modes and counts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.program import Family, descend

FAMILY = Family("python around the step")


def classifier(*extra):
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), *extra, nn.Linear(32, 5))


def labelled():
    return {"x": torch.randn(48, 8), "y": torch.randint(5, (48,))}


@FAMILY.add("batch", "contrastive")
def a_queue_of_negatives_in_the_batch():
    encoder = classifier()
    optimizer = optim.Adam(encoder.parameters(), 1e-3)

    def step(batch):
        keys = F.normalize(encoder(batch["x"]), dim=1)
        negatives = torch.cat(batch["queue"])
        loss = F.cross_entropy(keys @ negatives.T / 0.1, torch.zeros(len(keys), dtype=torch.long))
        descend(optimizer, loss, clears_first=True)
        batch["queue"].append(keys.detach())
        batch["queue"].pop(0)
        return loss.detach()

    return step, {
        "x": torch.randn(24, 8),
        "queue": [F.normalize(torch.randn(24, 5), dim=1) for _ in range(3)],
    }


class Noam:
    """A schedule around an optimizer, by its own count."""

    def __init__(self, optimizer, width=64, warmup=4):
        self.optimizer, self.width, self.warmup, self.steps = optimizer, width, warmup, 0

    def step(self):
        self.steps += 1
        rate = self.width**-0.5 * min(self.steps**-0.5, self.steps * self.warmup**-1.5)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


@FAMILY.add("schedule")
def noam_schedule_around_adam():
    model = classifier(nn.Dropout(0.1))
    schedule = Noam(optim.Adam(model.parameters(), betas=(0.9, 0.98)))

    def step(batch):
        loss = F.cross_entropy(model(batch["x"]), batch["y"], label_smoothing=0.1)
        schedule.optimizer.zero_grad()
        loss.backward()
        schedule.step()
        return loss.detach()

    return step, labelled()


class OneCycle:
    """Rate and momentum move against each other; the trainer counts in front of the forward pass."""

    def __init__(self):
        self.model, self.seen = classifier(), 0
        self.optimizer = optim.SGD(self.model.parameters(), 0.1, momentum=0.9)

    def step(self, batch):
        self.seen += len(batch["x"])
        share = (1 + math.cos(math.pi * self.seen / 480)) / 2
        for group in self.optimizer.param_groups:
            group["lr"], group["momentum"] = 0.2 * share, 0.95 - 0.1 * share
        loss = F.cross_entropy(self.model(batch["x"]), batch["y"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), self.seen


@FAMILY.add("schedule")
def rate_and_momentum_of_one_cycle():
    return OneCycle().step, labelled()


class Seeded:
    def __init__(self):
        self.model, self.calls = classifier(nn.Dropout(0.3)), 0
        self.optimizer = optim.AdamW(self.model.parameters(), 1e-3)

    def by_count(self, batch):
        self.calls += 1
        torch.manual_seed(1000 + self.calls)
        loss = F.cross_entropy(self.model(batch["x"]), batch["y"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def twice_alike(self, batch):
        torch.manual_seed(17)
        first = self.model(batch["x"])
        torch.manual_seed(17)
        second = self.model(batch["x"] + 0.1)
        loss = F.cross_entropy(first, batch["y"]) + F.mse_loss(second, first.detach())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@FAMILY.add("random state", "dropout")
def dropout_seeded_by_the_count():
    return Seeded().by_count, labelled()


@FAMILY.add("random state", "dropout")
def two_views_with_one_seed():
    return Seeded().twice_alike, labelled()


class Accumulates:
    def __init__(self):
        self.model, self.calls = classifier(), 0
        self.optimizer = optim.SGD(self.model.parameters(), 0.1)

    def step(self, batch):
        self.calls += 1
        loss = F.cross_entropy(self.model(batch["x"]), batch["y"]) / 2
        loss.backward()
        if self.calls % 2 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()


@FAMILY.add("accumulation")
def an_update_at_every_second_call():
    return Accumulates().step, labelled()
