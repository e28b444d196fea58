"""Marks of an axis of bytes: at round numbers of one unit."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FACTORS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_MOST_MARKS: Final = 7  # labels stand apart on a picture of usual width


def byte_marks(most_bytes: int) -> tuple[tuple[int, str], ...]:
    """Places from 0 up to `most_bytes`, and what stands at them.

    >>> byte_marks(450 << 20)[-1]
    (419430400, '400 MiB')
    """
    for exponent, unit in enumerate(_UNITS):
        for factor in _FACTORS:
            step = factor << (10 * exponent)
            if most_bytes < step * _MOST_MARKS:
                count = most_bytes // step + 1
                return tuple((i * step, f"{i * factor} {unit}" if i else "0") for i in range(count))
    return ((0, "0"),)
