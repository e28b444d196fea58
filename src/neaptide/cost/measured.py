"""Cost by running each distinct operation of a graph once, alone, on this machine; results are kept on disk."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch

from neaptide.cost import host
from neaptide.cost.cache import OpCostCache
from neaptide.cost.calibrate import this_machine
from neaptide.cost.loops import Binding, loop_seconds, loop_workspace_bytes, trips
from neaptide.cost.model import HOST_SCALAR_S, EstimatedCost, is_host_arithmetic
from neaptide.cost.op_key import OpCall, digest, op_call
from neaptide.cost.op_record import OpRecord
from neaptide.cost.op_runner import find_op
from neaptide.cost.op_session import is_out_of_memory, run_calls
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ops.structural import CONSTANT_OP
from neaptide.outcome import LimitGuard, Limits, Stopwatch

_RECORD_VERSION: Final = 1
# Of the memory that is free now, the part that one operation may take for its operands and results.
_SHARE_OF_FREE_MEMORY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Preparation:
    """What `MeasuredCost.prepare` did for a graph.

    Attributes:
        distinct: calls that differ in anything that matters to cost.
        from_cache: of these, known before.
        measured: of these, run now.
        skipped: of these, not run, so estimated: operation and reason, with how many calls share them.
        seconds: time it took.
        stopped: what ran out, `time` or `interrupt`; None when nothing did.
    """

    distinct: int
    from_cache: int
    measured: int
    skipped: tuple[tuple[str, str, int], ...]
    seconds: float
    stopped: str | None


class MeasuredCost:
    """Seconds, workspace and true storage sizes from running each distinct call alone. Call `prepare` first.

    What was not run, or could not be, is estimated and reported. Not for use by several threads at once.

    Args:
        registry: the op table; an operation without a row is never run.
        cache: where results are kept; by default the file in `cache.cache_dir()`.
        fallback: for what is not run; by default the roofline of this machine, calibrated when first needed.
        max_bytes: a call whose operands and results need more is not run; by default half of the free memory
            at the time.
        binding: values of symbolic dims.
    """

    def __init__(
        self,
        registry: OpRegistry,
        cache: OpCostCache | None = None,
        *,
        fallback: EstimatedCost | None = None,
        max_bytes: int | None = None,
        binding: Binding | None = None,
    ) -> None:
        self._registry = registry
        self._cache = cache
        self._fallback = fallback
        self._max_bytes = max_bytes
        self._binding: Binding = dict(binding or {})
        self._records: dict[str, OpRecord] = {}
        self._reasons: dict[str, str] = {}
        self._latest: tuple[Graph, list[str | None]] | None = None

    @property
    def is_measured(self) -> bool:
        """True."""
        return True

    def prepare(
        self, graph: Graph, *, time_limit_s: float | None = None, interrupt: threading.Event | None = None
    ) -> Preparation:
        """Runs what is not known yet, the largest calls first, and stores it.

        Args:
            graph: the program; symbolic dims have values in the binding.
            time_limit_s: no further call is begun after it.
            interrupt: likewise once it is set.

        Raises:
            SymbolicError: a dim has no value.
            UsageError: the cache cannot be opened, or a recording of allocator events is under way.
        """
        watch = Stopwatch()
        guard = LimitGuard(Limits(time_s=time_limit_s), interrupt)
        calls = dict(self._calls(graph, self._binding))
        unknown = [key for key in calls if key not in self._records]
        if unknown:
            self._load(unknown)
        missing = {key: calls[key] for key in unknown if key not in self._records}
        most = self._max_bytes if self._max_bytes is not None else _free_bytes()
        self._reasons.update({k: r for k, c in missing.items() if (r := _why_not(c, self._registry, most))})
        runnable = {k: c for k, c in missing.items() if not _why_not(c, self._registry, most)}
        if runnable:
            self._run(runnable, guard)
        return Preparation(
            distinct=len(calls),
            from_cache=len(calls) - len(missing),
            measured=sum(1 for k in runnable if k in self._records and not self._records[k].failure),
            skipped=self._skipped(calls),
            seconds=watch.seconds(),
            stopped=guard.check_now() if any(k not in self._records for k in runnable) else None,
        )

    def seconds(self, graph: Graph, node: Node) -> float:
        """Median seconds of the call run alone; an estimate where it was not run."""
        return self._seconds(graph, node, self._binding)

    def workspace_bytes(self, graph: Graph, node: Node) -> int:
        """Most bytes that the call allocated beyond operands and results; a formula's where it was not run."""
        return self._workspace_bytes(graph, node, self._binding)

    def storage_bytes(self, graph: Graph) -> Mapping[int, int]:
        """Sizes of created storages that are not what the graph says. O(nodes)."""
        sizes: dict[int, int] = {}
        for node in graph.nodes:
            record = self.record(graph, node)
            if record is None:
                continue
            created = graph.created_storages(node)
            for value, facts in zip(node.outputs, record.outputs, strict=True):
                storage = graph.values[value].storage
                if storage is None or storage not in created or facts is None or facts.operand is not None:
                    continue
                if facts.nbytes != graph.storages[storage].nbytes.evaluate(self._binding):
                    sizes[storage] = facts.nbytes
        return sizes

    def record(self, graph: Graph, node: Node) -> OpRecord | None:
        """What was seen of a node's call; None where it was not run."""
        return self._record(graph, node, self._binding)

    def skipped(self, graph: Graph) -> tuple[tuple[str, str, int], ...]:
        """Calls of a graph that are estimated: operation, reason, and how many distinct calls share them."""
        return self._skipped(dict(self._calls(graph, self._binding)))

    def describe(self) -> str:
        """Processor, thread count and version of PyTorch."""
        threads = torch.get_num_threads()
        where = f"{host.cpu_model()}, {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}"
        return f"each operation run alone on {where}"

    # -- calls and keys

    def _calls(self, graph: Graph, binding: Binding) -> Iterator[tuple[str, OpCall]]:
        """The calls of a graph and of the bodies of its loops, with their keys; Python arithmetic has none."""
        environment = _environment()
        keys: list[str | None] = []
        for node in graph.nodes:
            keys.append(None)
            for loop in node.regions:
                for _, sizes in trips(graph, node, loop, binding):
                    yield from self._calls(loop.body, sizes)
            if _is_run(graph, node):
                call = op_call(graph, node, binding)
                keys[-1] = _key(environment, call)
                yield keys[-1], call
        if binding is self._binding:
            self._latest = graph, keys

    def _key_of(self, graph: Graph, node: Node, binding: Binding) -> str | None:
        if self._latest is not None and self._latest[0] is graph and binding is self._binding:
            return self._latest[1][node.id]
        return _key(_environment(), op_call(graph, node, binding)) if _is_run(graph, node) else None

    def _record(self, graph: Graph, node: Node, binding: Binding) -> OpRecord | None:
        key = self._key_of(graph, node, binding)
        found = None if key is None else self._records.get(key)
        return None if found is None or found.failure else found

    # -- running

    def _load(self, keys: list[str]) -> None:
        with_cache = self._open_cache()
        for key, plain in with_cache.get_many(keys).items():
            record = OpRecord.from_json(plain)
            if record is not None:
                self._records[key] = record

    def _run(self, calls: Mapping[str, OpCall], guard: LimitGuard) -> None:
        largest_first = sorted(calls, key=lambda k: -(calls[k].operand_bytes + calls[k].output_bytes))
        found = run_calls({key: calls[key] for key in largest_first}, guard)
        self._records.update(found)
        lasting = {k: r.to_json() for k, r in found.items() if not is_out_of_memory(r.failure)}
        self._open_cache().put_many(lasting)

    def _open_cache(self) -> OpCostCache:
        if self._cache is None:
            self._cache = OpCostCache()
        return self._cache

    def _skipped(self, calls: Mapping[str, OpCall]) -> tuple[tuple[str, str, int], ...]:
        counts: Counter[tuple[str, str]] = Counter()
        for key, call in calls.items():
            record = self._records.get(key)
            if record is None:
                counts[call.op, self._reasons.get(key, "it was not measured yet")] += 1
            elif record.failure:
                counts[call.op, f"it fails when run alone ({record.failure})"] += 1
        return tuple((op, reason, count) for (op, reason), count in sorted(counts.items()))

    # -- numbers

    def _seconds(self, graph: Graph, node: Node, binding: Binding) -> float:
        if node.regions:
            return loop_seconds(graph, node, binding, self._seconds)
        if is_host_arithmetic(graph, node):
            return HOST_SCALAR_S
        record = self._record(graph, node, binding)
        return self._estimate(binding).seconds(graph, node) if record is None else record.seconds

    def _workspace_bytes(self, graph: Graph, node: Node, binding: Binding) -> int:
        if node.regions:
            return loop_workspace_bytes(graph, node, binding, self._workspace_bytes)
        record = self._record(graph, node, binding)
        if record is not None:
            return record.workspace_bytes
        row = self._registry.find(node.op)
        return 0 if row is None else self._estimate(binding).workspace_bytes(graph, node)

    def _estimate(self, binding: Binding) -> EstimatedCost:
        if self._fallback is None:
            self._fallback = EstimatedCost(this_machine(), self._registry)
        return replace(self._fallback, binding=binding)


def _is_run(graph: Graph, node: Node) -> bool:
    """Loops, literals and Python arithmetic are no operations of PyTorch."""
    return not node.regions and node.op != CONSTANT_OP and not is_host_arithmetic(graph, node)


def _why_not(call: OpCall, registry: OpRegistry, max_bytes: int) -> str:
    """Why a call must not be run; empty when it may."""
    row = registry.find(call.op)
    if row is None:
        return "the op table has no row for it"
    if call.has_outside_effects:
        return "it talks to the host or to other processes"
    if find_op(call.op) is None:
        return f"torch {torch.__version__} has no such operation"
    for device in sorted(call.devices):
        kind = torch.device(device).type
        if kind not in {"cpu", "cuda"} or (kind == "cuda" and not torch.cuda.is_available()):
            return f"its tensors are on {device!r}, which does not run here"
    needed = call.operand_bytes + 2 * call.output_bytes
    if not call.is_view and needed > max_bytes:
        return f"it needs {needed} bytes, more than the {max_bytes} it may take"
    return ""
