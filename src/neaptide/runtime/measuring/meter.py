"""Live bytes of tensor storages, counted at the dispatcher while a program runs.

Independent of every planner: it sees nothing but operators and storages. It does not see what an operator
allocates inside itself, nor the buffers of compiled code; `neaptide.cost.cards.allocator_events` does.
`measure_step` reads both, one run each.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import torch

from neaptide.cost import host
from neaptide.cost.cards.allocator_events import record
from neaptide.errors import UsageError
from neaptide.runtime._torch_private import (
    EagerMode,
    changes_inputs,
    load_dispatch_machinery,
    storage_identity,
)

_CPU: Final = torch.device("cpu")
# Wraps a tensor that was just made from Python data: its argument is new, not something that was missed.
_FRESH_INPUT: Final = frozenset(
    {"aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.lift.default"}
)


class LiveBytesMeter(EagerMode):
    """Tracks the live bytes of the storages of a kind of device, and the most there were at any operator.

    At each operator the count is taken when its outputs exist and its inputs are still live. A storage
    counts once however many tensors view it, with the bytes it really has (`untyped_storage().nbytes()`),
    from the operator that makes it until it is freed; views are free and a resize changes the count.

    The garbage collector is off inside the `with` block and restored after it: a cycle that it would free
    at a time of its own choosing must not change the number.

    Dispatch modes are a property of the thread. Operators of the backward pass are seen, since autograd runs them
    on the calling thread; those of threads that the program starts itself are not.

    `persistent` tensors live before the program starts; they count from the start, until they die. No reference to them
    is kept.
    """

    only_observes = True  # the guards of a planned step let it be

    def __init__(self, persistent: Iterable[torch.Tensor] = (), device: torch.device = _CPU) -> None:
        super().__init__()
        self._device = device
        self.live_bytes = 0
        self._storages: dict[int, _Tracked] = {}
        self._unregistered: list[Any] = []
        self._entered = False
        self._gc_was_on = False
        self._visit(persistent, None, reads=False)
        self.persistent_bytes = self.peak_bytes = self.live_bytes

    @property
    def unregistered(self) -> tuple[str, ...]:
        """Operators that read a storage which was neither persistent nor made under the meter.

        Its bytes count from that operator on, too late for an exact peak: register it as persistent.
        """
        return tuple(str(func) for func in self._unregistered)

    def __enter__(self) -> Self:
        if self._entered:
            raise UsageError(
                "a meter measures one run", why="this one was used before", next_step="make a new meter"
            )
        self._entered = True
        load_dispatch_machinery()
        self.peak_bytes = self.live_bytes
        self._gc_was_on = gc.isenabled()
        gc.disable()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        finally:
            # Without their references the storages no longer report to this meter.
            self._storages.clear()
            if self._gc_was_on:
                gc.enable()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Before the call: an unregistered input is live during it.
        self._visit(args, func, reads=True)
        if kwargs:
            self._visit(kwargs.values(), func, reads=True)
            outputs = func(*args, **kwargs)
        else:
            outputs = func(*args)
        self._visit((outputs,), func, reads=False)
        if changes_inputs(func):
            # An input may have been resized in place, whether or not it is returned.
            self._visit(args, func, reads=False)
            if kwargs:
                self._visit(kwargs.values(), func, reads=False)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return outputs

    def _visit(self, values: Iterable[Any], func: Any, *, reads: bool) -> None:
        """Counts the storages of all tensors in `values`, which `func` reads or has made."""
        storages = self._storages
        for value in values:
            if isinstance(value, torch.Tensor):
                if value.layout is not torch.strided:  # it has no storage
                    continue
                storage = value.untyped_storage()
                nbytes = storage.nbytes()
                known = storages.get(storage_identity(storage))
                if known is None:
                    if not _is_on(value, self._device):
                        continue
                    self._count(storage)
                    if reads and str(func) not in _FRESH_INPUT:
                        self._unregistered.append(func)
                elif known.nbytes != nbytes:
                    self.live_bytes += nbytes - known.nbytes
                    known.nbytes = nbytes
            elif isinstance(value, (list, tuple)):
                self._visit(value, func, reads=reads)

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, nbytes = storage_identity(storage), storage.nbytes()
        self._storages[key] = _Tracked(weakref.ref(storage, partial(self._forget, key)), nbytes)
        self.live_bytes += nbytes

    def _forget(self, key: int, dead: weakref.ref[Any]) -> None:
        known = self._storages.get(key)
        if known is not None and known.reference is dead:
            del self._storages[key]
            self.live_bytes -= known.nbytes


def storage_bytes(tensors: Iterable[torch.Tensor], device: torch.device = _CPU) -> int:
    """Bytes of the storages of `tensors` on a device, each storage once."""
    return sum(_sizes(tensors).get(device, {}).values())


def device_of(tensors: Iterable[torch.Tensor]) -> torch.device:
    """The device with most bytes of some tensors; the CPU where there are none."""
    sizes = {device: sum(found.values()) for device, found in _sizes(tensors).items()}
    return min(sizes, key=lambda device: (-sizes[device], str(device)), default=_CPU)


def _sizes(tensors: Iterable[torch.Tensor]) -> dict[torch.device, dict[int, int]]:
    """Bytes of storages by device and identity."""
    sizes: dict[torch.device, dict[int, int]] = {}
    for tensor in tensors:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            sizes.setdefault(tensor.device, {})[storage_identity(storage)] = storage.nbytes()
    return sizes


def _is_on(tensor: torch.Tensor, device: torch.device) -> bool:
    return tensor.device.type == device.type and device.index in (None, tensor.device.index)


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """What was seen of one step, by three meters.

    Attributes:
        measured_allocator_peak_bytes: most bytes allocated, persistent ones included; it adds what operators
            allocate inside themselves.
        unregistered: operators that read storages which were not given as persistent; empty in a sound
            measurement.
        high_water_mark_bytes: resident pages of the whole process at their most during the step, or since
            its start where the system does not let the mark be reset; None if the system does not tell.
    """

    persistent_bytes: int
    measured_peak_bytes: int
    measured_allocator_peak_bytes: int
    unregistered: tuple[str, ...]
    high_water_mark_bytes: int | None


def measure_step(
    fn: Callable[[], object], persistent: Callable[[], Iterable[torch.Tensor]]
) -> StepMeasurement:
    """Runs `fn` twice and returns its peaks: once under `LiveBytesMeter`, once under the allocator's events.

    Both runs must do the same: call `fn` once before, so that state which the first call makes (optimizer
    state, gradients) exists. The result of `fn` is dropped at its end. `persistent` lists the tensors that live before
    the step, anew before each run: the step may replace or free some. Bytes are those of the device that has most of these.
    """
    device = device_of(persistent())
    host.reset_high_water_mark()
    with LiveBytesMeter(persistent(), device) as meter:
        fn()
    high_water_mark_bytes = host.high_water_mark_bytes()
    start_bytes = storage_bytes(persistent(), device)
    return StepMeasurement(
        persistent_bytes=meter.persistent_bytes,
        measured_peak_bytes=meter.peak_bytes,
        measured_allocator_peak_bytes=record(fn, persistent=persistent(), device=device).peak_bytes(
            start_bytes
        ),
        unregistered=meter.unregistered,
        high_water_mark_bytes=high_water_mark_bytes,
    )


@dataclass(slots=True)
class _Tracked:
    """A storage, by a weak reference, and its bytes."""

    reference: weakref.ref[Any]
    nbytes: int
