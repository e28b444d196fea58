"""Scratch bytes of ONNX Runtime's kernels, and the operands that they overwrite, for the nodes of a graph."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from neaptide.analysis.folded import folded_values
from neaptide.cost import host
from neaptide.cost.cache import OpCostCache
from neaptide.cost.onnxruntime.allocator import CannotMeasure
from neaptide.cost.onnxruntime.calls import KernelCall, Numbers, calls_of
from neaptide.cost.onnxruntime.process import RuntimeProcess, runtime_version
from neaptide.ir.graph import Graph

_LOG = logging.getLogger(__name__)
_KEY: Final = "onnxruntime kernel"
_SHARE_OF_FREE_MEMORY: Final = 0.5


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """What a kernel allocates beside its results, and operands on whose bytes its first result comes to lie if they die."""

    workspace_bytes: int
    in_place: tuple[int, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class KernelScratch:
    """Measured memory of the kernels of a graph.

    Attributes:
        kernels: by node, where something was measured.
        frame_bytes: what a run keeps for the values of the graph, beside their own bytes.
        shared_bytes: what it keeps up to its end for each value that lies on the bytes of another.
        note: one sentence where nothing could be; empty otherwise. Planning goes on without it.
        failures: by operator, why a call of it has no measurement.
    """

    kernels: Mapping[int, KernelMemory] = field(default_factory=dict)
    frame_bytes: int = 0
    shared_bytes: float = 0.0
    note: str = ""
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> dict[int, int]:
        """Bytes by node that are there while it runs beside what the graph counts: scratch, and the frame of the run."""
        return {node: kernel.workspace_bytes + self.frame_bytes for node, kernel in self.kernels.items()}


class KernelMeter:
    """Measures calls, each distinct one once on a machine: what was seen is kept in the cost cache.

    A context that ends the process in which kernels run; it is started when there is something to measure.

    Args:
        cache: of measured costs; that of the user if none is given.
        threads: that ONNX Runtime uses inside an operator; some scratch is by thread.
    """

    def __init__(self, cache: OpCostCache | None = None, *, threads: int = 1) -> None:
        self._cache = OpCostCache() if cache is None else cache
        self._threads = threads
        self._process: RuntimeProcess | None = None

    def __enter__(self) -> KernelMeter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.close()

    def scratch(
        self, graph: Graph, numbers: Numbers, binding: Mapping[str, int] | None = None
    ) -> KernelScratch:
        """Scratch of the kernels of a graph, about 3 ms for a call that nobody has measured yet, after 0.5 s for the start.

        Args:
            numbers: of small weights, by value.
            binding: of the graph's dims.
        """
        calls = calls_of(graph, numbers, binding)
        try:
            found = self.measure(calls.values())
            frame = self.frame()
        except CannotMeasure as error:
            note = f"scratch of ONNX Runtime's kernels is not counted: {error.what}"
            return KernelScratch(note=note)
        kernels = {node: found[call] for node, call in calls.items()}
        failures = {call.kind: found[call].failure for call in calls.values() if found[call].failure}
        measured = {node: kernel for node, kernel in kernels.items() if not kernel.failure}
        frame_bytes = round(frame["value_bytes"] * len(_written_values(graph)))
        return KernelScratch(measured, frame_bytes, frame["shared_bytes"], failures=failures)

    def frame(self) -> Mapping[str, float]:
        """What a run keeps beside the bytes of values: `value_bytes` for each, weights included, and `shared_bytes` more, up to
        its end, for each that lies on the bytes of another.

        Raises:
            CannotMeasure: it is not in the cache, and there is no runtime, compiler or Linux here.
        """
        key = f"{self._environment()}frame and shared"
        kept = self._cache.get_many([key])
        if key not in kept:
            kept = {key: self._started().ask({"ask": "frame"})}
            if "value_bytes" not in kept[key]:
                raise CannotMeasure("ONNX Runtime does not run here", why=str(kept[key].get("failure")))
            self._cache.put_many(kept)
        return {name: float(kept[key][name]) for name in ("value_bytes", "shared_bytes")}

    def measure(self, calls: Iterable[KernelCall]) -> dict[KernelCall, KernelMemory]:
        """The memory of each distinct call.

        Raises:
            CannotMeasure: calls are not in the cache, and there is no runtime, compiler or Linux here.
        """
        start = self._environment()
        keys = {call: f"{start}{call.text()}" for call in dict.fromkeys(calls)}
        kept = self._cache.get_many(keys.values())
        found = {call: _read(kept[key]) for call, key in keys.items() if key in kept}
        missing = [call for call in keys if call not in found]
        if missing:
            fresh = self._run(missing)
            self._cache.put_many({keys[call]: asdict(memory) for call, memory in fresh.items()})
            found.update(fresh)
        return found

    def _run(self, calls: Iterable[KernelCall]) -> dict[KernelCall, KernelMemory]:
        most_bytes = int(host.memory_available_bytes() * _SHARE_OF_FREE_MEMORY)
        found, process = {}, self._started()
        for call in calls:
            if 2 * call.nbytes > most_bytes:
                found[call] = KernelMemory(0, failure="it needs more memory than there is")
                continue
            found[call] = _read(process.ask(self._question(call)))
            if found[call].failure:
                _LOG.info("%s was not measured: %s", call.kind, found[call].failure)
        return found

    def _started(self) -> RuntimeProcess:
        if self._process is None:
            self._process = RuntimeProcess()
            weakref.finalize(self, self._process.close)
        return self._process

    def _question(self, call: KernelCall) -> dict[str, Any]:
        return {
            "ask": "call",
            "call": asdict(call),
            "threads": self._threads,
            "result_bytes": [tensor.nbytes for tensor in call.results if tensor is not None],
            "overwritable": call.overwritable(),
        }

    def _environment(self) -> str:
        threads = f"{self._threads} thread{'s' if self._threads > 1 else ''}"
        return f"{_KEY}, {runtime_version()}, {host.cpu_model()}, {host.vector_extensions()}, {threads}: "


def _written_values(graph: Graph) -> set[int]:
    """Values of the planned file, in which what makes weights is computed before."""
    folded = folded_values(graph)
    runs = (node for node in graph.nodes if not folded.issuperset(node.outputs))
    return {value for node in runs for value in (*node.inputs, *node.outputs)}


def _read(value: Mapping[str, Any]) -> KernelMemory:
    if value.get("failure"):
        return KernelMemory(0, failure=str(value["failure"]))
    return KernelMemory(int(value["workspace_bytes"]), tuple(map(int, value["in_place"])))
