"""Move: one legal change to a program, with what it is predicted to bring and to cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MoveKind(StrEnum):
    """What a move does."""

    REORDER = "reorder"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class Move:
    """One change.

    Attributes:
        kind: what it does.
        target: storage id of a recomputation; last node of what a reorder moves.
        name: of the target, for reports.
        nodes: node ids that run again, or that run elsewhere.
        before: the node directly before whose first execution they run; the node count for the end.
        target_bytes: bytes that are not held meanwhile.
        predicted_delta_peak_bytes: peak with the move minus peak without it, all else equal.
        predicted_delta_seconds: time with the move minus time without it.
        legality: why it is legal.
    """

    kind: MoveKind
    target: int
    name: str
    nodes: tuple[int, ...]
    before: int
    target_bytes: int
    predicted_delta_peak_bytes: int
    predicted_delta_seconds: float
    legality: str

    @property
    def is_recomputation(self) -> bool:
        return self.kind is MoveKind.RECOMPUTE
