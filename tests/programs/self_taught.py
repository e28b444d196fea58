"""Networks that learn from other views of themselves: contrast, momentum encoders, learners of learners."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.interplay import follow, frozen_copy, net
from programs.program import Family, descend, descending

FAMILY = Family("contrastive and meta")


# -- contrast


def views(count=32):
    return torch.randn(count, 8), torch.randn(count, 8)


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
    slow = frozen_copy(encoder)
    optimizer = optim.SGD(encoder.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)

    def step(batch):
        q = F.normalize(encoder(batch[0]), dim=1)
        follow(slow, encoder, 0.01)
        with torch.no_grad():
            k = F.normalize(slow(batch[1]), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.keys.clone()], 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.int64))
        descend(optimizer, loss, clears_first=True)
        queue.put(k)
        return loss.detach()

    return step, views()


@FAMILY.add("contrastive", "dino", "centre")
def self_distillation_with_a_centre():
    student = net(8, 16, 10)
    teacher, centre = frozen_copy(student), torch.zeros(10)
    optimizer = optim.AdamW(student.parameters(), 1e-3)

    def step(batch):
        with torch.no_grad():
            goals = [teacher(view) for view in batch]
        loss = torch.zeros(())
        for goal, view in zip(goals, reversed(batch), strict=True):
            wanted = ((goal - centre) / 0.04).softmax(1)
            loss = loss - (wanted * (student(view) / 0.1).log_softmax(1)).sum(1).mean()
        descend(optimizer, loss, clears_first=True)
        follow(teacher, student, 0.02)
        with torch.no_grad():
            centre.mul_(0.9).add_(torch.cat(goals).mean(0), alpha=0.1)
        return loss.detach()

    return step, views()


# -- learners of learners


def tasks(count=3, shots=10):
    return torch.randn(count, 2 * shots, 5), torch.randint(0, 3, (count, 2 * shots))


def applied(weights, x):
    first, bias, second, last = weights
    return F.linear(torch.tanh(F.linear(x, first, bias)), second, last)


def adapting(*, second_order):
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = optim.Adam(model.parameters(), 1e-2)

    def loss_of(batch):
        total = torch.zeros(())
        for x, y in zip(*batch, strict=True):
            half = len(x) // 2
            fast = list(model.parameters())
            for _ in range(2):
                loss = F.cross_entropy(applied(fast, x[:half]), y[:half])
                slopes = torch.autograd.grad(loss, fast, create_graph=second_order)
                fast = [w - 0.1 * g for w, g in zip(fast, slopes, strict=True)]
            total = total + F.cross_entropy(applied(fast, x[half:]), y[half:])
        return total

    return descending(optimizer, loss_of, clears_first=True), tasks()


@FAMILY.add("meta", "maml")
def adaptation_of_the_first_order():
    return adapting(second_order=False)


@FAMILY.add("meta", "prototypes")
def prototypes_of_few_shots():
    encoder = net(5, 16, 8)
    optimizer = optim.Adam(encoder.parameters(), 1e-2)

    def loss_of(batch):
        support, query = batch  # classes, shots, features
        classes, shots, _ = support.shape
        centres = encoder(support.flatten(0, 1)).unflatten(0, (classes, shots)).mean(1)
        distances = torch.cdist(encoder(query.flatten(0, 1)), centres).square()
        labels = torch.arange(classes).repeat_interleave(query.shape[1])
        return F.cross_entropy(-distances, labels)

    return descending(optimizer, loss_of, clears_first=True), (torch.randn(4, 5, 5), torch.randn(4, 6, 5))


@FAMILY.add("meta", "learned rates")
def rates_of_an_inner_loop_that_are_learned():
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    rates = nn.ParameterList([torch.full_like(p, 0.1) for p in model.parameters()])
    optimizer = optim.SGD([*model.parameters(), *rates], 0.05)

    def loss_of(batch):
        total = torch.zeros(())
        for x, y in zip(*batch, strict=True):
            fast = list(model.parameters())
            slopes = torch.autograd.grad(F.cross_entropy(applied(fast, x), y), fast, create_graph=True)
            fast = [w - r * g for w, r, g in zip(fast, rates, slopes, strict=True)]
            total = total + F.cross_entropy(applied(fast, x), y)
        return total

    return descending(optimizer, loss_of, clears_first=True), tasks()
