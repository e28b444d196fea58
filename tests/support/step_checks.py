"""Checks that a captured step does what eager does, for tests of the frontends, the lowering and the runtime."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.frontends.recording._torch_sizes import keeps_sizes
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.torch_step import capture_step, rebind_step
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import (
    Verification,
    compare_records,
    record_eager,
    record_planned,
    verify_eager,
    verify_planned,
)
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, StepPlan
from neaptide.runtime.steps.planned_step import PlannedStep
from programs.reachable import Snapshot

Factory = Callable[[], tuple[Callable[..., Any], Any]]
Order = Callable[[CapturedProgram], Schedule]


def program_order(program: CapturedProgram) -> Schedule:
    return Schedule.program_order(program.graph)


def as_variant(captured: CapturedStep, order: Order = program_order) -> PlannedVariant:
    graphs = (PlannedGraph.captured(program, order(program)) for program in captured.programs)
    return PlannedVariant(captured, tuple(graphs))


_CAPTURED: dict[Any, CapturedStep] = {}


def captured_once(key: Any, step: Callable[..., Any], batch: Any) -> CapturedStep:
    """The capture of a step that is made anew again and again, each time alike: captured for the first one, put on others."""
    if key not in _CAPTURED:
        _CAPTURED[key] = capture_step(step, (batch,))
        return _CAPTURED[key]
    return rebind_step(_CAPTURED[key], step, (batch,))


def planned(
    step: Callable[..., Any],
    batch: Any,
    order: Order = program_order,
    *,
    further: tuple[Any, ...] = (),
    key: Any = None,
    **options: Any,
) -> PlannedStep:
    """A step that runs its captured program in some order, captured again where a call differs.

    With a key it is captured once for all steps of that key, which are alike.
    """
    captured = capture_step(step, (batch, *further)) if key is None else captured_once(key, step, batch)

    def again(args: tuple[Any, ...], kwargs: Any, changing: frozenset[str]) -> PlannedVariant:
        return as_variant(capture_step(step, args, kwargs, changing=changing), order)

    return PlannedStep(step, again, as_variant(captured, order), **options)


def verify(factory: Factory, order: Order = program_order, *, steps: int = 3) -> Verification:
    """Run eager and the captured program from the same seed and compare everything."""
    torch.manual_seed(0)
    step, batch = factory()
    expected = record_eager(step, (batch,), steps=steps, seed=1)
    torch.manual_seed(0)
    step, batch = factory()
    captured = capture_step(step, (batch,))
    runner = PlannedStep(step, _never, as_variant(captured, order))
    found = record_planned(runner, find_state(step), (batch,), steps=steps, seed=1)
    return compare_records(found, expected)


def assert_same_bits(factory: Factory, order: Order = program_order, *, steps: int = 3) -> None:
    outcome = verify(factory, order, steps=steps)
    assert outcome.bitwise_equal, (outcome.max_abs_diff, outcome.worst)


def joined(*factories: Factory) -> Factory:
    """One step that runs several, each on its batch: they share a capture."""

    def factory() -> tuple[Callable[..., Any], Any]:
        made = [factory() for factory in factories]
        steps = [_on_its_own(step, position) for position, (step, _) in enumerate(made)]
        return functools.reduce(_and_then, steps), tuple(batch for _, batch in made)

    return factory


def together_made(*makes: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    """Likewise of steps as `assert_like_eager` takes them, all on one batch."""
    return lambda: (functools.reduce(_and_then, [make()[0] for make in makes]),)


def _on_its_own(step: Callable[..., Any], position: int) -> Callable[..., Any]:
    return lambda batches: step(batches[position])


def _and_then(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    return lambda batch: (first(batch), second(batch))


def parts_of(item: Any) -> Iterator[Any]:
    """An object and what it holds, and so on: those of a batch that a step changes are the caller's own."""
    yield item
    contents = vars(item) if hasattr(item, "__dict__") else item
    contents = contents.values() if isinstance(contents, dict) else contents
    for content in contents if isinstance(contents, (list, tuple, deque, type({}.values()))) else ():
        yield from parts_of(content)


def assert_like_eager(
    make: Callable[[], tuple[Any, ...]],
    calls: int = 4,
    between: Callable[[int, Any], None] | None = None,
    shape: tuple[int, ...] = (5, 4),
    batches: Callable[[int], Any] | None = None,
    run_by: Callable[..., PlannedStep] = planned,
    **options: Any,
) -> PlannedStep:
    """Run a step eagerly and planned, and compare all that can be reached from it; returns the planned one.

    Args:
        make: gives the step, and what else `between` is to have; random numbers are seeded before it.
        calls: how often it runs.
        between: called after each call with its number and what was made.
        shape: of the batch, which is the same at each call.
        batches: gives the batch of a call, which the step may change.
        run_by: plans it for a batch.
        options: of the planned step.
    """
    fixed = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    sides = []
    for run_planned in (False, True):
        torch.manual_seed(0)
        made = make()
        torch.manual_seed(1)
        given = [fixed if batches is None else batches(call) for call in range(calls)]
        held = [[*parts_of(batch)] for batch in given]
        run = run_by(made[0], given[0], **options) if run_planned else made[0]
        torch.manual_seed(2)
        results = []
        for call, batch in enumerate(given):
            results.append(run(batch))
            if between is not None:
                between(call, made)
        sides.append(Snapshot({"step": made[0], "batches": given, "held": held, "results": results}))
    assert not sides[1].differences(sides[0])
    assert isinstance(run, PlannedStep)
    return run


def rows(graph: Graph) -> list[Any]:
    """What a graph does, with its sizes and strides, as rows that can be compared."""
    made = [[replace(graph.values[v], name="") for v in node.outputs] for node in graph.nodes]
    return [(n.op, n.inputs, n.args, n.kwargs, v) for n, v in zip(graph.nodes, made, strict=True)]


def peak(graph: Graph) -> int:
    return memory_profile(graph, Schedule.program_order(graph)).peak_bytes


def assert_is_the_capture_of(
    step: Callable[..., Any], captured: CapturedStep, binding: dict[str, int], args: tuple[Any, ...]
) -> None:
    """At one shape: every operation, argument, value and storage, and the peak, strides of single elements included."""
    static = capture_step(step, args)
    for program, expected in zip(captured.programs, static.programs, strict=True):
        found = with_sizes(program.graph, binding)
        assert rows(found) == rows(expected.graph)
        assert [s.nbytes for s in found.storages] == [s.nbytes for s in expected.graph.storages]
        assert peak(found) == peak(expected.graph)


def assert_runs_as_predicted(factory: Factory, found: StepPlan) -> Verification:
    """Run a plan: its numbers agree with eager's, and its peak is the one that was predicted."""
    variant = contestants.rebind(found.variant)
    outcome, _ = verify_planned(factory, 0, variant, verify_eager(factory, 0))
    assert outcome.agrees
    made = contestants.planned_contestant("planned", factory, 0, variant)
    made.run()
    measured = contestants.measure_step(made.run, made.persistent)
    assert measured.measured_peak_bytes == found.plan.programs[0].predictions.peak_bytes
    return outcome


def _never(_args: Any, _kwargs: Any, _changing: frozenset[str]) -> PlannedVariant:
    raise AssertionError("a verified step must not be planned again")


needs_varying_dims = pytest.mark.skipif(
    not keeps_sizes(), reason="this torch takes the size of the example for some sizes that vary"
)
