"""Networks that learn from other views of themselves: contrast, momentum encoders, learners of learners."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.interplay import follow, frozen_copy, net
from programs.program import Family

FAMILY = Family("contrastive and meta")


# -- contrast


def views(count=32):
    return torch.randn(count, 8), torch.randn(count, 8)


@FAMILY.add("contrastive", "simclr")
def two_views_with_a_projector():
    encoder, projector = net(8, 16, 12), net(12, 12, 6)
    optimizer = optim.SGD([*encoder.parameters(), *projector.parameters()], 0.1, momentum=0.9)

    def step(batch):
        z = F.normalize(projector(encoder(torch.cat(batch))), dim=1)
        count = len(batch[0])
        alike = (z @ z.t() / 0.2).masked_fill(torch.eye(2 * count, dtype=torch.bool), -1e9)
        loss = F.cross_entropy(alike, torch.arange(2 * count).roll(count))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, views()


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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue.put(k)
        return loss.detach()

    return step, views()


@FAMILY.add("contrastive", "byol", "average")
def predictor_of_an_averaged_target():
    online = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
    predictor, target = net(6, 12, 6), frozen_copy(online)
    optimizer = optim.AdamW([*online.parameters(), *predictor.parameters()], 1e-3)

    def distance(x, y):
        with torch.no_grad():
            goal = F.normalize(target(y), dim=1)
        return 2 - 2 * (F.normalize(predictor(online(x)), dim=1) * goal).sum(1)

    def step(batch):
        loss = (distance(*batch) + distance(*batch[::-1])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(target, online, 0.05)
        return loss.detach()

    return step, views()


@FAMILY.add("contrastive", "simsiam")
def siamese_pair_with_stopped_gradients():
    encoder = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=None), nn.ReLU(), nn.Linear(16, 6))
    predictor = net(6, 8, 6)
    groups = [{"params": encoder.parameters()}, {"params": predictor.parameters(), "lr": 0.05}]
    optimizer = optim.SGD(groups, 0.1, momentum=0.9)

    def step(batch):
        z = [encoder(view) for view in batch]
        p = [predictor(each) for each in z]
        loss = -sum(F.cosine_similarity(p[i], z[1 - i].detach()).mean() for i in (0, 1)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(teacher, student, 0.02)
        with torch.no_grad():
            centre.mul_(0.9).add_(torch.cat(goals).mean(0), alpha=0.1)
        return loss.detach()

    return step, views()


@FAMILY.add("contrastive", "clip")
def image_and_text_towers_with_a_clamped_scale():
    image, text = net(8, 16, 6), net(8, 16, 6)
    scale = nn.Parameter(torch.tensor(2.0))
    optimizer = optim.AdamW([*image.parameters(), *text.parameters(), scale], 1e-3)

    def step(batch):
        a, b = (F.normalize(f(x), dim=1) for f, x in zip((image, text), batch, strict=True))
        logits, labels = scale.exp() * a @ b.t(), torch.arange(len(a))
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, 4.6)
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

    def step(batch):
        total = torch.zeros(())
        for x, y in zip(*batch, strict=True):
            half = len(x) // 2
            fast = list(model.parameters())
            for _ in range(2):
                loss = F.cross_entropy(applied(fast, x[:half]), y[:half])
                slopes = torch.autograd.grad(loss, fast, create_graph=second_order)
                fast = [w - 0.1 * g for w, g in zip(fast, slopes, strict=True)]
            total = total + F.cross_entropy(applied(fast, x[half:]), y[half:])
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total.detach()

    return step, tasks()


@FAMILY.add("meta", "maml", "create_graph")
def adaptation_of_the_second_order():
    return adapting(second_order=True)


@FAMILY.add("meta", "maml")
def adaptation_of_the_first_order():
    return adapting(second_order=False)


@FAMILY.add("meta", "reptile", "deepcopy")
def reptile_with_a_copy_for_each_task():
    model = net(5, 16, 3)

    def step(batch):
        moves = [torch.zeros_like(p) for p in model.parameters()]
        for x, y in zip(*batch, strict=True):
            fast = copy.deepcopy(model)
            inner = optim.SGD(fast.parameters(), 0.1)
            for _ in range(2):
                inner.zero_grad()
                loss = F.cross_entropy(fast(x), y)
                loss.backward()
                inner.step()
            with torch.no_grad():
                for move, p, q in zip(moves, model.parameters(), fast.parameters(), strict=True):
                    move.add_(q - p)
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move, alpha=0.1)
        return loss.detach()

    return step, tasks()


@FAMILY.add("meta", "anil", "deepcopy", "adam")
def head_adapted_in_a_copy_with_adam():
    body, head = net(5, 16, 16), nn.Linear(16, 3)
    optimizer = optim.Adam([*body.parameters(), *head.parameters()], 1e-2)

    def step(batch):
        optimizer.zero_grad()
        total = torch.zeros(())
        for x, y in zip(*batch, strict=True):
            fast = copy.deepcopy(head)
            inner = optim.Adam(fast.parameters(), 0.05)
            with torch.no_grad():
                known = body(x)
            for _ in range(2):
                inner.zero_grad()
                F.cross_entropy(fast(known), y).backward()
                inner.step()
            loss = F.cross_entropy(fast(body(x)), y)
            loss.backward()
            for p, q in zip(head.parameters(), fast.parameters(), strict=True):
                p.grad = q.grad.clone() if p.grad is None else p.grad + q.grad
            total += loss.detach()
        optimizer.step()
        return total

    return step, tasks()


@FAMILY.add("meta", "prototypes")
def prototypes_of_few_shots():
    encoder = net(5, 16, 8)
    optimizer = optim.Adam(encoder.parameters(), 1e-2)

    def step(batch):
        support, query = batch  # classes, shots, features
        classes, shots, _ = support.shape
        centres = encoder(support.flatten(0, 1)).unflatten(0, (classes, shots)).mean(1)
        distances = torch.cdist(encoder(query.flatten(0, 1)), centres).square()
        labels = torch.arange(classes).repeat_interleave(query.shape[1])
        loss = F.cross_entropy(-distances, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(4, 5, 5), torch.randn(4, 6, 5))


@FAMILY.add("meta", "learned rates")
def rates_of_an_inner_loop_that_are_learned():
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    rates = nn.ParameterList([torch.full_like(p, 0.1) for p in model.parameters()])
    optimizer = optim.SGD([*model.parameters(), *rates], 0.05)

    def step(batch):
        total = torch.zeros(())
        for x, y in zip(*batch, strict=True):
            fast = list(model.parameters())
            slopes = torch.autograd.grad(F.cross_entropy(applied(fast, x), y), fast, create_graph=True)
            fast = [w - r * g for w, r, g in zip(fast, rates, slopes, strict=True)]
            total = total + F.cross_entropy(applied(fast, x), y)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total.detach()

    return step, tasks()


@FAMILY.add("meta", "hypergradient")
def weights_of_examples_by_a_look_ahead():
    model = nn.Linear(5, 3)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(batch):
        (x, held), (y, known) = batch
        share = torch.zeros(len(x), requires_grad=True)
        loss = (F.cross_entropy(model(x), y, reduction="none") * share).sum()
        slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        weight, bias = (p - 0.1 * g for p, g in zip(model.parameters(), slopes, strict=True))
        (slope,) = torch.autograd.grad(F.cross_entropy(F.linear(held, weight, bias), known), share)
        wanted = (-slope).clamp(min=0)
        wanted = wanted / (wanted.sum() + 1e-8)
        optimizer.zero_grad()
        loss = (F.cross_entropy(model(x), y, reduction="none") * wanted).sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), wanted

    return step, tasks(2)
