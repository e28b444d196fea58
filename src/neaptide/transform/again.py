"""Operations that are to run again, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Again:
    """Some nodes, and the later ones that are to use what a second run of them makes.

    Attributes:
        nodes: that run again, ascending.
        users: behind them, ascending; the copies run right before the first.
    """

    nodes: tuple[int, ...]
    users: tuple[int, ...]
