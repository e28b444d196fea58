"""What a step asks of tensors by identity: membership in sets, entries of dicts, `id` and `hash`."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from frontends import steps
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_like_eager, planned
from support.together import together


def matrices(model):
    return [p for p in model.parameters() if p.ndim > 1]


class Guarded(dict):
    """A dict that is asked, and nothing else."""

    def __iter__(self):
        raise AssertionError

    def items(self):
        raise AssertionError

    def __getitem__(self, key):
        raise AssertionError


def last_first(model):
    chosen = OrderedDict.fromkeys(matrices(model), 0.9)
    chosen.move_to_end(next(iter(chosen)))
    return chosen


CHOICES = {
    "an ordered dict": last_first,
    "a dict that nobody reads": lambda model: Guarded.fromkeys(matrices(model), 0.9),
    "a set": lambda model: set(matrices(model)),
    "a frozen set": lambda model: frozenset(matrices(model)),
    "a dict": lambda model: dict.fromkeys(matrices(model), 0.9),
    "a tuple of sets": lambda model: (set(matrices(model)),)[0],
}


def by_membership(model, chosen):
    optimizer = steps.sgd(model, momentum=0.9)

    def step(x):
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                if p in chosen:
                    p.mul_(0.9)
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_id(model, _chosen):
    optimizer = steps.sgd(model, momentum=0.9)
    means = {id(p): torch.zeros_like(p) for p in matrices(model)}

    def step(x):
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                if id(p) in means:
                    p.grad.copy_(means[id(p)].lerp_(p.grad, 0.5))
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_hash(model, _chosen):
    optimizer = steps.sgd(model, momentum=0.9)
    shares = {hash(p): 0.9 for p in matrices(model)}

    def step(x):
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(shares.get(hash(p), 1.0))
        optimizer.step()
        optimizer.zero_grad()

    return step


def lists_of_state(model, _chosen):
    """The optimizer's own tensors, kept in a list beside it."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(steps.batch()).square().mean().backward()
    optimizer.step()
    kept = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for buffer in kept:
                buffer.mul_(0.5)
        optimizer.step()

    return step


@together(
    ("make", "chosen"),
    [
        *((by_membership, name) for name in CHOICES),
        (by_id, "a set"),
        (by_hash, "a set"),
        (lists_of_state, "a set"),
    ],
    ids=lambda part: getattr(part, "__name__", part),
    quick=(0, 1, 3, 6, 8),
)
def test_tensors_are_known_by_identity_as_in_eager(make, chosen):
    weights = []
    for run_planned in (False, True):
        torch.manual_seed(0)
        model = steps.net()
        step = make(model, CHOICES[chosen](model))
        batch = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
        run = planned(step, batch) if run_planned else step
        for _ in range(3):
            run(batch)
        weights.append([p.detach() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    assert run.counts.replans == 0


def test_sets_and_dicts_are_left_as_they_were():
    model = steps.net()
    kept = dict.fromkeys(model.parameters(), 1.0), set(model.parameters())
    before = list(kept[0]), set(map(id, kept[1]))

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                if p in kept[0] and p in kept[1]:
                    p.sub_(p.grad, alpha=0.1)
        model.zero_grad()
        return loss.detach()

    planned(step, steps.batch())
    assert all(a is b for a, b in zip(kept[0], before[0], strict=True))
    assert set(map(id, kept[1])) == before[1]
    assert "id" not in globals()


def test_a_step_without_state_leaves_no_stand_ins_among_the_globals():
    def step(x):
        leaf = x.clone().requires_grad_()
        shares = {id(leaf): 2.0, hash(leaf): 2.0}
        (leaf * shares[id(leaf)]).sum().backward()
        return leaf.grad

    capture_step(step, (steps.batch(),))
    assert not {"id", "hash"} & globals().keys()


def test_a_set_of_tensors_that_the_step_writes_is_refused():
    model = steps.net()
    optimizer = steps.sgd(model)
    seen = {model[0].weight}

    def step(x):
        seen.add(model[0].bias)
        model(x).square().mean().backward()
        optimizer.step()

    with pytest.raises(CaptureError, match="the step writes seen"):
        capture_step(step, (steps.batch(),))
    assert len(seen) == 1


def test_tensors_kept_under_tensors_are_state():
    def make():
        torch.manual_seed(0)
        model = steps.net()
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        sums = {p: torch.zeros_like(p) for p in model.parameters()}

        def step(x):
            for part in x.chunk(2):
                model(part).square().mean().backward()
                for p, total in sums.items():
                    total.add_(p.grad)
                    p.grad = None
            for p in model.parameters():
                p.grad = sums[p].clone()
            optimizer.step()
            for p, total in sums.items():
                p.grad = None
                total.zero_()

        return step, model

    assert_like_eager(make, shape=(6, 4))
    assert capture_step(make()[0], (steps.batch(),)).host is None
