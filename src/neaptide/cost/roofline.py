"""Time of an operator on a device, from its arithmetic and its traffic alone.

The roofline (Williams, Waterman and Patterson, CACM 2009): a kernel runs at the arithmetic rate or at the
memory bandwidth, whichever takes longer. Small kernels reach neither. MAGIS (ASPLOS 2024) measured how
splitting an operator loses time to kernels that no longer fill the machine, so both terms are divided by a
utilisation `u(work) = 1 / (1 + (half_work / work) ** fall)`, where `half_work` is the work that keeps half of the
machine busy. Without it, cutting an operator into ever smaller parts would look free.
"""

from __future__ import annotations

import math

from neaptide.cost.devices import Device
from neaptide.errors import UsageError


def utilisation(work: float, half_work: float, fall: float = 1.0) -> float:
    """Share of the peak rate that a call with this much work reaches: 0 for none, towards 1 for much."""
    return work / (work + _lost(work, half_work, fall)) if work > 0 else 0.0


def seconds(device: Device, *, flops: float, bytes_moved: float, dtype: str, launches: int = 1) -> float:
    """Seconds for work that is spread evenly over `launches` operator calls.

    Grows with `flops`, with `bytes_moved` and with `launches`. Pure: depends on nothing but its arguments.

    Args:
        flops: floating-point operations of all calls together (a multiply-add counts two).
        bytes_moved: bytes read plus bytes written in the main memory space by all calls together.
        launches: number of operator calls; zero for views, which run nothing.
    """
    if not (math.isfinite(flops) and math.isfinite(bytes_moved)) or flops < 0 or bytes_moved < 0:
        raise UsageError(
            f"an operator cannot do {flops!r} flops and move {bytes_moved!r} bytes",
            why="work is finite and not negative",
            next_step="correct the cost row of the operator",
        )
    if launches < 0 or (launches == 0 and (flops > 0 or bytes_moved > 0)):
        raise UsageError(
            f"{launches} operator calls cannot do work",
            why="work needs at least one call",
            next_step="pass launches=1, or zero work",
        )
    arithmetic_s = memory_s = 0.0
    if flops > 0:
        rate = device.rate_flops_per_s(dtype)
        half_flops = device.half_flops * (rate / device.rate_flops_per_s("float32"))
        arithmetic_s = _seconds_at(flops, rate, half_flops, device.fall, launches)
    if bytes_moved > 0:
        bandwidth = device.main_space.bandwidth_bytes_per_s
        memory_s = _seconds_at(bytes_moved, bandwidth, device.half_bytes, device.fall, launches)
    return launches * device.launch_s + max(arithmetic_s, memory_s)


def _seconds_at(work: float, rate: float, half_work: float, fall: float, launches: int) -> float:
    """`work / (rate * utilisation(work / launches, half_work, fall))`, in the form that is monotone in floats too."""
    return (work + launches * _lost(work / launches, half_work, fall)) / rate


def _lost(work: float, half_work: float, fall: float) -> float:
    """Work that a machine could have done meanwhile, at its full rate, while a call with this much work runs."""
    return half_work if fall == 1.0 else half_work**fall * work ** (1.0 - fall)
