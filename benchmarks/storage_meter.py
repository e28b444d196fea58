"""Measure a training step: the bytes of all live storages after each operation, and the seconds it takes."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """Bytes and seconds of one step after a first step has made the optimizer state.

    Attributes:
        parameters: number of trained scalars.
        resident_bytes: parameters, buffers, optimizer state and batch.
        peak_bytes: most bytes of live storages after any operation, the resident ones included.
        seconds: the fastest of the timed steps, without the meter.
        loss: of the last step.
    """

    parameters: int
    resident_bytes: int
    peak_bytes: int
    seconds: float
    loss: float


class LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts each storage once from the first operation that shows it until it is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        self._finalizers: dict[int, weakref.finalize[..., torch.UntypedStorage]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - the identity of the storage; its Python object has none
        if key in self._finalizers:
            return
        nbytes = storage.nbytes()
        self.live_bytes += nbytes
        self._finalizers[key] = weakref.finalize(storage, self._forget, key, nbytes)

    def _forget(self, key: int, nbytes: int) -> None:
        del self._finalizers[key]
        self.live_bytes -= nbytes

    def close(self) -> None:
        for finalizer in self._finalizers.values():
            finalizer.detach()
        self._finalizers.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return result


def closed_over(step: Callable[..., Any]) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The model and the optimizer in the closure of a training step."""
    values = [cell.cell_contents for cell in step.__closure__ or ()]
    (model,) = (v for v in values if isinstance(v, torch.nn.Module))
    (optimizer,) = (v for v in values if isinstance(v, torch.optim.Optimizer))
    return model, optimizer


def resident_tensors(step: Callable[..., Any], batch: dict[str, torch.Tensor]) -> Iterator[torch.Tensor]:
    """Everything that outlives a step: parameters, buffers, optimizer state, batch."""
    model, optimizer = closed_over(step)
    yield from model.parameters()
    yield from model.buffers()
    yield from (leaf for leaf in tree_leaves(dict(optimizer.state)) if isinstance(leaf, torch.Tensor))
    yield from batch.values()


def measure_step(
    step: Callable[..., Any], batch: dict[str, torch.Tensor], *, repeats: int = 2
) -> StepMeasurement:
    """Run `1 + repeats` steps plainly and one under the meter."""
    step(batch)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        step(batch)
        seconds.append(time.perf_counter() - start)
    meter = LiveStorages()
    for tensor in resident_tensors(step, batch):
        meter.add(tensor)
    resident = meter.live_bytes
    with meter:
        loss = step(batch)
    meter.close()
    model, _ = closed_over(step)
    return StepMeasurement(
        parameters=sum(p.numel() for p in model.parameters()),
        resident_bytes=resident,
        peak_bytes=meter.peak_bytes,
        seconds=min(seconds),
        loss=float(loss),
    )
