"""Where in an arena the results of a program lie, and how each step fills its places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor at a fixed place in an arena: a result of that geometry fills it exactly."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutVariant:
    """An overload that writes its results to tensors that it is given.

    Attributes:
        keywords: one for each result, in order.
        dropped: keywords of the other overload that it does not take.
        is_copy: it takes the result first and the operand second, and nothing else.
    """

    op: str
    keywords: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()
    is_copy: bool = False
    extra: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepPlaces:
    """The places of one step's results.

    Attributes:
        places: by output of the node; None for a result that stays outside of the arena.
        out: writes all results where it is told to, fresh tensors for those outside; None: the results are computed
            as ever and those with a place are copied there. The parts of a loop's results go straight to their places.
    """

    places: tuple[Place | None, ...]
    out: OutVariant | None = None


@dataclass(frozen=True, slots=True)
class ToldPlaces:
    """By output of a node whether it has a place in an arena, where each run is told the places."""

    inside: tuple[bool, ...]
    out: OutVariant | None = None


NOWHERE: Final = ToldPlaces(())
"""No result of a node has a place."""
Places: TypeAlias = Mapping[int, StepPlaces]
"""By position among the steps that run nodes; a step that is missing has no place."""
NO_PLACES: Final[Places] = MappingProxyType({})
