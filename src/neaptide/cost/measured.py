"""Cost by running each distinct operation of a graph once, alone, on this machine; results are kept on disk.

What that showed and the graph does not say is told in sentences (`surprises`).
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import torch

from neaptide.analysis.loops import Binding
from neaptide.analysis.sizes import usual_device
from neaptide.cost.cache import OpCostCache
from neaptide.cost.calibrate import this_machine
from neaptide.cost.cards.cuda_card import card
from neaptide.cost.devices import Device
from neaptide.cost.model import HOST_SCALAR_S, CostModel, EstimatedCost, is_host_arithmetic
from neaptide.cost.op_key import OpCall, OpRecord, OutputFacts
from neaptide.cost.timing.call_clock import CallClock
from neaptide.cost.timing.graph_calls import GraphCalls, KeyedCalls, PlacedCall, keyed_call
from neaptide.cost.timing.op_runner import is_on_cuda
from neaptide.cost.timing.op_session import (
    CPU,
    cache_share_bytes,
    environment,
    is_out_of_memory,
    may_take_bytes,
    run_calls,
    undisturbed,
    why_not_run,
)
from neaptide.cost.timing.program_timing import seconds_in_program
from neaptide.errors import CaptureError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.units import format_bytes

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

    Seconds of a call on a card are those of the card. In a step whose calls take the host longer to hand over than the card
    to make, they are those of the host.
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
        self._estimate = functools.cache(lambda: fallback or EstimatedCost(self._machine(), registry))
        self._whole: Binding = {}
        self.binding = self._whole
        self._refresh = refresh
        self._device: torch.device | None = None  # of the first graph
        # Whether the host takes longer to hand the calls of the step to a card than the card to make them.
        self._waits_for_host: bool | None = None
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
        most = may_take_bytes(self._on(graph)) if missing else 0
        reasons = {key: why_not_run(call, self.registry, most) for key, call in missing.items()}
        self._reasons.update((key, reason) for key, reason in reasons.items() if reason)
        runnable = [key for key, reason in reasons.items() if not reason]
        runnable.sort(key=lambda k: -(calls[k].operand_bytes + calls[k].output_bytes))
        self._run({key: calls[key] for key in runnable}, placed)
        if self._waits_for_host is None and self._on(graph).type != "cpu":
            known = [
                (place.times, record)
                for place in placed
                if (record := self._records.get(place.keyed.key)) is not None and not record.failure
            ]
            handed_s = sum(times * record.launch_s for times, record in known)
            self._waits_for_host = handed_s > sum(times * record.seconds for times, record in known)
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
        """Tells times at the speed that what is kept was measured at; the first to ask for it here sets that, in 0.2 s.

        A speed that is wrong is measured again, as is any with `refresh`; what was measured at another speed is told at this one.
        """
        here = environment(CPU if self._device is None else self._device)
        if here not in self._clocks:
            key = f"{here}: pace"
            kept = None if self._refresh else self._cache.get_many([key]).get(key, {}).get("reference_s")
            clock = CallClock(kept) if isinstance(kept, float) else None
            if clock is None or clock.has_wrong_reference():
                clock = CallClock()
                self._cache.put_many({key: {"reference_s": clock.reference_s}})
            self._clocks[here] = clock
        return self._clocks[here]

    def node_seconds(self, graph: Graph, node: Node, sizes: Binding) -> float:
        """Median seconds of the call; an estimate where it was not run."""
        if is_host_arithmetic(graph, node):
            return HOST_SCALAR_S
        record = self._record(graph, node, sizes)
        if record is None:
            return self._estimate().node_seconds(graph, node, sizes)
        return record.launch_s if self._waits_for_host and record.launch_s else record.seconds

    def node_workspace(self, graph: Graph, node: Node, sizes: Binding) -> int:
        """Most bytes that the call allocated beyond operands and results; a formula's where it was not run."""
        record = self._record(graph, node, sizes)
        if record is not None:
            return record.workspace_bytes
        # Without a row there is no formula, so no reason to calibrate the machine for one.
        known = self.registry.find(node.op) is not None
        return self._estimate().node_workspace(graph, node, sizes) if known else 0

    # -- what is known

    def _on(self, graph: Graph) -> torch.device:
        """The device of a step, by the first of its graphs."""
        if self._device is None:
            self._device = torch.device(usual_device(graph))
        return self._device

    def _machine(self) -> Device:
        """What estimates operations that cannot be run: the card of the step, or this machine."""
        if self._device is None or self._device.type == "cpu":
            return this_machine()
        return card(self._device)

    def _graph_calls(self, graph: Graph) -> GraphCalls:
        found = self._graphs.get(id(graph))
        if found is None:
            here = environment(self._on(graph))
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
            keyed = keyed_call(graph, node, environment(self._on(graph)), binding)
        found = None if keyed is None else self._records.get(keyed.key)
        return None if found is None or found.failure else found

    def _load(self, keys: list[str]) -> None:
        for key, plain in self._cache.get_many(keys).items():
            record = OpRecord.from_json(plain)
            if record is not None:
                self._records[key] = record.at_clock(self.clock().reference_s)

    def _run(self, calls: Mapping[str, OpCall], placed: Sequence[PlacedCall]) -> None:
        """Runs calls alone, then the short ones of them where they stand in the program, and keeps what was seen."""
        if not calls:
            return
        clock = self.clock()
        seen = run_calls(calls, self.registry, clock)
        for key, record in seen.items():
            self._records[key] = (
                record if is_on_cuda(calls[key]) else replace(record, reference_s=clock.reference_s)
            )
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


def surprises(graph: Graph, cost: CostModel) -> tuple[str, ...]:
    """Sentences for a report: sizes and aliases that the graph has otherwise, and what was not run. O(nodes)."""
    if not isinstance(cost, MeasuredCost):
        return ()
    found = []
    # One sentence for each result of an operation and kind of difference: the sizes differ from layer to layer.
    counts: dict[tuple[str, int, str], Counter[str]] = defaultdict(Counter)
    sizes = cost.storage_bytes(graph)
    for node in graph.nodes:
        record = cost.record(graph, node)
        for position, facts in enumerate(() if record is None else record.outputs):
            if facts is not None:
                for kind, text in _differences(graph, node, position, facts, sizes):
                    counts[node.op, position, kind][text] += 1
    for texts in counts.values():
        text, total = next(iter(texts)), texts.total()
        more = f" ({total} nodes)" if len(texts) == 1 else f" (and {total - 1} more nodes alike)"
        found.append(text + (more if total > 1 else ""))
    for op, reason, count in cost.skipped(graph):
        found.append(f"{op} is estimated{f' ({count} calls)' if count > 1 else ''}: {reason}")
    for op in sorted({node.op for node in graph.nodes}):
        row = cost.registry.find(op)
        if row is not None and row.is_a(Trait.DATA_SIZED):
            found.append(
                f"how much scratch {op} takes depends on the numbers in its operands: "
                "the peak with workspace counts the most, a step may need less"
            )
    return tuple(found)


def _differences(
    graph: Graph, node: Node, position: int, facts: OutputFacts, sizes: Mapping[int, int]
) -> Iterator[tuple[str, str]]:
    value = graph.values[node.outputs[position]]
    if value.storage is None:
        return
    result = f"result {position} of {node.op}"
    is_fresh = value.storage in graph.created_storages(node)
    if is_fresh and facts.operand is not None:
        text = f"{result} lies in an operand's storage when run alone; the graph gives it bytes of its own"
        yield "alias", text
    elif not is_fresh and facts.operand is None:
        own = format_bytes(facts.nbytes)
        yield "alias", f"{result} has {own} of its own when run alone; in the graph it is an alias"
    elif value.storage in sizes:
        said, seen = graph.storages[value.storage].nbytes, format_bytes(facts.nbytes)
        yield "bytes", f"{result} lies in a storage of {seen}; the graph says {said} bytes"
    if value.dtype != facts.dtype:
        raise CaptureError(
            f"{result} is {facts.dtype}; the captured program says {value.dtype}",
            where=node.source.location if node.source.file else None,
            why="what follows would be computed in another precision than in eager",
            next_step="write the step without this operation, or cast its operands to one dtype",
        )
    shape, real = [str(n) for n in value.shape], [str(n) for n in facts.shape]
    if all(n.is_constant for n in value.shape) and shape != real:
        seen, stated = f"{facts.dtype}[{', '.join(real)}]", f"{value.dtype}[{', '.join(shape)}]"
        yield "shape", f"{result} is {seen} when run alone; the graph says {stated}"
