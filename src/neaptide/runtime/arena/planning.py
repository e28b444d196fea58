"""Plans the arena of a scheduled program: what gets a place, how it is filled, what stays outside and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.devices import Device
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, StepKind
from neaptide.layout.best_layout import best_layout
from neaptide.layout.caching_allocator import caching_allocator_reserved
from neaptide.layout.from_schedule import OUTSIDE, ScheduleBuffers, schedule_buffers
from neaptide.layout.in_place import choose_in_place, share
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import LayoutResult
from neaptide.lower.places import Place, StepPlaces
from neaptide.planner.prices import Prices
from neaptide.runtime.arena.fit import HANDED_BACK, LEFT_OUT, Flags, Spans, barred_storages, misfit, slots_of
from neaptide.runtime.arena.out_probe import NO_FACTS, OutFacts
from neaptide.runtime.arena.plan import ArenaOptions, ArenaPlan, ArenaReport, OutsideStorage
from neaptide.symbolic.size_expr import SizeExpr

_ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class _Result:
    """A storage instance that a step makes."""

    instance: int
    node: Node
    slot: int  # the output of the node that sees it whole
    nbytes: int
    can_write: bool  # whether the node can be told its place
    reason: str  # why it has none; empty where it may have one


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
) -> ArenaPlan:
    """Decide and lay out. O(size of the schedule) and the search for the layout.

    Args:
        graph: static shapes.
        outs: which nodes write where they are told, by id (`runtime.arena.out_probe`).
        saved_bytes: of the copies that an atomic program keeps during a step.
    """
    sizes = prices.storage_bytes
    buffers = schedule_buffers(graph, schedule, storage_bytes=sizes, alignment=_ALIGNMENT)
    if options.in_place:
        choices = choose_in_place(graph, schedule, registry, storage_bytes=sizes)
        taken = buffers.buffer_of
        buffers = share(buffers, [c for c in choices if OUTSIDE not in (taken[c.made], taken[c.taken])])
    return _Planner(graph, registry, prices, outs, device, options, buffers).plan(schedule, saved_bytes)


@dataclass
class _Planner:
    graph: Graph
    registry: OpRegistry
    prices: Prices
    outs: Mapping[int, OutFacts]
    device: Device
    options: ArenaOptions
    buffers: ScheduleBuffers

    def plan(self, schedule: Schedule, saved_bytes: int) -> ArenaPlan:
        results, instances = list(self._results()), self.buffers.liveness.instances
        starts = [instances[r.instance].start for r in results]
        ends = [instances[r.instance].end for r in results]
        nbytes = np.array([r.nbytes for r in results], dtype=np.int64)
        spans = Spans(
            np.array(starts, np.int64), np.array(ends, np.int64), nbytes, len(self.buffers.liveness.steps)
        )
        written = np.array([r.can_write and not r.reason for r in results], dtype=np.bool_)
        is_open = np.array([not (r.can_write or r.reason) for r in results], dtype=np.bool_)
        copied = self._copied(spans, is_open, written)
        layout, offset_of = self._lay_out(
            [r.instance for r, w in zip(results, (written | copied).tolist(), strict=True) if w]
        )
        by_step: dict[int, list[_Result]] = defaultdict(list)
        for result, start in zip(results, starts, strict=True):
            by_step[start].append(result)
        places = {
            position: step
            for position, made in by_step.items()
            if (step := self._step_places(made, offset_of)) is not None
        }
        now = spans.outside_at(written | copied, copied)
        scratch = np.array([self._workspace(p, places.get(p)) for p in range(spans.steps)], dtype=np.int64)
        base = self.buffers.persistent_bytes + (layout.arena_bytes or 0) + saved_bytes
        profile = memory_profile(self.graph, schedule, storage_bytes=self.prices.storage_bytes)
        report = ArenaReport(
            arena_bytes=layout.arena_bytes or 0,
            live_bytes=layout.live_bytes,
            certificate=str(layout.certificate),
            written=int(written.sum()),
            copied=int(copied.sum()),
            copied_bytes=int(spans.nbytes[copied].sum()),
            copy_seconds=spans.copy_seconds(copied, self.device),
            step_seconds=self._step_seconds(),
            outside=tuple(
                self._outside(results[n], starts[n], ends[n]) for n in np.flatnonzero(~(written | copied))
            ),
            outside_peak_bytes=int(now.max(initial=0)),
            persistent_bytes=self.buffers.persistent_bytes,
            peak_bytes=base + int(now.max(initial=0)),
            peak_with_workspace_bytes=base + int((now + scratch).max(initial=0)),
            plain_peak_bytes=profile.peak_bytes + saved_bytes,
            predicted_reserved_bytes=caching_allocator_reserved(self.buffers.problem),
        )
        return ArenaPlan(places, self.buffers.device, _ALIGNMENT, report)

    def _results(self) -> Iterator[_Result]:
        liveness, graph = self.buffers.liveness, self.graph
        sizes = evaluate_storage_bytes(graph, None, self.prices.storage_bytes)
        barred = barred_storages(graph, self.registry)
        for index, instance in enumerate(liveness.instances):
            storage = graph.storages[instance.storage]
            if instance.is_persistent or not sizes[storage.id] or storage.device != self.buffers.device:
                continue
            step = liveness.steps[instance.start]
            node, nbytes = graph.nodes[step.target], sizes[storage.id]
            is_again = step.kind is StepKind.RECOMPUTE and bool(node.effects.writes)
            can_write = bool(node.regions) or (self._facts(node).variant is not None and not is_again)
            reason = barred.get(storage.id, "")
            if self.buffers.buffer_of[index] == OUTSIDE:
                reason = HANDED_BACK
            elif not reason:
                size = SizeExpr.const(nbytes)
                reason = misfit(graph, self.registry, node, storage.id, size, is_again=is_again)
            yield _Result(index, node, slots_of(graph, node, storage.id)[0], nbytes, can_write, reason)

    def _facts(self, node: Node) -> OutFacts:
        return self.outs.get(node.id, NO_FACTS)

    def _copied(self, spans: Spans, is_open: Flags, written: Flags) -> Flags:
        if self.options.copies == "cheap":
            seconds = self.options.copy_share * self._step_seconds()
            return spans.cheap_copies(is_open, written, self.device, seconds)
        return is_open if self.options.copies == "all" else np.zeros_like(is_open)

    def _step_seconds(self) -> float:
        return sum(self.prices.seconds[step.target] for step in self.buffers.liveness.steps)

    def _lay_out(self, placed: list[int]) -> tuple[LayoutResult, dict[int, int]]:
        """The layout of some instances' buffers, and the offset of each instance."""
        buffer_of = self.buffers.buffer_of
        used = sorted({buffer_of[index] for index in placed})
        numbers = {buffer: number for number, buffer in enumerate(used)}
        problem = self.buffers.problem
        chosen = LayoutProblem(tuple(problem.buffers[b] for b in used), problem.name)
        result = best_layout(chosen, self.options.limits).require()
        assert result.layout is not None
        offsets = result.layout.offsets
        return result, {index: offsets[numbers[buffer_of[index]]] for index in placed}

    def _step_places(self, made: list[_Result], offset_of: Mapping[int, int]) -> StepPlaces | None:
        if not any(result.instance in offset_of for result in made):
            return None
        node = made[0].node
        places: list[Place | None] = [None] * len(node.outputs)
        for result in made:
            if result.instance in offset_of:
                value = self.graph.values[node.outputs[result.slot]]
                shape, strides = (
                    tuple(n.constant_value() for n in size) for size in (value.shape, value.strides)
                )
                places[result.slot] = Place(offset_of[result.instance], value.dtype, shape, strides)
        writes = any(result.can_write for result in made) and not node.regions
        return StepPlaces(tuple(places), self._facts(node).variant if writes else None)

    def _workspace(self, position: int, places: StepPlaces | None) -> int:
        node = self.graph.nodes[self.buffers.liveness.steps[position].target]
        if places is not None and places.out is not None:
            return self._facts(node).workspace_bytes
        return self.prices.workspace.get(node.id, 0)

    def _outside(self, result: _Result, start: int, end: int) -> OutsideStorage:
        node, why = result.node, result.reason
        if not why:
            why = f"{self._facts(node).reason}; {LEFT_OUT[self.options.copies]}".removeprefix("; ")
        name = self.graph.values[node.outputs[result.slot]].name
        return OutsideStorage(node.op, name, result.nbytes, start, end, why)
