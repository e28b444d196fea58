"""Cost by running each distinct operation of a graph once, alone, on this machine; results are kept on disk."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from neaptide.analysis.loops import Binding
from neaptide.cost.cache import OpCostCache
from neaptide.cost.calibrate import this_machine
from neaptide.cost.call_clock import CallClock
from neaptide.cost.graph_calls import GraphCalls, KeyedCalls, PlacedCall, keyed_call
from neaptide.cost.model import HOST_SCALAR_S, CostModel, EstimatedCost, is_host_arithmetic
from neaptide.cost.op_key import OpCall, OpRecord, digest
from neaptide.cost.op_runner import is_on_cuda
from neaptide.cost.op_session import (
    cache_share_bytes,
    environment,
    is_out_of_memory,
    may_take_bytes,
    run_calls,
    undisturbed,
    why_not_run,
)
from neaptide.cost.program_timing import seconds_in_program
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry

_GRAPHS_REMEMBERED: Final = 8
_CALLS_REMEMBERED: Final = 20_000
_AGAIN_S: Final = 5.0
"""Seconds that timing calls again may take, about; the others keep the time that they had."""
_RUNS_AGAIN: Final = 8
"""How often a call is run when it is timed again."""

Skipped = tuple[tuple[str, str, int], ...]
"""Operation, reason, and how many distinct calls share them."""


class MeasuredCost(CostModel):
    """Seconds, workspace and true storage sizes from running each distinct call alone. Call `prepare` first.

    What was not run, or could not be, is estimated (by default for this machine) and reported. Not for use by several
    threads at once. With `refresh` what is in the cache is measured again, and the new results are kept there.
    """

    is_measured = True

    def __init__(
        self,
        registry: OpRegistry,
        cache: OpCostCache | None = None,
        *,
        fallback: EstimatedCost | None = None,
        refresh: bool = False,
    ) -> None:
        self.registry = registry
        self._cache = OpCostCache() if cache is None else cache
        # Shared by the models of trips: the machine is calibrated once.
        self._estimate = functools.cache(lambda: fallback or EstimatedCost(this_machine(), registry))
        self._whole: Binding = {}
        self.binding = self._whole
        self._refresh = refresh
        self._records: dict[str, OpRecord] = {}
        self._reasons: dict[str, str] = {}
        self._graphs: dict[int, GraphCalls] = {}
        self._calls: dict[str, KeyedCalls] = {}
        self._clocks: dict[str, CallClock] = {}

    @property
    def call_s(self) -> float:
        """That of the device by which what was not run is estimated."""
        return self._estimate().call_s

    def prepare(self, graph: Graph) -> int:
        """Runs what is not known yet, the largest calls first, and keeps it; how many calls were run."""
        self._graphs.pop(id(graph), None)  # PyTorch may have other threads or modes by now
        placed = self._placed(graph)
        calls = _distinct(placed)
        unknown = [key for key in calls if key not in self._records]
        if not self._refresh:
            self._load(unknown)
        missing = {key: calls[key] for key in unknown if key not in self._records}
        most = may_take_bytes() if missing else 0
        reasons = {key: why_not_run(call, self.registry, most) for key, call in missing.items()}
        self._reasons.update((key, reason) for key, reason in reasons.items() if reason)
        runnable = [key for key, reason in reasons.items() if not reason]
        runnable.sort(key=lambda k: -(calls[k].operand_bytes + calls[k].output_bytes))
        self._run({key: calls[key] for key in runnable}, placed)
        return len(runnable)

    def time_again(self, graph: Graph, *, are_too_long: bool) -> None:
        """Times the dearest calls of a prepared graph again; what they take now counts where it is nearer.

        `are_too_long`: the program took less time than its calls are said to; else it took more.
        """
        placed = self._placed(graph)
        calls = _distinct(placed)
        taken: dict[str, float] = defaultdict(float)
        for place in placed:
            record = self._records.get(place.keyed.key)
            if record is not None and not record.failure:
                taken[place.keyed.key] += place.times * record.seconds
        before: dict[str, OpRecord] = {}
        left_s = _AGAIN_S
        for key in sorted(taken, key=taken.__getitem__, reverse=True):
            left_s -= _RUNS_AGAIN * self._records[key].seconds
            if left_s >= 0 or not before:
                before[key] = self._records[key]
        self._run({key: calls[key] for key in before}, placed)
        for key, old in before.items():
            new = self._records[key]
            if new.failure or (new.seconds < old.seconds) != are_too_long:
                self._records[key] = old
        self._store(before)

    def real_sizes(
        self, graph: Graph, sizes: Binding, nodes: Iterable[Node] | None = None
    ) -> Mapping[int, int]:
        """Bytes, by storage id, of those storages whose real size is not what the graph says. O(nodes)."""
        found: dict[int, int] = {}
        for node in graph.nodes if nodes is None else nodes:
            record = self._record(graph, node, sizes)
            if record is None:
                continue
            created = graph.created_storages(node)
            for value, facts in zip(node.outputs, record.outputs, strict=True):
                storage = graph.values[value].storage
                if storage is None or storage not in created or facts is None or facts.operand is not None:
                    continue
                if facts.nbytes != graph.storages[storage].nbytes.evaluate(sizes):
                    found[storage] = facts.nbytes
        return found

    def record(self, graph: Graph, node: Node) -> OpRecord | None:
        """What was seen of a node's call; None where it was not run."""
        return self._record(graph, node, self.binding)

    def skipped(self, graph: Graph) -> Skipped:
        """Calls of a graph that are estimated, because they were not run or failed."""
        counts: Counter[tuple[str, str]] = Counter()
        for key, call in _distinct(self._placed(graph)).items():
            record = self._records.get(key)
            if record is None:
                counts[call.op, self._reasons.get(key, "it was not measured yet")] += 1
            elif record.failure:
                counts[call.op, f"it fails when run alone ({record.failure})"] += 1
        return tuple((op, reason, count) for (op, reason), count in sorted(counts.items()))

    def clock(self) -> CallClock:
        """Tells times at the pace that what is kept was measured at; the first to ask for it here sets that, in 0.2 s.

        A pace that is wrong is measured again, as is any with `refresh`; what was measured at another pace is told at this one.
        """
        here = environment()
        if here not in self._clocks:
            self._clocks[here] = self._kept_clock(digest(f"{here}: pace"))
        return self._clocks[here]

    def node_seconds(self, graph: Graph, node: Node, sizes: Binding) -> float:
        """Median seconds of the call; an estimate where it was not run."""
        if is_host_arithmetic(graph, node):
            return HOST_SCALAR_S
        record = self._record(graph, node, sizes)
        return self._estimate().node_seconds(graph, node, sizes) if record is None else record.seconds

    def node_workspace(self, graph: Graph, node: Node, sizes: Binding) -> int:
        """Most bytes that the call allocated beyond operands and results; a formula's where it was not run."""
        record = self._record(graph, node, sizes)
        if record is not None:
            return record.workspace_bytes
        # Without a row there is no formula, so no reason to calibrate the machine for one.
        known = self.registry.find(node.op) is not None
        return self._estimate().node_workspace(graph, node, sizes) if known else 0

    # -- what is known

    def _graph_calls(self, graph: Graph) -> GraphCalls:
        found = self._graphs.get(id(graph))
        if found is None:
            here = environment()
            known = self._calls.setdefault(here, {})
            if len(known) >= _CALLS_REMEMBERED:
                known.clear()
            while len(self._graphs) >= _GRAPHS_REMEMBERED:
                del self._graphs[next(iter(self._graphs))]
            # The graph is kept with its calls: else another one could get its id.
            found = self._graphs[id(graph)] = GraphCalls(graph, here, self._whole, known)
        return found

    def _placed(self, graph: Graph) -> list[PlacedCall]:
        return list(self._graph_calls(graph).placed(cache_share_bytes()))

    def _record(self, graph: Graph, node: Node, binding: Binding) -> OpRecord | None:
        if binding is self._whole:
            keyed = self._graph_calls(graph)[node.id]
        else:  # in the body of a loop, whose sizes are those of a trip
            keyed = keyed_call(graph, node, environment(), binding)
        found = None if keyed is None else self._records.get(keyed.key)
        return None if found is None or found.failure else found

    def _kept_clock(self, key: str) -> CallClock:
        kept = None if self._refresh else self._cache.get_many([key]).get(key, {}).get("pace_s")
        if isinstance(kept, float):
            clock = CallClock(kept)
            if not clock.is_at_wrong_pace():
                return clock
        clock = CallClock()
        self._cache.put_many({key: {"pace_s": clock.pace_s}})
        return clock

    def _load(self, keys: list[str]) -> None:
        for key, plain in self._cache.get_many(keys).items():
            record = OpRecord.from_json(plain)
            if record is not None:
                self._records[key] = record.at_pace(self.clock().pace_s)

    def _run(self, calls: Mapping[str, OpCall], placed: Sequence[PlacedCall]) -> None:
        """Runs calls alone, then the short ones of them where they stand in the program, and keeps what was seen."""
        if not calls:
            return
        clock = self.clock()
        seen = run_calls(calls, self.registry, clock)
        for key, record in seen.items():
            self._records[key] = record if is_on_cuda(calls[key]) else replace(record, pace_s=clock.pace_s)
        alone_s = {key: record.seconds for key, record in self._records.items() if not record.failure}
        with undisturbed([]):
            found = seconds_in_program(placed, alone_s, seen.keys(), clock)
        for key, seconds in found.items():
            self._records[key] = replace(self._records[key], seconds=seconds)
        self._store(seen)

    def _store(self, keys: Iterable[str]) -> None:
        """Keeps results, but for failures that say nothing about the next time."""
        kept = {key: record for key in keys if not is_out_of_memory((record := self._records[key]).failure)}
        self._cache.put_many({key: msgspec.to_builtins(record) for key, record in kept.items()})


def _distinct(placed: Iterable[PlacedCall]) -> dict[str, OpCall]:
    return {place.keyed.key: place.keyed.call for place in placed}
