"""Charts as data: axes, lines and boxes. One writer of SVG and one of PNG draw every picture of a report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

_MOST_TICKS: Final = 8
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FACTORS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_MOST_MARKS: Final = 7  # labels stand apart on a picture of usual width
_PARTS: Final = 4

Mark: TypeAlias = tuple[float, str]
"""A value on an axis and its label."""


class Colour(StrEnum):
    """The palette of Okabe and Ito, whose colours stay apart for every common kind of colour vision."""

    BLUE = "#0072B2"
    ORANGE = "#E69F00"
    GREEN = "#009E73"
    VERMILION = "#D55E00"
    PURPLE = "#CC79A7"
    SKY = "#56B4E9"
    YELLOW = "#F0E442"
    GREY = "#666666"
    SHADE = "#DDDDDD"
    BLACK = "#000000"


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear axis from `first`, at the left or the bottom, to another value `last`."""

    first: float
    last: float
    label: str = ""
    marks: tuple[Mark, ...] = ()

    def share(self, value: float) -> float:
        """How far along the axis a value is, from 0 to 1."""
        return (value - self.first) / (self.last - self.first)


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points (x, y), at least one, or with steps at them."""

    points: tuple[tuple[float, float], ...]
    colour: str
    is_dashed: bool = False
    is_stepped: bool = False  # each height holds up to the next point
    tips: tuple[str, ...] = ()  # a tooltip for each point, which is drawn as a dot; or none
    end: str = ""  # text beside the last point


@dataclass(frozen=True, slots=True)
class Box:
    """A bar or a band: from `left` to `right` and from `low` to `high`. One with a tooltip has a dark rim."""

    left: float
    right: float
    low: float
    high: float
    colour: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """Boxes, and lines over them, between two axes; `share` is its part of the height of a chart."""

    x: Axis
    y: Axis
    boxes: tuple[Box, ...] = ()
    lines: tuple[Line, ...] = ()
    share: int = 1


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of the legend."""

    label: str
    colour: str
    form: Literal["box", "line", "dashes"] = "line"


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture, in pixels. Its title, at the top left, is what a reader of the screen is told first; then its summary."""

    title: str
    summary: str
    plots: tuple[Plot, ...]  # from top to bottom, over one another's x axis
    keys: tuple[Key, ...]  # the legend
    width: int = 1000
    height: int = 600
    left: int = 95  # margins; this one for the labels of the y axes
    right: int = 30


def byte_marks(most_bytes: int) -> tuple[Mark, ...]:
    """Round numbers of one unit from 0 up to `most_bytes`.

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


def count_marks(first: int, last: int) -> tuple[Mark, ...]:
    """Round whole numbers in a range, and its ends.

    >>> [value for value, _ in count_marks(16, 4096)]
    [16, 1000, 2000, 3000, 4096]
    """
    step = 1
    while (last - first) // step >= _MOST_TICKS:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    inner = range((first // step + 1) * step, last, step)
    kept = (value for value in inner if min(value - first, last - value) * 2 >= step)
    return tuple((value, str(value)) for value in (first, *kept, last))


def even_values(first: float, last: float) -> tuple[float, ...]:
    """Both ends and what divides the range between them into equal parts."""
    return tuple(first + (last - first) * part / _PARTS for part in range(_PARTS + 1))
