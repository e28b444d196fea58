"""A short calibration of this machine's CPU: rates, bandwidth, call cost and fresh memory, cached on disk.

The best of several repetitions is taken, not the mean: other programs can only make a repetition slower.
The whole takes under three seconds and runs once per processor, thread count and PyTorch version.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from neaptide.cost import cache, host
from neaptide.cost.devices import HOST_SPACE, Device, MemorySpace
from neaptide.cost.used_memory import seconds_per_fresh_byte, smallest_fresh_bytes
from neaptide.errors import UsageError
from neaptide.reading import read_bytes
from neaptide.writing import write_atomic

_LOG = logging.getLogger(__name__)

THIS_MACHINE: Final = "this-machine"
# PyTorch's CPU allocator aligns every block to a cache line.
_CPU_ALIGNMENT_BYTES: Final = 64
_MATMUL_SIZE: Final = 512
_SMALL_MATMUL_SIZE: Final = 64
# Larger than the last-level caches of server processors, per-core share included.
_COPY_BYTES: Final = 128 * 2**20
_BUDGET_PER_PROBE_S: Final = 0.35
_CALLS_PER_LAUNCH_PROBE: Final = 500
# Raised when a device has more figures: what was measured before lacks them.
_FIGURES: Final = 2


def this_machine(*, refresh: bool = False, directory: Path | None = None) -> Device:
    """This machine as a `Device`: from the cache if it was measured before, else measured now and cached."""
    path = (cache.cache_dir() if directory is None else directory) / f"device-{_cache_key()}.json"
    if not refresh:
        cached = _read(path)
        if cached is not None:
            return cached
    device = measure()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, device.to_json())
    except OSError as error:
        # A read-only home is no reason to fail: the next process measures again.
        _LOG.warning("the calibration could not be kept in %s: %s", path, error)
    return device


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
        fresh_s_per_byte=seconds_per_fresh_byte(),
        fresh_from_bytes=smallest_fresh_bytes(),
    )


def _cache_key() -> str:
    parts = {
        "cpu": host.cpu_model(),
        "memory_bytes": host.memory_capacity_bytes(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "figures": _FIGURES,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _read(path: Path) -> Device | None:
    try:
        if not path.exists():
            return None
        return Device.from_json(read_bytes(path))
    except (OSError, UsageError) as error:
        why = error.why or error.what if isinstance(error, UsageError) else error
        _LOG.warning("the calibration in %s is not readable (%s); measuring again", path, why)
        return None


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
