"""Numbers as they stand in a cell or a sentence, where `-` is one that was not taken, and sentences of several reports."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from neaptide.cost.presets import PRESETS
from neaptide.units import format_bytes, format_seconds

NOTHING: Final = "-"
# Less than this would be printed as 0.0 %.
_LEAST_SHARE: Final = 0.0005
_PACKAGES: Final = "/site-packages/"


def byte_cell(nbytes: int | None) -> str:
    """Bytes with two decimals from MiB up."""
    return NOTHING if nbytes is None else format_bytes(nbytes)


def size_argument(nbytes: int, *, at_least: bool) -> str:
    """A size as it can be typed, such as `223.61MiB`: two decimals, rounded up, so that what needs it fits, or down."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            hundredths = -(-nbytes * 100 // scale) if at_least else nbytes * 100 // scale
            whole, rest = divmod(hundredths, 100)
            return f"{whole}.{rest:02d}".rstrip("0").rstrip(".") + unit
    return str(nbytes)


def seconds_cell(seconds: float | None) -> str:
    """A span of time."""
    return NOTHING if seconds is None else format_seconds(seconds)


def ratio_cell(value: float | None, reference: float | None) -> str:
    """How many times the reference a value is."""
    if value is None or not reference:
        return NOTHING
    return f"{value / reference:.2f}x"


def difference_cell(difference: float | None) -> str:
    """The largest absolute difference; `0` is exact equality."""
    if difference is None:
        return NOTHING
    if difference == 0:
        return "0"
    return f"{difference:.1e}" if math.isfinite(difference) else str(difference)


def yes_no_cell(answer: bool | None) -> str:
    """A question that may not have been asked."""
    return NOTHING if answer is None else "yes" if answer else "no"


def count_cell(count: int, nbytes: int | None = None) -> str:
    """A count, with the bytes it stands for."""
    if count == 0:
        return "0"
    return f"{count}" if nbytes is None else f"{count} ({format_bytes(nbytes)})"


def counted(count: int, noun: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def percent(part: float, whole: float) -> str:
    """A share in whole per cent, or in tenths when it is small."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if 0 < share < 1 else f"{share:.0f} %"


def shares(by_kind: Mapping[str, int]) -> str:
    """`41 % activation, 29 % optimizer state`, largest first."""
    total = sum(by_kind.values())
    least = total * _LEAST_SHARE
    largest_first = sorted(by_kind.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{percent(nbytes, total)} {kind.replace('_', ' ')}"
        for kind, nbytes in largest_first
        if nbytes > least
    )


def place(location: str) -> str:
    """A `file:line` as short as it can be found again: from the current folder, or from the package it is in."""
    _, inside, rest = location.rpartition(_PACKAGES)
    if inside:
        return rest
    return location.removeprefix(str(Path.cwd()) + os.sep)


def bullets(title: str, lines: Iterable[str]) -> str:
    """A titled list; empty when it has no lines."""
    items = [f"  - {line}" for line in lines]
    return "\n".join([f"{title}:", *items]) if items else ""


def origin(versions: Mapping[str, str], seed: int) -> str:
    """Versions and seed: what somebody needs to get the same numbers."""
    return (
        ", ".join([*(f"{name} {version}" for name, version in sorted(versions.items())), f"seed {seed}"])
        + "."
    )


def bounds_line(any_plan: int, order_alone: int, *, is_rewritten: bool) -> str:
    """How low plans can go: of the graph that is planned, and no other."""
    of = " of the rewritten graph" if is_rewritten else ""
    return f"Lower bound: {format_bytes(any_plan)} for any plan{of}, {format_bytes(order_alone)} for order alone."


def no_lower(
    peak: int, bound: int, otherwise: str, *, budget_bytes: int | None = None, is_within: bool = False
) -> str:
    """Why a peak is no lower: the bound is reached, the budget met, or shown to be out of reach; else as it is told."""
    if peak <= bound:
        return "Why not lower: the lower bound is reached."
    if is_within:
        otherwise = (
            "the budget is met, and the search was for time from there on; "
            f"no plan goes below {format_bytes(bound)}, {percent(bound, peak)} of this one's peak."
        )
    elif budget_bytes is not None and bound > budget_bytes:
        otherwise = (
            f"proved, no plan of these moves goes below {format_bytes(bound)}, which is above the budget."
        )
    return f"Why not lower: {otherwise}"


_NOT_COUNTED: Final = {
    "cpu": (
        "what the process holds outside the step: the interpreter, libraries, data loaders",
        "fragmentation and rounding of the allocator",
        "scratch that oneDNN and BLAS take from the system past PyTorch's allocator",
    ),
    "cuda": (
        "the CUDA context and loaded kernels; what a preset keeps back for them is off its usable bytes",
        "workspaces of cuDNN and cuBLAS",
        "rounding and fragmentation of the caching allocator",
    ),
}


def not_counted(kind: str) -> tuple[str, ...]:
    """What no number for a kind of device contains."""
    return _NOT_COUNTED.get(kind, _NOT_COUNTED["cuda"])


def predicted_only(device: str, captured_on: str) -> str:
    """The warning that a step was captured with other kernels than it will run with; empty when it was not, or is not known.

    `device` is the name of a preset, or anything else for the machine that the step was captured on.
    """
    preset = PRESETS.get(device)
    if preset is None or not captured_on or preset.kind == captured_on:
        return ""
    shown = captured_on.upper() if captured_on in ("cpu", "cuda") else captured_on
    attention = " (attention takes the CPU path)" if captured_on == "cpu" else ""
    return f"Predicted only: captured with {shown} kernels{attention}; {device} may run others."
