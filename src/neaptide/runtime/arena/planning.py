"""Plans the arena of a scheduled program: what gets a place, how it is filled, what stays outside and why."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.devices import Device
from neaptide.errors import LayoutProblemError
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, StepKind
from neaptide.ir.values import Value
from neaptide.layout.best_layout import best_layout
from neaptide.layout.from_schedule import OUTSIDE, ScheduleBuffers, schedule_buffers
from neaptide.layout.in_place.choices import choose_in_place
from neaptide.layout.in_place.shared_buffers import share
from neaptide.layout.pools.caching_allocator import caching_allocator_reserved
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import LayoutResult
from neaptide.lower.places import Place, StepPlaces
from neaptide.planner.prices import Prices
from neaptide.runtime.arena.copies import Span, choose_copies, copy_seconds
from neaptide.runtime.arena.fit import HANDED_BACK, LEFT_OUT, barred_storages, misfit, slots_of
from neaptide.runtime.arena.out_probe import OutFacts
from neaptide.runtime.arena.plan import ArenaOptions, ArenaPlan, ArenaReport, OutsideStorage
from neaptide.symbolic.size_expr import SizeExpr

_ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class _Result:
    """A storage instance that a step makes, and how it could be filled.

    `slot` is the output of the node that sees it whole; `in_place` says whether the node can be told its place.
    An empty `reason` means that it may have one.
    """

    instance: int
    slot: int
    span: Span
    can_write: bool
    reason: str


def plan_arena(
    graph: Graph,
    schedule: Schedule,
    registry: OpRegistry,
    prices: Prices,
    outs: Mapping[int, OutFacts],
    device: Device,
    options: ArenaOptions,
    *,
    saved_bytes: int = 0,
    buffers: ScheduleBuffers | None = None,
) -> ArenaPlan:
    """Decide and lay out. O(size of the schedule) and the search for the layout."""
    began = time.perf_counter()
    found = buffers or _buffers(graph, schedule, registry, prices, options)
    return _Planner(graph, schedule, registry, prices, outs, device, options, found, saved_bytes).plan(began)


def _buffers(
    graph: Graph, schedule: Schedule, registry: OpRegistry, prices: Prices, options: ArenaOptions
) -> ScheduleBuffers:
    sizes = prices.storage_bytes
    alone = schedule_buffers(graph, schedule, storage_bytes=sizes, alignment=_ALIGNMENT)
    if not options.in_place:
        return alone
    choices = choose_in_place(graph, schedule, registry, storage_bytes=sizes).choices
    inside = [c for c in choices if OUTSIDE not in (alone.buffer_of[c.made], alone.buffer_of[c.taken])]
    return share(alone, inside)


@dataclass
class _Planner:
    graph: Graph
    schedule: Schedule
    registry: OpRegistry
    prices: Prices
    outs: Mapping[int, OutFacts]
    device: Device
    options: ArenaOptions
    buffers: ScheduleBuffers
    saved_bytes: int

    def plan(self, began: float) -> ArenaPlan:
        results = list(self._results())
        by_step: dict[int, list[_Result]] = defaultdict(list)
        for result in results:
            by_step[result.span.start].append(result)
        written = {r.instance for r in results if r.can_write and not r.reason}
        candidates = {r.instance: r.span for r in results if not r.can_write and not r.reason}
        fixed_outside = [r.span for r in results if r.reason]
        inside = [r.span for r in results if r.instance in written]
        copied = self._copied(candidates, inside, fixed_outside)
        placed = written | set(copied)
        layout, offset_of = self._lay_out(placed)
        places = {
            position: step
            for position, made in by_step.items()
            if (step := self._step_places(position, made, placed, offset_of)) is not None
        }
        report = self._report(results, written, copied, layout, places, began)
        return ArenaPlan(places, self.buffers.device, _ALIGNMENT, report)

    # -- what may have a place

    def _results(self) -> Iterator[_Result]:
        liveness, graph = self.buffers.liveness, self.graph
        sizes = evaluate_storage_bytes(graph, None, self.prices.storage_bytes)
        barred = barred_storages(self.graph, self.registry)
        for index, instance in enumerate(liveness.instances):
            storage = graph.storages[instance.storage]
            if instance.is_resident or not sizes[storage.id] or storage.device != self.buffers.device:
                continue
            step = liveness.steps[instance.start]
            node = graph.nodes[step.target]
            span = Span(instance.start, instance.end, sizes[storage.id])
            slots = slots_of(graph, node, storage.id)
            facts = self.outs.get(node.id)
            is_again = step.kind is StepKind.RECOMPUTE and bool(node.effects.writes)
            can_write = bool(node.regions) or (
                facts is not None and facts.variant is not None and not is_again
            )
            reason = barred.get(storage.id, "")
            if self.buffers.buffer_of[index] == OUTSIDE:
                reason = HANDED_BACK
            elif not reason:
                nbytes = SizeExpr.const(span.nbytes)
                reason = misfit(graph, self.registry, node, storage.id, nbytes, is_again=is_again)
            yield _Result(index, slots[0], span, can_write, reason)

    # -- what is copied

    def _copied(
        self, candidates: Mapping[int, Span], inside: Sequence[Span], outside: Sequence[Span]
    ) -> list[int]:
        if self.options.copies == "none":
            return []
        if self.options.copies == "all":
            return sorted(candidates)
        return choose_copies(
            candidates,
            inside,
            outside,
            step_count=len(self.buffers.liveness.steps),
            device=self.device,
            seconds=self.options.copy_share * self._step_seconds(),
        )

    def _step_seconds(self) -> float:
        return sum(self.prices.seconds[step.target] for step in self.buffers.liveness.steps)

    # -- where it lies

    def _lay_out(self, placed: set[int]) -> tuple[LayoutResult, dict[int, int]]:
        """The layout of those instances' buffers, and the offset of each instance."""
        buffer_of = self.buffers.buffer_of
        used = sorted({buffer_of[index] for index in placed})
        numbers = {buffer: number for number, buffer in enumerate(used)}
        problem = LayoutProblem(
            tuple(self.buffers.problem.buffers[b] for b in used), self.buffers.problem.name
        )
        result = best_layout(problem, self.options.limits).value
        if result is None or result.layout is None:
            raise LayoutProblemError("no layout was found", next_step="give the search more time")
        offsets = result.layout.offsets
        return result, {index: offsets[numbers[buffer_of[index]]] for index in placed}

    def _step_places(
        self, position: int, made: Sequence[_Result], placed: set[int], offset_of: Mapping[int, int]
    ) -> StepPlaces | None:
        if not any(result.instance in placed for result in made):
            return None
        node = self.graph.nodes[self.buffers.liveness.steps[position].target]
        places: list[Place | None] = [None] * len(node.outputs)
        for result in made:
            if result.instance in placed:
                value = self.graph.values[node.outputs[result.slot]]
                places[result.slot] = Place(offset_of[result.instance], value.dtype, *_numbers(value))
        facts = self.outs.get(node.id)
        writes = any(result.can_write for result in made) and not node.regions
        return StepPlaces(tuple(places), facts.variant if writes and facts is not None else None)

    # -- what it comes to

    def _report(
        self,
        results: Sequence[_Result],
        written: set[int],
        copied: Sequence[int],
        layout: LayoutResult,
        places: Mapping[int, StepPlaces],
        began: float,
    ) -> ArenaReport:
        liveness = self.buffers.liveness
        copied_spans = [r.span for r in results if r.instance in set(copied)]
        outside = [r for r in results if r.instance not in written and r.instance not in copied]
        steps = len(liveness.steps)
        now = [0] * (steps + 1)
        for span in [r.span for r in outside] + [Span(s.start, s.start + 1, s.nbytes) for s in copied_spans]:
            now[span.start] += span.nbytes
            now[span.end] -= span.nbytes
        for position in range(1, steps + 1):
            now[position] += now[position - 1]
        peak = max(now[:-1], default=0)
        with_workspace = max((now[p] + self._workspace(p, places.get(p)) for p in range(steps)), default=0)
        profile = memory_profile(self.graph, self.schedule, storage_bytes=self.prices.storage_bytes)
        assert layout.arena_bytes is not None
        base = self.buffers.resident_bytes + layout.arena_bytes + self.saved_bytes
        return ArenaReport(
            arena_bytes=layout.arena_bytes,
            live_bytes=layout.live_bytes,
            certificate=str(layout.certificate),
            written=len(written),
            copied=len(copied),
            copied_bytes=sum(span.nbytes for span in copied_spans),
            copy_seconds=copy_seconds(copied_spans, self.device),
            step_seconds=self._step_seconds(),
            outside=tuple(self._outside(result) for result in outside),
            outside_peak_bytes=peak,
            resident_bytes=self.buffers.resident_bytes,
            peak_bytes=base + peak,
            peak_with_workspace_bytes=base + with_workspace,
            plain_peak_bytes=profile.peak_bytes + self.saved_bytes,
            predicted_reserved_bytes=caching_allocator_reserved(self.buffers.problem),
            plan_seconds=time.perf_counter() - began,
        )

    def _workspace(self, position: int, places: StepPlaces | None) -> int:
        node = self.buffers.liveness.steps[position].target
        facts = self.outs.get(node)
        if places is not None and places.out is not None and facts is not None:
            return facts.workspace_bytes
        return self.prices.workspace.get(node, 0)

    def _outside(self, result: _Result) -> OutsideStorage:
        node = self.graph.nodes[self.buffers.liveness.steps[result.span.start].target]
        reason = result.reason
        if not reason:
            facts = self.outs.get(node.id)
            reason = f"{'' if facts is None else facts.reason}; {LEFT_OUT[self.options.copies]}".removeprefix(
                "; "
            )
        value = self.graph.values[node.outputs[result.slot]]
        return OutsideStorage(
            node.op, value.name, result.span.nbytes, result.span.start, result.span.end, reason
        )


def _numbers(value: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(n.constant_value() for n in value.shape), tuple(n.constant_value() for n in value.strides)
