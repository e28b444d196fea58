"""What follows from an axis: which values carry it, which are terms of a sum, and which nodes need it whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from neaptide.analysis.axes.lines import Line
from neaptide.ir.axes import Along, Need


class Why(StrEnum):
    """Why a node is a barrier."""

    WHOLE = "whole"  # it needs the whole axis
    COMPLETE = "complete"  # it needs a complete sum
    NO_ROW = "no_row"  # no row says what it does along an axis


@dataclass(frozen=True, slots=True)
class Barrier:
    """A node that does not run in parts although an operand of it depends on the axis."""

    node: int
    why: Why
    reason: str


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be seen to before a node may run in parts.

    Attributes:
        values: operands that it is about: sums that must be complete, addends; none for the other needs.
    """

    node: int
    need: Need
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Carried:
    """An axis followed through a graph.

    Attributes:
        axes: by value that carries it, where. Some are made whole, by a barrier or outside, and can be cut into parts.
        sums: values of which each part makes a term. Where a node has `Need.MEAN`, only once that is seen to.
        maxima: values of which each part makes one that the greatest, or the least, is to be taken of.
        members: by node that runs in parts, how. What it makes is in `axes`, in `sums` or `maxima`, or the same in
            each part.
        conditions: what must be seen to before all members may run in parts.
        barriers: nodes that depend on the axis and do not run in parts.
        private: values that mean something within their part only: they must neither enter nor leave the nodes that run
            in parts together. Some carry the axis, such as places counted from the start of the part; others have no dim
            that it could lie in, such as what a library keeps for the backward.
        behind: values that depend on the axis and are made by barriers, or from what barriers make.
    """

    length: int
    axes: Mapping[int, Along]
    sums: frozenset[int]
    maxima: frozenset[int]
    members: Mapping[int, Line]
    conditions: tuple[Condition, ...]
    barriers: tuple[Barrier, ...]
    private: frozenset[int]
    behind: frozenset[int]
    untouched: frozenset[int]
