"""Time of an operator on a device, from its arithmetic and its traffic alone.

The roofline (Williams, Waterman and Patterson, CACM 2009): a kernel runs at the arithmetic rate or at the
memory bandwidth, whichever takes longer. Small kernels reach neither. MAGIS (ASPLOS 2024) measured how
splitting an operator loses time to kernels that no longer fill the machine, so both terms are divided by a
utilisation `u(work) = 1 / (1 + (half_work / work) ** fall)`, where `half_work` is the work that keeps half of the
machine busy. Without it, cutting an operator into ever smaller parts would look free.
"""

from __future__ import annotations

from neaptide.cost.devices import Device


def seconds(device: Device, *, flops: float, bytes_moved: float, dtype: str) -> float:
    """Seconds of one call. Grows with `flops` and with `bytes_moved`, and depends on nothing but its arguments.

    Args:
        flops: floating-point operations (a multiply-add counts two).
        bytes_moved: bytes read plus bytes written in the main memory space.
        dtype: as in `Device.flops_per_s`; selects the arithmetic rate.
    """
    rate = device.rate_flops_per_s(dtype)
    half_flops = device.half_flops * (rate / device.rate_flops_per_s("float32"))
    bandwidth = device.main_space.bandwidth_bytes_per_s
    arithmetic_s = seconds_at(flops, rate, half_flops, device.fall)
    memory_s = seconds_at(bytes_moved, bandwidth, device.half_bytes, device.fall)
    return device.launch_s + max(arithmetic_s, memory_s)


def seconds_at(work: float, rate: float, half_work: float, fall: float) -> float:
    """`work / (rate * utilisation(work))`, in the form that is monotone in floats too; 0 for no work."""
    if work <= 0:
        return 0.0
    # Work that the machine could have done meanwhile, at its full rate.
    lost = half_work if fall == 1.0 else half_work**fall * work ** (1.0 - fall)
    return (work + lost) / rate
