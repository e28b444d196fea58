"""Changes of a node sequence, as the evaluator makes them and takes them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Insert:
    """Repeat some nodes directly before the first execution of `before` (the node count stands for the end).

    They are sorted by id into what is repeated there already.
    """

    nodes: tuple[int, ...]
    before: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Take back repetitions of some nodes from directly before the first execution of `before`."""

    nodes: tuple[int, ...]
    before: int


@dataclass(frozen=True, slots=True)
class Move:
    """Run first executions of some nodes, in this order, directly before the first execution of `before`.

    Neither may have repetitions in front of it.
    """

    nodes: tuple[int, ...]
    before: int


Change: TypeAlias = Insert | Remove | Move
