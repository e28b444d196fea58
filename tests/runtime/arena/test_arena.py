"""Training steps inside arenas: the same bits as eager, whatever happens between steps."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from frontends import steps
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.cost.cards.allocator_events import record
from neaptide.errors import LoweringError
from neaptide.outcome import Limits
from neaptide.policy.points.arenas import in_arenas
from neaptide.policy.prepared_step import prepare
from neaptide.runtime.arena import tensors_by_shape as arena_module
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.tensors_by_shape import Arena, Arenas
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import verify_eager, verify_planned
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.zoo import factory as zoo_factory
from support import catalogue
from support.dispatch_modes import DiesAt
from support.steps import deep_factory

LIMITS = Limits(work=200)


def variant_of(factory, budget=None, options=None, *, atomic=False, strategy="default"):
    """A plan inside its arenas; program order without a budget."""
    made = catalogue.prepared(factory)
    if budget is None:
        return in_arenas(made, made.baseline_variant(), options)
    search = Ask(Budget(budget), strategy=strategy, limits=LIMITS, atomic=atomic)
    return in_arenas(made, made.plan(search).variant, options)


def planned(factory, variant):
    """Fresh objects that run under a variant."""
    step, batch = contestants.build(factory, 0)
    runner = PlannedStep(
        step, contestants.never_again, contestants.rebind(variant)(step, batch), on_mismatch="error"
    )
    return runner, batch


RESNET = zoo_factory("resnet50@tiny")
FACTORIES = {
    "mlp": steps.mlp,
    "adamw": steps.adamw,
    "batch_norm": steps.batch_norm,
    "gpt2": zoo_factory("gpt2@tiny"),
    "resnet50": RESNET,
    "lstm": zoo_factory("lstm@tiny"),
}


QUICK = {("adamw", "cheap"), ("batch_norm", "all")}


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        pytest.param(name, copies, marks=() if (name, copies) in QUICK else pytest.mark.slow)
        for name in FACTORIES
        for copies in ("cheap", "all")
    ],
)
def test_three_steps_have_the_bits_of_eager_and_the_predicted_bytes(name, copies):
    factory = FACTORIES[name]
    variant = variant_of(factory, options=ArenaOptions(copies, in_place=copies == "all"))
    outcome, _ = verify_planned(factory, 0, contestants.rebind(variant), verify_eager(factory, 0))
    assert outcome.bitwise_equal, outcome.worst
    report = variant.graphs[0].arena.report
    runner, batch = planned(factory, variant)
    runner(batch)
    memory = contestants.measure_memory(runner, batch)
    assert memory.measured_peak_bytes <= report.peak_bytes
    assert memory.measured_allocator_peak_bytes <= report.peak_with_workspace_bytes
    assert memory.persistent_bytes == report.persistent_bytes + report.arena_bytes
    assert not memory.unregistered


def test_an_atomic_plan_is_undone_inside_an_arena():
    variant = variant_of(steps.batch_norm, "100%", atomic=True)
    runner, batch = planned(steps.batch_norm, variant)
    runner(batch)
    whole, _ = planned(steps.batch_norm, variant)
    whole(batch)
    expected = whole(batch)
    for number in (3, 9, 14):
        with DiesAt(number), pytest.raises(RuntimeError, match="on fire"):
            runner(batch)
    assert torch.equal(runner(batch), expected)


def larger(planned):
    """The same in an arena with room that nothing uses."""
    report = planned.arena.report
    grown = replace(report, arena_bytes=report.arena_bytes + 4096)
    return replace(planned, arena=replace(planned.arena, report=grown))


def test_usual_steps_keep_their_block_and_first_steps_leave_none():
    """There is less state before the first step, so its plan may use a larger arena within the same bytes."""
    variant = variant_of(deep_factory)
    variant = replace(variant, graphs=(variant.graphs[0], *map(larger, variant.graphs[1:])))
    sizes = [made.arena.report.arena_bytes for made in variant.graphs]
    runner, batch = planned(deep_factory, variant)
    runner(batch)
    (first,) = runner._arenas.blocks()
    assert first.numel() == sizes[1]
    runner(batch)
    runner(batch)
    (usual,) = runner._arenas.blocks()
    assert usual.numel() == sizes[0]
    runner(batch)
    assert runner._arenas.blocks()[0] is usual
    assert runner.arena == variant.graphs[0].arena.report
    assert any(tensor is usual for tensor in runner.persistent())


# -- the block


def test_a_block_that_begins_elsewhere_is_refused(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(arena_module.torch, "empty", lambda n, **options: empty(n + 1, **options)[1:])
    with pytest.raises(LoweringError, match="multiple of 64"):
        Arena("cpu", 128, 64)


def test_blocks_grow_for_usual_steps_and_shrink_behind_first_ones():
    forgotten = []
    arenas = Arenas(lambda: forgotten.append(True))
    first = arenas.reserve("cpu", 300, 64, lasting=False)
    usual = arenas.reserve("cpu", 100, 64, lasting=True)
    assert (first.nbytes, usual.nbytes, len(forgotten)) == (300, 100, 1)
    assert arenas.reserve("cpu", 50, 64, lasting=True) is usual
    assert arenas.reserve("cpu", 80, 64, lasting=False) is usual
    assert len(forgotten) == 1
    assert arenas.reserve("cpu", 200, 64, lasting=True).nbytes == 200
    assert arenas.reserve("cpu", 300, 64, lasting=False).nbytes == 300
    assert arenas.reserve("cpu", 100, 64, lasting=True).nbytes == 200
    assert [block.numel() for block in arenas.blocks()] == [200]


@pytest.mark.parametrize("factory", [deep_factory, pytest.param(RESNET, marks=pytest.mark.slow)])
def test_a_plan_that_recomputes_has_the_bits_of_eager(factory):
    variant = variant_of(factory, "70%", strategy="greedy_recompute")
    assert any(len(made.schedule.node_steps()) > len(made.graph.nodes) for made in variant.graphs)
    outcome, _ = verify_planned(factory, 0, contestants.rebind(variant), verify_eager(factory, 0))
    assert outcome.bitwise_equal, outcome.worst
    runner, batch = planned(factory, variant)
    runner(batch)
    memory = contestants.measure_memory(runner, batch)
    assert memory.measured_allocator_peak_bytes <= variant.graphs[0].arena.report.peak_with_workspace_bytes


def allocated(variant, factory):
    """Sizes of everything that the allocator hands out during a usual step."""
    runner, batch = planned(factory, variant)
    runner(batch)
    runner(batch)
    return Counter(e.signed_bytes for e in record(lambda: runner(batch)).events if e.signed_bytes > 0)


@pytest.mark.parametrize("factory", [deep_factory, steps.batch_norm])
def test_nothing_that_is_planned_is_allocated_during_a_step(factory):
    """A plain step allocates what a step inside an arena does, and every result that is written to its place."""
    variant = variant_of(factory, options=ArenaOptions("none"))
    plain, inside = (
        allocated(
            replace(variant, graphs=tuple(replace(made, arena=None) for made in variant.graphs)), factory
        ),
        allocated(variant, factory),
    )
    places = [p for step in variant.graphs[0].arena.places.values() for p in step.places if p is not None]
    written = Counter(getattr(torch, p.dtype).itemsize * math.prod(p.shape) for p in places)
    assert written.total() == variant.graphs[0].arena.report.written > 10
    assert plain - inside == written
    assert not inside - plain


def test_a_larger_batch_gets_a_larger_block_and_the_old_one_goes():
    step, batch = contestants.build(steps.mlp, 0)

    def make(args, kwargs, changing):
        ready = prepare(step, args, kwargs, changing=changing)
        return in_arenas(ready, ready.baseline_variant())

    runner = PlannedStep(step, make)
    eager, same = contestants.build(steps.mlp, 0)
    sizes = []
    for data in (batch, batch, torch.randn(64, 4), batch, torch.randn(2, 4)):
        assert torch.equal(runner(data), eager(same if data is batch else data))
        (block,) = runner._arenas.blocks()
        sizes.append(block.numel())
    assert sizes[0] == sizes[1] < sizes[2] == sizes[3] == sizes[4]
