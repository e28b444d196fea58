"""The card of a CUDA step as a `Device`: what the driver says of it, what a short calibration shows, and a data sheet for the rest.

Times are those between events of the device. The best of several repetitions is taken: other programs can only make one slower.
The whole takes about a second and runs once per card and version.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import torch

from neaptide.cost.cache import OpCostCache
from neaptide.cost.devices import CALIBRATION, HOST_SPACE, Device, Link, device_of
from neaptide.cost.presets import cuda_device, preset_of_card

_MATMUL_SIZE: Final = 4096
_COPY_BYTES: Final = 256 * 2**20
_LINK_BYTES: Final = 64 * 2**20
_SMALL_BYTES: Final = 4096
_REPEATS: Final = 5
_CALLS_PER_LAUNCH_PROBE: Final = 200
_LEAST_S: Final = 1e-9
_LEAST_SIZE: Final = 256
_LEAST_BYTES: Final = 2**20
_FLOAT_BYTES: Final = 4
_SEED: Final = 0


def card(device: torch.device, *, refresh: bool = False, cache: OpCostCache | None = None) -> Device:
    """The card of a device: from the cache if it was measured before, else measured now and kept there."""
    kept = OpCostCache() if cache is None else cache
    key = f"{CALIBRATION}{card_in_words(device)}"
    found = None if refresh else device_of(kept.get_many([key]).get(key, {}))
    if found is None:
        found = measure(device)
        kept.put_many({key: {"device": msgspec.to_builtins(found)}})
    return found


def card_in_words(device: torch.device) -> str:
    """Everything that times on a card depend on beside the call: its name and memory, versions, and modes of PyTorch."""
    known = torch.cuda.get_device_properties(device)
    backends: Any = torch.backends
    precision = backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision
    parts = [
        f"{known.name}, {known.total_memory} bytes",
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
        f"float32 in convolutions {precision[0]}, in products {precision[1]}",
    ]
    if torch.backends.cudnn.benchmark:
        parts.append("convolutions tried out")
    return ", ".join(parts)


def measure(device: torch.device) -> Device:
    """Measures a card. Takes about a second, and up to 0.6 GiB of its memory, less where little is free.

    The caller's random generators and autocast are left alone.
    """
    known = torch.cuda.get_device_properties(device)
    sheet = preset_of_card(known.name, known.total_memory)
    with torch.no_grad(), torch.autocast("cuda", enabled=False), torch.cuda.device(device):
        size, nbytes = probes(torch.cuda.mem_get_info(device)[0])
        rates = {
            str(dtype).removeprefix("torch."): _matmul_flops_per_s(size, dtype, device)
            for dtype in (torch.float32, torch.bfloat16, torch.float16)
        }
        others = {} if sheet is None else dict(sheet.flops_per_s)
        return cuda_device(
            known.name,
            known.total_memory,
            bandwidth=_copy_bytes_per_s(nbytes, device),
            flops_per_s=others | rates,
            launch_s=_launch_seconds(device),
            links=_links(min(nbytes, _LINK_BYTES), device),
            source=f"measured: {card_in_words(device)}",
        )


def probes(free_bytes: int) -> tuple[int, int]:
    """Rows of a square matrix and bytes of a copy, for a card with so many bytes free: a fourth of them at most for each.

    >>> probes(2**34)
    (4096, 268435456)
    """
    size, nbytes = _MATMUL_SIZE, _COPY_BYTES
    while size > _LEAST_SIZE and 3 * _FLOAT_BYTES * size**2 > free_bytes // 4:
        size //= 2
    while nbytes > _LEAST_BYTES and 2 * nbytes > free_bytes // 4:
        nbytes //= 2
    return size, nbytes


def device_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds between two events around some work."""
    stream = torch.cuda.current_stream(device)
    begin, end = timing_events()
    begin.record(stream)
    work()
    end.record(stream)
    return seconds_between(begin, end)


def timing_events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    """Two events that tell the time between them."""
    begin: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return begin, end


def seconds_between(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    """Seconds of the card between two events, once it has come to both."""
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _best_seconds(work: Callable[[], object], device: torch.device) -> float:
    work()
    return max(_LEAST_S, min(device_seconds(work, device) for _ in range(_REPEATS)))


def _matmul_flops_per_s(size: int, dtype: torch.dtype, device: torch.device) -> float:
    # Random numbers: the clocks of a card are higher where it multiplies zeros.
    own = torch.Generator(device).manual_seed(_SEED)
    a = torch.randn(size, size, device=device, generator=own).to(dtype)
    out = torch.empty_like(a)
    return 2.0 * size**3 / _best_seconds(lambda: torch.mm(a, a, out=out), device)


def _copy_bytes_per_s(nbytes: int, device: torch.device) -> float:
    source = torch.ones(nbytes // _FLOAT_BYTES, device=device)
    target = torch.empty_like(source)
    # Read once and written once.
    return 2.0 * nbytes / _best_seconds(lambda: target.copy_(source), device)


def _launch_seconds(device: torch.device) -> float:
    """Seconds in which the host hands over one call."""
    x = torch.ones(1, device=device)

    def call_many() -> float:
        torch.cuda.synchronize(device)
        before = time.perf_counter()
        for _ in range(_CALLS_PER_LAUNCH_PROBE):
            torch.add(x, x, out=x)
        return time.perf_counter() - before

    return min(call_many() for _ in range(_REPEATS)) / _CALLS_PER_LAUNCH_PROBE


def _links(nbytes: int, device: torch.device) -> tuple[Link, ...]:
    """Rates of copies to pinned memory of the host and back, each alone."""
    there = torch.ones(nbytes, dtype=torch.uint8, device=device)
    here = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    space = "device"
    made = []
    for ends, target, source in (
        ((space, HOST_SPACE), here, there),
        ((HOST_SPACE, space), there, here),
    ):

        def copy(part: int, target: torch.Tensor = target, source: torch.Tensor = source) -> None:
            target[:part].copy_(source[:part], non_blocking=True)

        latency_s = _best_seconds(lambda copy=copy: copy(_SMALL_BYTES), device)  # type: ignore[misc]
        whole_s = _best_seconds(lambda copy=copy: copy(nbytes), device)  # type: ignore[misc]
        made.append(Link(*ends, nbytes / max(whole_s - latency_s, whole_s / 2), latency_s))
    return tuple(made)
