"""Rows that fractions break and whole numbers obey: bytes rounded to multiples of a storage's size.

What is held across a step fits into its room. If nearly everything has the same size, as many as go into the room
whole are held at most; in fractions a part of one more is. Mixed-integer rounding says the same for any sizes and any
divisor: with the room's remainder f, the part of a coefficient above its whole multiple counts from f on, stretched
(Nemhauser and Wolsey, "A recursive procedure to generate all cuts for 0-1 mixed integer programs", 1990). Storages
that are mostly held count as what is dropped of them, which makes other rows of the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.linear.arrays import Flags, Floats
from neaptide.linear.tolerances import HALF, NEARLY
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.evaluate import Ints

# Remainders of the room this close to whole are whole: they would be stretched by rounding errors. A row must be broken by
# as many multiples of its divisor.
_LEAST_PART: Final = 1e-3
# Coefficients and room give this share away, far more than floating point errs.
_SLACK: Final = 1e-12
# Divisors that are smaller than this share of the largest storage make rows that no solver takes exactly.
_LEAST_DIVISOR: Final = 1e-6


@dataclass(frozen=True, slots=True)
class RoundedRow:
    """At one step: the sum of coefficients of what is held is at most `upper`, in whole numbers.

    Attributes:
        position: of the step.
        storages: all that are made before it.
        nbytes: coefficient of each; a multiple of the divisor stands for that many bytes.
        upper: bytes.
    """

    position: int
    storages: Ints
    nbytes: Floats
    upper: float


def rounded_rows(
    tables: StepTables, position: int, budget_bytes: int, held: Floats, most: int
) -> list[RoundedRow]:
    """The rows of a step that an answer breaks most, in proportion to their length. O(divisors x storages).

    Args:
        tables: of the program.
        position: of the step.
        budget_bytes: highest peak with workspace.
        held: by storage, share that is held across the step.
        most: rows.
    """
    storages = np.flatnonzero(tables.made_before(position))
    sizes = tables.sizes[storages].astype(np.float64)
    shares = np.clip(held[storages], 0.0, 1.0)
    room = float(budget_bytes - int(tables.fixed_bytes[tables.order[position]]))
    in_part = (shares > NEARLY) & (shares < 1.0 - NEARLY) & (sizes > 0.0)
    divisors = np.unique(np.concatenate([sizes[in_part] / part for part in SETTINGS.divisor_parts]))
    divisors = divisors[divisors >= _LEAST_DIVISOR * sizes.max(initial=0.0)]
    found: list[tuple[float, float, RoundedRow]] = []
    for is_dropped in (shares > HALF, shares >= 1.0 - NEARLY):
        for divisor in divisors.tolist():
            coefficients, upper = _rounded(sizes, room, divisor, is_dropped)
            excess = float(coefficients @ shares) - upper
            if excess > _LEAST_PART:
                row = RoundedRow(position, storages, coefficients * divisor, upper * divisor)
                found.append((excess / float(np.linalg.norm(coefficients)), divisor, row))
    found.sort(key=lambda entry: (-entry[0], entry[1]))
    return [row for _, _, row in found[:most]]


def _rounded(sizes: Floats, room: float, divisor: float, is_dropped: Flags) -> tuple[Floats, float]:
    """A row for whole shares x: coefficients and the most that their sum is; no row is zeros and zero.

    With y = 1 - x where `is_dropped`, else x, bytes say: sum of c y <= b, where c is the size, negative for what is
    dropped, and b the room less what is dropped of, both by the divisor. Then sum of F(c) y <= floor(b), where
    F(c) = floor(c) + max(frac(c) - f, 0) / (1 - f) and f = frac(b). Smaller c and larger b only weaken the bytes, so
    floating point errors are covered by some slack, and F is continuous where c passes a whole number.
    """
    signed = np.where(is_dropped, -sizes, sizes) / divisor
    signed -= _SLACK * np.maximum(np.abs(signed), 1.0)
    bound = (room - float(sizes[is_dropped].sum())) / divisor
    bound += _SLACK * max(abs(room), float(sizes.sum()), divisor) / divisor
    whole = np.floor(bound)
    remainder = bound - whole
    if not _LEAST_PART < remainder < 1.0 - _LEAST_PART:
        return np.zeros(len(sizes)), 0.0
    below = np.floor(signed)
    counted = below + np.maximum(signed - below - remainder, 0.0) / (1.0 - remainder)
    return np.where(is_dropped, -counted, counted), float(whole - counted[is_dropped].sum())
