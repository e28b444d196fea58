"""Cost by running each distinct operation of a graph once, alone, on this machine; results are kept on disk."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from neaptide.analysis.loops import Binding
from neaptide.cost import host
from neaptide.cost.cache import OpCostCache
from neaptide.cost.calibrate import this_machine
from neaptide.cost.call_clock import CallClock
from neaptide.cost.graph_calls import GraphCalls, KeyedCalls, ResolvedCalls, keyed_call
from neaptide.cost.model import HOST_SCALAR_S, CostModel, EstimatedCost, is_host_arithmetic
from neaptide.cost.op_key import OpCall, OpRecord, digest
from neaptide.cost.op_runner import is_on_cuda
from neaptide.cost.op_session import (
    cache_share_bytes,
    environment,
    is_out_of_memory,
    run_calls,
    undisturbed,
    why_not_run,
)
from neaptide.cost.program_timing import seconds_in_program
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.outcome import LimitGuard, Limits, Stopwatch

_GRAPHS_REMEMBERED: Final = 8
_CALLS_REMEMBERED: Final = 20_000
# Of the memory that is free now, the part that one operation may take for its operands and results.
_SHARE_OF_FREE_MEMORY: Final = 0.5
# Of the seconds of a program, the part of the calls that are timed again where it took another time than predicted.
_MOST_SECONDS: Final = 0.9
_AGAIN_S: Final = 5.0
"""Seconds that this may take; what is left keeps the time that it had."""

Skipped = tuple[tuple[str, str, int], ...]
"""Operation, reason, and how many distinct calls share them."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What `MeasuredCost.prepare` did for a graph.

    Attributes:
        stopped: what ran out, `time` or `interrupt`; None when nothing did.
    """

    distinct: int
    from_cache: int
    measured: int
    skipped: Skipped
    seconds: float
    stopped: str | None


@dataclass(slots=True)
class _Remembered:
    calls: GraphCalls
    by_node: ResolvedCalls


class MeasuredCost(CostModel):
    """Seconds, workspace and true storage sizes from running each distinct call alone. Call `prepare` first.

    What was not run, or could not be, is estimated and reported. Not for use by several threads at once.

    Args:
        max_bytes: a call whose operands and results need more is not run; by default half of the memory that is
            free at the time.
        refresh: measure what is in the cache again, and keep the new results there.
        in_program: time short calls where they stand in the program; else alone, to see what that is worth.
    """

    is_measured = True

    def __init__(
        self,
        registry: OpRegistry,
        cache: OpCostCache | None = None,
        *,
        fallback: EstimatedCost | None = None,
        max_bytes: int | None = None,
        binding: Binding | None = None,
        refresh: bool = False,
        in_program: bool = True,
    ) -> None:
        self._registry = registry
        self._cache = cache
        # Shared by the models of trips: the machine is calibrated once.
        self._estimate = functools.cache(lambda: fallback or EstimatedCost(this_machine(), registry))
        self._max_bytes = max_bytes
        self._whole: Binding = dict(binding or {})
        self.binding = self._whole
        self._refresh = refresh
        self._in_program = in_program
        self._records: dict[str, OpRecord] = {}
        self._reasons: dict[str, str] = {}
        self._graphs: dict[int, _Remembered] = {}
        self._calls: dict[str, KeyedCalls] = {}
        self._clocks: dict[str, CallClock] = {}

    @property
    def call_s(self) -> float:
        """That of the device by which what was not run is estimated."""
        return self._estimate().call_s

    @property
    def registry(self) -> OpRegistry:
        """The op table."""
        return self._registry

    def prepare(
        self, graph: Graph, *, time_limit_s: float | None = None, interrupt: threading.Event | None = None
    ) -> Preparation:
        """Runs what is not known yet, the largest calls first, and stores it."""
        watch = Stopwatch()
        guard = LimitGuard(Limits(time_s=time_limit_s), interrupt)
        calls = self._calls_of(graph)
        ran: set[str] = set()
        # Where results are not what the graph says, what reads them is run a second time, on what they are.
        first = {keyed.key: keyed.call for keyed in calls.distinct(self._records.get)}
        left = self._complete(first, guard, ran)
        final = {keyed.key: keyed.call for keyed in calls.distinct(self._records.get)}
        left = self._complete(final, guard, ran) or left
        if self._in_program:
            self._time_in_program(calls, ran, guard)
        # What was just learnt may change which calls other graphs are made of.
        self._graphs.clear()
        self._remember(calls)
        return Preparation(
            distinct=len(final),
            from_cache=sum(1 for key in final if key in self._records and key not in ran),
            measured=sum(1 for key in final if key in ran and not self._records[key].failure),
            skipped=self._skipped(final),
            seconds=watch.seconds(),
            stopped=guard.check_now() if left else None,
        )

    def time_again(self, graph: Graph, *, are_too_long: bool) -> None:
        """Times the calls again that take most of a prepared graph's seconds; what they take now counts where it is nearer.

        Args:
            are_too_long: whether the program took less time than its calls are said to; else it took more.
        """
        calls, guard = self._calls_of(graph), LimitGuard(Limits(time_s=_AGAIN_S))
        known = {keyed.key: keyed.call for keyed in calls.distinct(self._records.get)}
        before = {key: self._records[key] for key in self._dearest(graph) if key in known}
        self._run({key: known[key] for key in before}, guard)
        if self._in_program:
            self._time_in_program(calls, set(before), guard)
        settled: dict[str, OpRecord] = {}
        for key, old in before.items():
            new = self._records[key]
            is_nearer = (new.seconds < old.seconds) == are_too_long and not new.failure
            settled[key] = new if is_nearer else old
        self._records.update(settled)
        self._store(settled)
        self._graphs.clear()

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
        calls = self._remembered(graph).calls.distinct(self._records.get)
        return self._skipped({keyed.key: keyed.call for keyed in calls})

    def clock(self) -> CallClock:
        """Tells times at the pace that what is kept was measured at; the first to ask for it here sets that, in 0.2 s.

        A pace that is wrong is measured again, as is any with `refresh`; what was measured at another pace is told at this one.
        """
        here = environment()
        if here not in self._clocks:
            self._clocks[here] = self._kept_clock(digest(f"{here}: pace"))
        return self._clocks[here]

    def describe(self) -> str:
        """Processor, thread count and version of PyTorch."""
        return f"each operation run alone: {environment()}"

    def _kept_clock(self, key: str) -> CallClock:
        kept = None if self._refresh else self._kept().get_many([key]).get(key, {}).get("pace_s")
        if isinstance(kept, float):
            clock = CallClock(kept)
            if not clock.is_at_wrong_pace():
                return clock
        clock = CallClock()
        self._kept().put_many({key: {"pace_s": clock.pace_s}})
        return clock

    def _dearest(self, graph: Graph) -> list[str]:
        """Keys of the calls that take most of a graph's seconds together, the dearest first."""
        taken: dict[str, float] = {}
        for node in graph.nodes:
            keyed = self._remembered(graph).by_node[node.id]
            record = None if keyed is None else self._records.get(keyed.key)
            if keyed is not None and record is not None and not record.failure:
                taken[keyed.key] = taken.get(keyed.key, 0.0) + record.seconds
        chosen: list[str] = []
        left = _MOST_SECONDS * sum(taken.values())
        for key in sorted(taken, key=taken.__getitem__, reverse=True):
            if left <= 0:
                break
            chosen.append(key)
            left -= taken[key]
        return chosen

    # -- what is known

    def _remembered(self, graph: Graph) -> _Remembered:
        known = self._graphs.get(id(graph))
        return self._remember(self._calls_of(graph)) if known is None else known

    def _calls_of(self, graph: Graph) -> GraphCalls:
        here = environment()
        known = self._calls.setdefault(here, {})
        if len(known) >= _CALLS_REMEMBERED:
            known.clear()
        return GraphCalls(graph, here, self._whole, known)

    def _remember(self, calls: GraphCalls) -> _Remembered:
        while len(self._graphs) >= _GRAPHS_REMEMBERED:
            del self._graphs[next(iter(self._graphs))]
        # The graph is kept with its calls: else another one could get its id.
        known = _Remembered(calls, calls.resolved(self._records.get))
        self._graphs[id(calls.graph)] = known
        return known

    def _record(self, graph: Graph, node: Node, binding: Binding) -> OpRecord | None:
        if binding is self._whole:
            keyed = self._remembered(graph).by_node[node.id]
        else:  # in the body of a loop, whose sizes are those of a trip
            keyed = keyed_call(graph, node, environment(), binding)
        found = None if keyed is None else self._records.get(keyed.key)
        return None if found is None or found.failure else found

    def _skipped(self, calls: Mapping[str, OpCall]) -> Skipped:
        counts: Counter[tuple[str, str]] = Counter()
        for key, call in calls.items():
            record = self._records.get(key)
            if record is None:
                counts[call.op, self._reasons.get(key, "it was not measured yet")] += 1
            elif record.failure:
                counts[call.op, f"it fails when run alone ({record.failure})"] += 1
        return tuple((op, reason, count) for (op, reason), count in sorted(counts.items()))

    # -- running

    def _complete(self, calls: Mapping[str, OpCall], guard: LimitGuard, ran: set[str]) -> bool:
        """Loads or runs what is not known; adds the keys of what was run to `ran`. True when some were left."""
        unknown = [key for key in calls if key not in self._records]
        if unknown and not self._refresh:
            self._load(unknown)
        missing = {key: calls[key] for key in unknown if key not in self._records}
        if not missing:
            return False
        most = self._max_bytes
        if most is None:
            most = int(host.memory_available_bytes() * _SHARE_OF_FREE_MEMORY)
        reasons = {key: why_not_run(call, self._registry, most) for key, call in missing.items()}
        self._reasons.update((key, reason) for key, reason in reasons.items() if reason)
        runnable = {key: call for key, call in missing.items() if not reasons[key]}
        if runnable:
            self._run(runnable, guard)
            ran.update(key for key in runnable if key in self._records)
        return any(key not in self._records for key in runnable)

    def _run(self, calls: Mapping[str, OpCall], guard: LimitGuard) -> None:
        largest_first = sorted(calls, key=lambda k: -(calls[k].operand_bytes + calls[k].output_bytes))
        ordered = {key: calls[key] for key in largest_first}
        seen = run_calls(ordered, guard, self._registry, self.clock(), short_once=self._in_program)
        pace_s = self.clock().pace_s
        found = {
            key: record if is_on_cuda(calls[key]) else replace(record, pace_s=pace_s)
            for key, record in seen.items()
        }
        self._records.update(found)
        self._store({key: r for key, r in found.items() if not is_out_of_memory(r.failure)})

    def _time_in_program(self, calls: GraphCalls, ran: set[str], guard: LimitGuard) -> None:
        """Times the short ones of the calls that were just run where they stand in the program."""
        known = {key: record.seconds for key, record in self._records.items() if not record.failure}
        new = ran.intersection(known)
        if not new:
            return
        order = list(calls.placed(self._records.get, cache_share_bytes()))
        with undisturbed([]):
            found = seconds_in_program(order, known, new, self.clock(), guard)
        updated = {key: replace(self._records[key], seconds=seconds) for key, seconds in found.items()}
        self._records.update(updated)
        self._store(updated)

    def _load(self, keys: list[str]) -> None:
        for key, plain in self._kept().get_many(keys).items():
            record = OpRecord.from_json(plain)
            if record is not None:
                self._records[key] = record.at_pace(self.clock().pace_s)

    def _store(self, records: Mapping[str, OpRecord]) -> None:
        self._kept().put_many({key: record.to_json() for key, record in records.items()})

    def _kept(self) -> OpCostCache:
        """Where results are kept, opened when it is first needed."""
        if self._cache is None:
            self._cache = OpCostCache()
        return self._cache

    # -- numbers

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
        known = self._registry.find(node.op) is not None
        return self._estimate().node_workspace(graph, node, sizes) if known else 0
