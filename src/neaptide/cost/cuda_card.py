"""The card of a CUDA step as a `Device`: what the driver says of it, what a short calibration shows, and a data sheet for the rest.

Times are those between events of the device. The best of several repetitions is taken: other programs can only make one slower.
The whole takes about a second and runs once per card and version.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

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
    tf32 = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    parts = [
        f"{known.name}, {known.total_memory} bytes",
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
        f"TF32 in convolutions {tf32[0]}, in products {tf32[1]}",
    ]
    if torch.backends.cudnn.benchmark:
        parts.append("convolutions tried out")
    return ", ".join(parts)


def measure(device: torch.device) -> Device:
    """Measures a card. Takes about a second, and up to 0.6 GiB of its memory."""
    known = torch.cuda.get_device_properties(device)
    sheet = preset_of_card(known.name, known.total_memory)
    with torch.no_grad(), torch.cuda.device(device):
        rates = {
            str(dtype).removeprefix("torch."): _matmul_flops_per_s(dtype, device)
            for dtype in (torch.float32, torch.bfloat16, torch.float16)
        }
        others = {} if sheet is None else dict(sheet.flops_per_s)
        return cuda_device(
            known.name,
            known.total_memory,
            bandwidth=_copy_bytes_per_s(device),
            flops_per_s=others | rates,
            launch_s=_launch_seconds(device),
            links=_links(device),
            source=f"measured: {card_in_words(device)}",
        )


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


def _matmul_flops_per_s(dtype: torch.dtype, device: torch.device) -> float:
    # Random numbers: the clocks of a card are higher where it multiplies zeros.
    a = torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, device=device).to(dtype)
    out = torch.empty_like(a)
    return 2.0 * _MATMUL_SIZE**3 / _best_seconds(lambda: torch.mm(a, a, out=out), device)


def _copy_bytes_per_s(device: torch.device) -> float:
    source = torch.ones(_COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    # Read once and written once.
    return 2.0 * _COPY_BYTES / _best_seconds(lambda: target.copy_(source), device)


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


def _links(device: torch.device) -> tuple[Link, ...]:
    """Rates of copies to pinned memory of the host and back, each alone."""
    there = torch.ones(_LINK_BYTES, dtype=torch.uint8, device=device)
    here = torch.empty(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    space = "device"
    made = []
    for ends, target, source in (
        ((space, HOST_SPACE), here, there),
        ((HOST_SPACE, space), there, here),
    ):

        def copy(nbytes: int, target: torch.Tensor = target, source: torch.Tensor = source) -> None:
            target[:nbytes].copy_(source[:nbytes], non_blocking=True)

        latency_s = _best_seconds(lambda copy=copy: copy(_SMALL_BYTES), device)  # type: ignore[misc]
        whole_s = _best_seconds(lambda copy=copy: copy(_LINK_BYTES), device)  # type: ignore[misc]
        made.append(Link(*ends, _LINK_BYTES / max(whole_s - latency_s, whole_s / 2), latency_s))
    return tuple(made)
