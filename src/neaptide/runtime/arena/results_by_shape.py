"""Which results of a program with points have a place in its arena: settled once, for every shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.cost.devices import Device
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.lower.places import ToldPlaces
from neaptide.planner.points.instances import FIRST, Instances
from neaptide.planner.points.plan import Decision, PointPlan
from neaptide.runtime.arena.fit import HANDED_BACK, LEFT_OUT, Flags, Spans, barred_storages, misfit, slots_of
from neaptide.runtime.arena.out_probe import OutFacts
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.symbolic.size_expr import SizeExpr

_ZERO: Final = SizeExpr.const(0)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedResults:
    """What first executions, or repetitions, put into an arena."""

    written: Flags  # by storage, whether the node that makes it puts it where it is told
    copied: Flags  # by storage, whether it is copied there
    reasons: Mapping[int, str]  # by storage, why it is outside; nothing for what is inside or has no bytes
    told: Mapping[int, ToldPlaces]  # by node, how its results get there


@dataclass(frozen=True, slots=True, eq=False)
class ArenaResults:
    """What lies in an arena."""

    first: PlacedResults
    again: PlacedResults
    device: Device

    def written(self, instances: Instances) -> Flags:
        """By instance of a run, whether its node puts it where it is told."""
        return _of(instances, self.first.written, self.again.written)

    def copied(self, instances: Instances) -> Flags:
        """By instance of a run, whether it is copied to its place."""
        return _of(instances, self.first.copied, self.again.copied)


def arena_results(
    plan: PointPlan,
    registry: OpRegistry,
    outs: Mapping[int, OutFacts],
    device: Device,
    options: ArenaOptions,
    decision: Decision,
    instances: Instances,
) -> ArenaResults:
    """Decide what lies in the arena. O(storages + candidates for a copy x steps).

    What repetitions make is copied where the first execution is; else evictions would move bytes out of the arena.

    Args:
        decision: for the shape whose bytes and seconds say which copies are worth their time.
    """
    found = _Finding(plan, registry, outs)
    first, again = found.candidates(again=False), found.candidates(again=True)
    chosen = {storage: None for storage in first.is_open if options.copies == "all"}
    if options.copies == "cheap":
        chosen = dict.fromkeys(_cheap(first, again, device, options, decision, instances))
    every = again.is_open if options.copies == "all" else [s for s in again.is_open if s in chosen]
    left_out = LEFT_OUT.get(options.copies, "")
    return ArenaResults(
        found.placed(first, chosen, left_out),
        found.placed(
            again, dict.fromkeys(every), "computed again, it is copied where its first execution is"
        ),
        device,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """`is_open`: what could be copied, with what is known of its node."""

    written: Flags
    is_open: dict[int, str]
    reasons: dict[int, str]


class _Finding:
    def __init__(self, plan: PointPlan, registry: OpRegistry, outs: Mapping[int, OutFacts]) -> None:
        self.plan, self.shaped = plan, plan.shaped
        self.registry, self.outs = registry, outs
        self.barred = barred_storages(plan.shaped.graph, registry)

    def candidates(self, *, again: bool) -> _Candidates:
        shaped = self.shaped
        nodes = [shaped.graph.nodes[n] for n in shaped.units.order if not again or n in self.plan.repeatable]
        found = _Candidates(np.zeros(len(shaped.graph.storages), np.bool_), {}, {})
        for node in nodes:
            facts = self.outs.get(node.id)
            for storage in shaped.problem.created[node.id]:
                if shaped.storage_sizes[storage] == _ZERO:
                    continue
                reason = self._reason(node, storage, is_again=again and bool(node.effects.writes))
                if reason:
                    found.reasons[storage] = reason
                elif node.regions or (facts is not None and facts.variant is not None):
                    found.written[storage] = True
                else:
                    found.is_open[storage] = "" if facts is None else facts.reason
        return found

    def _reason(self, node: Node, storage: int, *, is_again: bool) -> str:
        """Why a storage has no place at any shape; empty when it may have one."""
        shaped = self.shaped
        if shaped.units.last_use[storage] == shaped.problem.node_count:
            return HANDED_BACK
        if storage in self.barred:
            return self.barred[storage]
        nbytes = shaped.graph.storages[storage].nbytes
        return misfit(shaped.graph, self.registry, node, storage, nbytes, is_again=is_again)

    def placed(self, found: _Candidates, chosen: Mapping[int, None], left_out: str) -> PlacedResults:
        copied = np.zeros_like(found.written)
        copied[list(chosen)] = True
        open_ones = {s: f"{why}; {left_out}".removeprefix("; ") for s, why in found.is_open.items()}
        reasons = found.reasons | {s: why for s, why in open_ones.items() if s not in chosen}
        return PlacedResults(found.written, copied, reasons, self._told(found.written, copied))

    def _told(self, written: Flags, copied: Flags) -> dict[int, ToldPlaces]:
        graph, created = self.shaped.graph, self.shaped.problem.created
        told = {}
        for node in graph.nodes:
            inside = [s for s in created[node.id] if written[s] or copied[s]]
            if not inside:
                continue
            slots = {slots_of(graph, node, storage)[0] for storage in inside}
            is_told = written[inside].any() and not node.regions
            told[node.id] = ToldPlaces(
                tuple(slot in slots for slot in range(len(node.outputs))),
                self.outs[node.id].variant if is_told else None,
            )
        return told


def _cheap(
    first: _Candidates,
    again: _Candidates,
    device: Device,
    options: ArenaOptions,
    decision: Decision,
    instances: Instances,
) -> list[int]:
    """Storages whose copies are cheap at a shape: each is copied once in a run, after its first execution."""
    spans, storages = run_spans(instances, decision), instances.storages
    could = np.isin(storages, list(first.is_open)) & (spans.nbytes > 0)
    is_open = could & (instances.runs[instances.starts] == FIRST)
    written = _of(instances, first.written, again.written)
    seconds = options.copy_share * run_seconds(decision)
    return storages[spans.cheap_copies(is_open, written, device, seconds)].tolist()  # type: ignore[no-any-return]


def run_spans(instances: Instances, decision: Decision) -> Spans:
    """What a run makes, with its bytes at the shape of a decision."""
    nbytes = np.array(decision.sizes.storage_bytes, dtype=np.int64)[instances.storages]
    return Spans(instances.starts, instances.ends, nbytes, len(instances.nodes))


def run_seconds(decision: Decision) -> float:
    """Of a run with its repetitions, without copies into an arena."""
    sizes = decision.sizes
    return sizes.seconds + sum(sizes.repeat_seconds[node] for node in decision.script.repeated)


def _of(instances: Instances, first: Flags, again: Flags) -> Flags:
    is_first = instances.runs[instances.starts] == FIRST
    return np.where(is_first, first[instances.storages], again[instances.storages])
