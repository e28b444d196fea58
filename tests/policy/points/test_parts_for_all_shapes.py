"""A step for a range of shapes whose regions may run in parts: the better of two programs runs at each call."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import neaptide
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget
from neaptide.ir.loops.maps import chosen_dims
from neaptide.planner.points.choices.choice import Choice
from neaptide.planner.points.choices.decide import script_rank
from neaptide.planner.points.parts import numbers_of_parts, part_lengths
from neaptide.planner.points.plan import Decisions
from neaptide.policy.points.for_all_shapes import for_all_shapes
from neaptide.policy.prepared_step import prepare
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.runtime.steps.arena_report import predicted_at
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.planned_step import PlannedStep
from support.step_checks import needs_varying_dims
from support.together import together

pytestmark = needs_varying_dims

WIDTH, WORDS = 8, 90
LARGEST = {"B": 6, "T": 12}
SMALL, LARGE = (2, 3), (6, 12)


def dynamic():
    dims = [torch.export.Dim(name, min=2, max=high) for name, high in LARGEST.items()]
    return {name: dict(enumerate(dims)) for name in ("tokens", "labels")}


def make():
    """A head with many words: logits are what takes the memory, and they run in parts."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(tokens, labels):
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, model


def batch(shape):
    torch.manual_seed(sum(shape))
    return torch.randint(0, WORDS, shape), torch.randint(0, WORDS, shape)


@pytest.fixture(scope="module")
def step():
    """A step that is captured once, for the next two."""
    return make()


@pytest.fixture(scope="module")
def variant(step) -> PlannedVariant:
    prepared = prepare(step[0], batch((3, 5)), run_operations=False, dynamic=dynamic())
    return for_all_shapes(prepared, Ask(Budget("60%"), numerics="close"))


@pytest.fixture(scope="module")
def fast(step, variant):
    return PlannedStep(step[0], lambda *_: variant)


def test_a_limit_that_needs_parts_is_kept_and_numbers_are_those_of_eager():
    (step, model), (eager, reference) = make(), make()
    with pytest.raises(InfeasibleBudget):
        neaptide.compile_step(make()[0], budget="60%", dynamic=dynamic())(*batch(SMALL))
    fast = neaptide.compile_step(step, budget="60%", dynamic=dynamic(), numerics="close")
    assert torch.equal(fast(*batch(SMALL)), eager(*batch(SMALL)))
    for shape in (LARGE, SMALL, (5, 11), LARGE):
        with LiveBytesMeter([*batch(shape), *fast.persistent()]) as meter:
            found = fast(*batch(shape))
        torch.testing.assert_close(found, eager(*batch(shape)), rtol=1e-5, atol=1e-6)
        assert meter.peak_bytes <= fast.eviction.peak_bytes
    for own, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)
    assert fast.counts.replans == 0


def test_small_shapes_run_without_parts_and_large_ones_with_them(variant):
    (planned,) = variant.graphs[:1]
    assert not variant.keeps_bits
    assert planned.in_parts is not None
    assert chosen_dims(planned.in_parts.graph)
    choice, limit = planned.choice(), planned.limit_bytes
    assert choice.chosen(dict(zip(LARGEST, SMALL, strict=True)), limit)[0] == 0
    assert choice.chosen(LARGEST, limit)[0] == 1
    assert choice.at(LARGEST, limit).script.peak_bytes <= limit


@together("share", [0, 60, 75, 90])
def test_searches_that_end_early_choose_as_if_all_were_carried_to_their_end(variant, share):
    planned = variant.graphs[0]
    for shape in ({"B": 6, "T": 12}, {"B": 5, "T": 9}):
        limit = planned.points.plan.shaped.at(shape).peak_bytes * share // 100
        lengths = numbers_of_parts(part_lengths(planned.in_parts.graph), shape)
        ranks = []
        for points in planned.with_points:
            for each in lengths if points is planned.in_parts.points else [{}]:
                made = Decisions(points.plan).of({**shape, **each}, limit)
                above, spent = script_rank(made.script, made.sizes, limit, None)
                ranks.append((above, made.sizes.seconds + spent))
        choice = planned.choice()
        assert choice.rank(shape, limit) <= Choice([planned.points.plan]).rank(shape, limit)
        above, seconds, peak = choice.rank(shape, limit)
        made = choice.at(shape, limit)
        assert peak == made.script.peak_bytes
        assert above == max(made.script.peak_bytes - limit, 0)
        # Not every number of parts is looked at, so the best of all of them may be a little better.
        assert min(ranks) <= (above, seconds)
        assert above or seconds <= min(ranks)[1] * 1.1
        assert (above == 0) == (min(ranks)[0] == 0)


def test_the_measured_peak_of_parts_is_the_predicted_one(fast, variant):
    fast(*batch(LARGE))
    with LiveBytesMeter([*batch(LARGE), *fast.persistent()]) as meter:
        fast(*batch(LARGE))
    assert meter.peak_bytes == predicted_at(variant.graphs[0], LARGEST)[0]


@pytest.mark.parametrize("limit", [0, 1])
def test_no_shape_is_served_worse_than_without_parts(variant, limit):
    planned = variant.graphs[0]
    limit *= planned.limit_bytes
    alone = Choice([planned.points.plan])
    for tokens in (2, 5, 12):
        shape = {"B": 6, "T": tokens}
        assert planned.choice().rank(shape, limit) <= alone.rank(shape, limit)
