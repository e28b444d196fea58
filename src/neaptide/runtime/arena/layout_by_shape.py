"""The layout of the arena of a program with points: one for each shape that is met.

What a run makes, and for how long, follows from what is evicted; how large it is follows from the shape. So each shape that is
met gets a layout of its own, which is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from neaptide.errors import UsageError
from neaptide.layout.best_layout import best_layout
from neaptide.layout.placement import follow
from neaptide.layout.problem import ANYWHERE, Buffer, Ints, LayoutProblem
from neaptide.lower.places import Place
from neaptide.outcome import Limits
from neaptide.planner.points.instances import FIRST, Instances, script_instances
from neaptide.planner.points.plan import Decision, Decisions, PointPlan
from neaptide.planner.points.script import Eviction, ScriptWriter
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.results_by_shape import ArenaResults, run_spans
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.stacked import StackedSizes

ALIGNMENT: Final = 64
_SHAPES_REMEMBERED: Final = 1024
_MOST_TIGHTENED: Final = 6  # times that a script is decided within less, since its arena takes too much

Evictions = tuple[Eviction, ...]
Shape = Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class ArenaAtShape:
    """The arena of one shape, and what a run in it takes."""

    shape: Shape
    decision: Decision
    instances: Instances
    offsets: Ints  # by instance, its address, or `ANYWHERE` where it is outside
    arena_bytes: int
    live_bytes: int  # most bytes that are in use in it at one step; no layout is smaller
    certificate: str
    outside_peak_bytes: int  # most bytes at one step of what is not in it, with the sources of copies
    persistent_bytes: int
    peak_bytes: int  # predicted, in a block of just these bytes: persistent, arena and the peak outside
    peak_with_workspace_bytes: int  # the same with what operations allocate inside themselves

    @property
    def fragmentation(self) -> float:
        """Bytes of the arena beyond those in use at once, as a share of these."""
        return self.arena_bytes / self.live_bytes - 1 if self.live_bytes else 0.0


@dataclass(frozen=True, slots=True)
class RunTensors:
    """Tensors in the arena for one run.

    Attributes:
        again: by repetition, for its results that have places, in order of the node's outputs.
    """

    first: list[torch.Tensor | None]  # by value, for first executions; None for what is outside
    again: list[tuple[torch.Tensor, ...]]


class ArenaOfShapes:
    """What lies in the arena of a program with points, and its layouts by shape.

    A layout begins with the order of addresses that was found for one shape, which takes no search. A search follows where
    that is not proved to be the smallest. Layouts are remembered by shape and by what is evicted.

    Args:
        options: how long layouts may take: `limits` for the one that others begin with, `shape_limits` for each of these.

    Attributes:
        expected_bytes: that a block is made for beyond what the shapes met so far need.
    """

    def __init__(
        self, plan: PointPlan, results: ArenaResults, options: ArenaOptions, decision: Decision
    ) -> None:
        _check(plan, options)
        self.plan, self.results, self._limits = plan, results, options.shape_limits
        self.expected_bytes = 0
        self._instances: dict[Evictions, Instances] = {}
        self._shapes: dict[tuple[int, ...], dict[Evictions, ArenaAtShape]] = {}
        graph = plan.shaped.graph
        self._dims = sorted({dim for storage in graph.storages for dim in storage.nbytes.dims()})
        self._geometry = _Geometry(plan, results)
        self._orders: dict[Evictions, Ints] = {}
        self._by_storage = np.zeros(len(graph.storages), dtype=np.int64)
        alone = ScriptWriter(plan.shaped, decision.sizes).script(())
        for known in (Decision(decision.sizes, alone, ()), decision):
            self._refer(known, options.limits)

    def at(self, sizes: Shape, decision: Decision) -> ArenaAtShape:
        """The arena of a shape. One look-up for a shape that was seen with these evictions."""
        known = self._known(sizes)
        evictions = decision.script.evictions
        if evictions not in known:
            known[evictions] = self._laid_out(sizes, decision)
        return known[evictions]

    def _known(self, sizes: Shape) -> dict[Evictions, ArenaAtShape]:
        key = tuple([sizes[dim] for dim in self._dims])
        if key not in self._shapes:
            if len(self._shapes) >= _SHAPES_REMEMBERED:
                self._shapes.clear()
                self._instances.clear()
            self._shapes[key] = {}
        return self._shapes[key]

    def within(self, decisions: Decisions, sizes: Shape, budget_bytes: int) -> ArenaAtShape:
        """The arena of a shape under a budget that holds for the block and for all that is outside of it.

        Where the arena takes more than was decided for, it is decided anew within less. What does not lead to the budget
        ends with the lowest peak that was found for the shape so far.
        """
        asked = budget_bytes
        for _ in range(_MOST_TIGHTENED):
            decision = decisions.of(sizes, asked)
            found = self.at(sizes, decision)
            excess = found.peak_with_workspace_bytes - budget_bytes
            if excess <= 0:
                return found
            if decision.script.peak_bytes > asked:
                break
            asked = min(asked, decision.script.peak_bytes) - excess
        return min(self._known(sizes).values(), key=lambda made: made.peak_with_workspace_bytes)

    def tensors(self, made: ArenaAtShape, at: Callable[[Place], torch.Tensor]) -> RunTensors:
        """The results of a run at their places. O(results)."""
        return self._geometry.tensors(made, at)

    # -- laying out

    def _made(self, decision: Decision) -> Instances:
        evictions = decision.script.evictions
        found = self._instances.get(evictions)
        if found is None:
            found = self._instances[evictions] = script_instances(self.plan.shaped, decision.script)
        return found

    def _inside(self, instances: Instances, nbytes: Ints) -> Ints:
        results = self.results
        has_place = results.written(instances) | results.copied(instances)
        return np.flatnonzero(has_place & (nbytes > 0))

    def _refer(self, decision: Decision, limits: Limits) -> None:
        """Lay out with the sizes of a shape, for others to begin with its order of addresses."""
        instances = self._made(decision)
        nbytes = run_spans(instances, decision).nbytes
        inside = self._inside(instances, nbytes)
        layout = best_layout(instance_problem(instances, nbytes, inside), limits).require().layout
        assert layout is not None
        addresses = np.zeros(len(nbytes), dtype=np.int64)
        addresses[inside] = layout.offsets
        self._orders[decision.script.evictions] = addresses
        # Backwards, so that the first instance of each storage is the one that stays.
        self._by_storage[instances.storages[::-1]] = addresses[::-1]

    def _laid_out(self, sizes: Shape, decision: Decision) -> ArenaAtShape:
        instances = self._made(decision)
        spans = run_spans(instances, decision)
        inside = self._inside(instances, spans.nbytes)
        before = self._orders.get(decision.script.evictions)
        addresses = self._by_storage[instances.storages] if before is None else before
        problem = instance_problem(instances, spans.nbytes, inside)
        start = follow(problem, addresses[inside])
        result = best_layout(problem, self._limits, start=start).require()
        layout = result.layout
        assert layout is not None
        offsets = np.full(len(spans.nbytes), ANYWHERE, dtype=np.int64)
        offsets[inside] = layout.offsets
        is_inside = offsets != ANYWHERE
        outside = spans.outside_at(is_inside, is_inside & self.results.copied(instances))
        alone, workspace = self._workspaces(sizes, decision, instances)
        persistent = self.plan.shaped.persistent_size.evaluate(sizes)
        base = persistent + layout.arena_bytes
        return ArenaAtShape(
            sizes,
            decision,
            instances,
            offsets,
            layout.arena_bytes,
            result.live_bytes,
            str(result.certificate),
            int(outside.max(initial=0)),
            persistent,
            base + int((outside + alone).max(initial=0)),
            base + int((outside + workspace).max(initial=0)),
        )

    def _workspaces(self, sizes: Shape, decision: Decision, instances: Instances) -> tuple[Ints, Ints]:
        """By step, bytes of the storages in a body, and what an operation allocates inside itself."""
        shaped = self.plan.shaped
        alone = np.zeros(shaped.problem.node_count, dtype=np.int64)
        for node, most in shaped.bytes_in_bodies(sizes).items():
            alone[node] = most
        every = np.array(decision.sizes.workspace, dtype=np.int64)
        return alone[instances.nodes], every[instances.nodes]


class _Geometry:
    """Shapes and strides of all results that have places, as one stack."""

    def __init__(self, plan: PointPlan, results: ArenaResults) -> None:
        self.graph, self.told = plan.shaped.graph, (results.first.told, results.again.told)
        told = [(n, slot) for half in self.told for n, one in half.items() for slot in _slots(one.inside)]
        values = sorted({self.graph.nodes[node].outputs[slot] for node, slot in told})
        numbers: list[SizeExpr] = []
        self._begins: dict[int, int] = {}
        for value in map(self.graph.values.__getitem__, values):
            self._begins[value.id] = len(numbers)
            numbers += (*value.shape, *value.strides)
        self._stack = StackedSizes(numbers)

    def tensors(self, made: ArenaAtShape, at: Callable[[Place], torch.Tensor]) -> RunTensors:
        numbers = self._stack.at(made.shape).tolist()
        instances = made.instances
        instance_at = instances.made_at()
        offsets = made.offsets.tolist()
        made_of = RunTensors([None] * len(self.graph.values), [])
        for step, (node, run) in enumerate(
            zip(instances.nodes.tolist(), instances.runs.tolist(), strict=True)
        ):
            told = self.told[run != FIRST].get(node)
            outputs = self.graph.nodes[node].outputs
            found = []
            for slot in () if told is None else _slots(told.inside):
                value = self.graph.values[outputs[slot]]
                assert value.storage is not None
                begin, axes = self._begins[value.id], len(value.shape)
                # What has no bytes at this shape has no address: any will do.
                offset = max(offsets[instance_at[step, value.storage]], 0)
                shape, strides = numbers[begin : begin + axes], numbers[begin + axes : begin + 2 * axes]
                found.append(at(Place(offset, value.dtype, tuple(shape), tuple(strides))))
                if run == FIRST:
                    made_of.first[value.id] = found[-1]
            if run != FIRST:
                made_of.again.append(tuple(found))
        return made_of


def _slots(inside: tuple[bool, ...]) -> list[int]:
    return [slot for slot, has in enumerate(inside) if has]


def instance_problem(instances: Instances, nbytes: Ints, inside: Ints) -> LayoutProblem:
    """Some instances as buffers, in their order."""
    columns = zip(
        inside.tolist(),
        instances.storages[inside].tolist(),
        instances.starts[inside].tolist(),
        instances.ends[inside].tolist(),
        nbytes[inside].tolist(),
        strict=True,
    )
    return LayoutProblem(
        tuple(
            Buffer(f"{storage}@{n}", start, end, size, ALIGNMENT) for n, storage, start, end, size in columns
        )
    )


def _check(plan: PointPlan, options: ArenaOptions) -> None:
    if plan.host is not None:
        raise UsageError(
            "an arena and room on the host exclude each other where sizes vary",
            why="the bytes of one block cannot be given up one by one",
            next_step="leave the arena out, or the room on the host",
        )
    if options.in_place:
        raise UsageError(
            "results on top of operands need one shape, and the sizes of this program vary",
            next_step="leave in_place out",
        )
