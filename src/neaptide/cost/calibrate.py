"""A short calibration of this machine's CPU: rates, bandwidth, call cost and fresh memory, cached on disk.

The best of several repetitions is taken, not the mean: other programs can only make a repetition slower.
The whole takes under three seconds and runs once per processor, thread count and PyTorch version.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from typing import Final

import msgspec
import torch

from neaptide.cost import host
from neaptide.cost.cache import OpCostCache
from neaptide.cost.devices import CALIBRATION, HOST_SPACE, Device, MemorySpace, device_of

THIS_MACHINE: Final = "this-machine"
# PyTorch's CPU allocator aligns every block to a cache line.
_CPU_ALIGNMENT_BYTES: Final = 64
_MATMUL_SIZE: Final = 512
_SMALL_MATMUL_SIZE: Final = 64
# Larger than the last-level caches of server processors, per-core share included.
_COPY_BYTES: Final = 128 * 2**20
_BUDGET_PER_PROBE_S: Final = 0.35
_CALLS_PER_LAUNCH_PROBE: Final = 500


def this_machine(*, refresh: bool = False, cache: OpCostCache | None = None) -> Device:
    """This machine as a `Device`: from the cache if it was measured before, else measured now and kept there."""
    kept = OpCostCache() if cache is None else cache
    key = _key()
    found = None if refresh else device_of(kept.get_many([key]).get(key, {}))
    if found is None:
        found = measure()
        kept.put_many({key: {"device": msgspec.to_builtins(found)}})
    return found


def measure() -> Device:
    """Measures this machine at PyTorch's current thread count. Takes up to three seconds."""
    with torch.no_grad():
        launch_s = _launch_seconds()
        rates = {
            str(dtype).removeprefix("torch."): _matmul_flops_per_s(_MATMUL_SIZE, dtype, launch_s)
            for dtype in (torch.float32, torch.bfloat16)
        }
        bandwidth = _copy_bytes_per_s()
        half_flops = _half_flops(rates["float32"], launch_s)
    capacity_bytes = host.memory_capacity_bytes()
    return Device(
        name=THIS_MACHINE,
        kind="cpu",
        spaces=(MemorySpace(HOST_SPACE, capacity_bytes, bandwidth, _CPU_ALIGNMENT_BYTES),),
        flops_per_s=rates,
        launch_s=launch_s,
        half_flops=half_flops,
        # A small copy stays in the caches and is faster than a large one, so nothing is lost to smallness.
        half_bytes=0.0,
        links=(),
        source=f"measured: {host.cpu_model()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        fresh_s_per_byte=_seconds_per_fresh_byte(),
        fresh_from_bytes=_smallest_fresh_bytes(),
    )


def _key() -> str:
    return ", ".join(
        (
            f"{CALIBRATION}{host.cpu_model()}",
            f"{host.memory_capacity_bytes()} bytes",
            f"{torch.get_num_threads()} threads",
            f"torch {torch.__version__}",
        )
    )


def _best_seconds(work: Callable[[], object]) -> float:
    """Shortest of the repetitions that fit the probe's time, after one to warm up; at least two."""
    work()
    best = float("inf")
    start = time.perf_counter()
    repetitions = 0
    while repetitions < 2 or time.perf_counter() - start < _BUDGET_PER_PROBE_S:
        before = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - before)
        repetitions += 1
    return best


def _launch_seconds() -> float:
    """Seconds of one call that computes next to nothing."""
    x, y, out = torch.ones(1), torch.ones(1), torch.empty(1)

    def call_many() -> None:
        for _ in range(_CALLS_PER_LAUNCH_PROBE):
            torch.add(x, y, out=out)

    return _best_seconds(call_many) / _CALLS_PER_LAUNCH_PROBE


def _matmul_seconds(size: int, dtype: torch.dtype) -> float:
    a = torch.ones(size, size, dtype=dtype)
    out = torch.empty_like(a)
    return _best_seconds(lambda: torch.mm(a, a, out=out))


def _matmul_flops_per_s(size: int, dtype: torch.dtype, launch_s: float) -> float:
    span = _matmul_seconds(size, dtype)
    # The clock may be coarser than a call on a fast machine; never divide by nothing.
    return 2.0 * size**3 / max(span - launch_s, span / 2)


def _half_flops(rate: float, launch_s: float) -> float:
    """Work of half utilisation, from one small matmul: span = launch + (flops + half) / rate."""
    flops = 2.0 * _SMALL_MATMUL_SIZE**3
    span = _matmul_seconds(_SMALL_MATMUL_SIZE, torch.float32)
    return max(0.0, (span - launch_s) * rate - flops)


def _copy_bytes_per_s() -> float:
    source = torch.ones(_COPY_BYTES // 4)
    target = torch.empty_like(source)
    # Read once and written once.
    return 2.0 * _COPY_BYTES / _best_seconds(lambda: target.copy_(source))


_PROBED_BYTES: Final = 32 * 2**20
_PROBES: Final = 5
_SMALLEST_FRESH_BYTES: Final = 2**23
"""Blocks below this are taken to be used again."""
_LARGEST_BYTES: Final = 2**26
# The first frees teach some allocators to keep blocks of a size.
_TIMES: Final = 8


def _seconds_per_fresh_byte() -> float:
    """Seconds of this thread to touch fresh memory and to give it back, beyond writing it, by byte. Takes 0.1 s."""
    # Other programs can only make it longer.
    return max(0.0, min(_extra_seconds() for _ in range(_PROBES)) / _PROBED_BYTES)


def _extra_seconds() -> float:
    before = time.thread_time()
    with mmap.mmap(-1, _PROBED_BYTES) as block:
        tensor = torch.frombuffer(block, dtype=torch.uint8)
        tensor.fill_(1)
        filled = time.thread_time()
        tensor.fill_(2)
        again = time.thread_time()
        del tensor
    return (time.thread_time() - again) + (filled - before) - (again - filled)


def _smallest_fresh_bytes() -> int:
    """From which size on blocks that are freed go back to the system at once; 0 where none do, or it is not told.

    Sizes that are powers of two are tried, down to the first that is kept. Takes 0.5 s.
    """
    found, nbytes = 0, _LARGEST_BYTES
    while nbytes >= _SMALLEST_FRESH_BYTES and _is_fresh_again(nbytes):
        found = nbytes
        nbytes //= 2
    return found


def _is_fresh_again(nbytes: int) -> bool:
    touched = 0
    for _ in range(_TIMES):
        before = host.page_faults()
        torch.empty(nbytes, dtype=torch.uint8).fill_(1)
        after = host.page_faults()
        if before is None or after is None:
            return False
        touched = after - before
    return touched * mmap.PAGESIZE >= nbytes // 2
