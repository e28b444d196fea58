"""Every block that the allocator hands out while a program runs: the meter that sees inside operators.

The events come from PyTorch's profiler, on CUDA as well: no counter of the allocator is reset, since its user may read them.
They include workspace and the buffers of compiled code, and exclude what libraries take from `malloc` or the driver
themselves (oneDNN scratch, MKL). One session can hold many regions (`region`), so the fixed cost of a session is paid
once for a whole table of operators.

On CUDA the events tell blocks: rounded up to 512 bytes, with the unused rest of a block that was not split.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from neaptide.cost import _torch_private
from neaptide.errors import UsageError

_PREFIX: Final = "neaptide."
_REGION: Final = f"{_PREFIX}region/"
_DEATH: Final = f"{_PREFIX}death/"
_LEAVES: Final = f"{_PREFIX}leaves/"

_CPU: Final = torch.device("cpu")
_session = threading.local()


@dataclass(frozen=True, slots=True)
class AllocatorEvent:
    """Bytes that begin (positive) or end (negative) to be allocated; address zero for the death of a persistent storage."""

    time_ns: int
    address: int
    signed_bytes: int


@dataclass(frozen=True, slots=True)
class AllocatorTrace:
    """Allocator events of one session in time order.

    Blocks that were allocated before the session are not part of it, and neither is their being freed;
    storages that were passed as persistent are the exception: their death is an event, and so is that they leave for the host.

    Attributes:
        regions: by when they began, each with its name and the most bytes above those live at its start, at least zero.
        left: by region, bytes live at its end above those at its start.
    """

    events: tuple[AllocatorEvent, ...]
    regions: tuple[tuple[str, int], ...]
    left: tuple[int, ...] = ()

    def peak_bytes(self, start_live: int = 0) -> int:
        """Most bytes live at any time, when `start_live` bytes were live at the start. O(events)."""
        live = peak = start_live
        for event in self.events:
            live += event.signed_bytes
            peak = max(peak, live)
        return peak


@contextmanager
def region(name: str) -> Iterator[None]:
    """Names a stretch of a recorded program; regions nest, and one name may occur many times.

    Outside of `record` it does nothing of note.
    """
    with torch.profiler.record_function(_REGION + name):
        yield


def record(
    fn: Callable[[], object],
    *,
    persistent: Iterable[torch.Tensor] = (),
    device: torch.device = _CPU,
) -> AllocatorTrace:
    """Runs `fn` once and returns what the allocator of a device did meanwhile.

    The calling thread is seen, and those to which autograd hands its state; threads that `fn` starts by
    itself are not. The result of `fn` is dropped before the end, so what it alone kept alive is freed
    within the trace. The garbage collector is off meanwhile:
    a cycle that it would free at a time of its own choosing must not change the trace. A session starts
    and ends in about 0.1 s.

    Args:
        persistent: tensors allocated before; when the storage of one dies, its bytes leave the live count.
            No reference to them is kept.
    """
    if getattr(_session, "active", False):
        raise UsageError(
            "allocator events are being recorded already",
            why="PyTorch has one profiler per thread",
            next_step="use `region` to tell parts of one recording apart",
        )
    watches = _watch_deaths(persistent, device)
    # The caller's tensors must be able to die while `fn` runs.
    del persistent
    _session.active, _session.device = True, device.type
    try:
        profiler = _torch_private.memory_profiler()
        with _collector_off(), profiler:
            fn()
            watches.clear()
    finally:
        _session.active = False
    return _build_trace(_torch_private.read_events(profiler, _PREFIX, device))


def region_peaks(fn: Callable[[], object], device: torch.device = _CPU) -> dict[str, int]:
    """Runs `fn` as `record` does; the peak of each region by name, the least where a name occurs more than once."""
    return _least(record(fn, device=device).regions)


def region_scratch(fn: Callable[[], object], device: torch.device) -> dict[str, int]:
    """The same of a device, for what of the peak is gone at the end of a region: scratch, where its results stay."""
    trace = record(fn, device=device)
    gone = [max(0, peak - left) for (_, peak), left in zip(trace.regions, trace.left, strict=True)]
    return _least((name, nbytes) for (name, _), nbytes in zip(trace.regions, gone, strict=True))


def _least(found: Iterable[tuple[str, int]]) -> dict[str, int]:
    least: dict[str, int] = {}
    for name, nbytes in found:
        least[name] = min(least.get(name, nbytes), nbytes)
    return least


def note_leaving(storage: torch.UntypedStorage) -> None:
    """Say that a storage is about to give its bytes up, and lives on.

    The profiler has no event for the end of a block that is older than the recording, and such a storage does not die. Outside of
    `record` it does nothing.
    """
    if getattr(_session, "active", False) and storage.device.type == getattr(_session, "device", "cpu"):
        with torch.profiler.record_function(f"{_LEAVES}{storage.data_ptr()}/{storage.nbytes()}"):
            pass


@contextmanager
def _collector_off() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _watch_deaths(tensors: Iterable[torch.Tensor], device: torch.device) -> list[Any]:
    """Weak references that leave a span in the recording when a storage dies; they live as long as the list."""
    watches: list[Any] = []
    seen: set[int] = set()
    for tensor in tensors:
        storage = tensor.untyped_storage()
        identity = _torch_private.storage_identity(storage)
        if identity not in seen and storage.nbytes() > 0 and storage.device.type == device.type:
            seen.add(identity)
            watches.append(weakref.ref(storage, _death_marker(storage.nbytes())))
    return watches


def _death_marker(nbytes: int) -> Callable[[object], None]:
    def mark(_: object) -> None:
        with torch.profiler.record_function(f"{_DEATH}{nbytes}"):
            pass

    return mark


def _build_trace(raw: list[_torch_private.RawEvent]) -> AllocatorTrace:
    """Pairs allocations with frees, and cuts the time line at the borders of regions."""
    spans = [event for event in raw if event.name.startswith(_REGION)]
    # (time, rank, position): at one instant regions start, then blocks change, then regions end.
    borders = [(span.start_ns, 0, index) for index, span in enumerate(spans)]
    borders += [(span.end_ns, 2, index) for index, span in enumerate(spans)]
    changes = [event for event in raw if not event.name.startswith(_REGION)]
    borders += [(change.start_ns, 1, index) for index, change in enumerate(changes)]
    borders.sort()

    events: list[AllocatorEvent] = []
    blocks: dict[int, int] = {}
    live = 0
    opened: dict[int, tuple[int, int]] = {}  # live bytes at the start, and the most since
    peaks, left = [0] * len(spans), [0] * len(spans)
    for time_ns, rank, index in borders:
        if rank == 0:
            opened[index] = live, live
        elif rank == 2:
            start, most = opened.pop(index)
            peaks[index], left[index] = most - start, live - start
        else:
            for address, signed_bytes in _changes_of(changes[index], blocks):
                events.append(AllocatorEvent(time_ns, address, signed_bytes))
                live += signed_bytes
            opened = {region: (start, max(most, live)) for region, (start, most) in opened.items()}
    names = [span.name.removeprefix(_REGION) for span in spans]
    return AllocatorTrace(tuple(events), tuple(zip(names, peaks, strict=True)), tuple(left))


def _changes_of(raw: _torch_private.RawEvent, blocks: dict[int, int]) -> list[tuple[int, int]]:
    """(address, signed bytes) of one raw event; keeps `blocks`, the live ones of this session, current."""
    if raw.nbytes is None and raw.name.startswith(_LEAVES):
        address, _, nbytes = raw.name.removeprefix(_LEAVES).partition("/")
        # The end of a block of this session is an event of its own.
        return [] if int(address) in blocks else [(int(address), -int(nbytes))]
    if raw.nbytes is None:
        return [(0, -int(raw.name.removeprefix(_DEATH)))]
    if raw.nbytes > 0:
        changes = [(raw.address, raw.nbytes)]
        if raw.address in blocks:
            # The block's free happened on a thread that is not recorded; its address is in use again.
            changes.insert(0, (raw.address, -blocks[raw.address]))
        blocks[raw.address] = raw.nbytes
        return changes
    # Older than this session: was never counted, so its end is not counted either.
    known = blocks.pop(raw.address, None)
    return [] if known is None else [(raw.address, -known)]
