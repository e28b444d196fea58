"""What a layout search hands back: offsets, the arena, a bound, and what kind of proof there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from neaptide.layout.problem import LayoutProblem


class Certificate(StrEnum):
    """What is known about an arena.

    `MEETS_BOUND`: it equals a lower bound. `EXHAUSTED`: an exact search has refuted every smaller arena. `BOUND`:
    there is a lower bound and a gap to it. `REFUTED`: no layout fits the capacity that was asked for.
    `NOT_PROVED`: none was found, and none is excluded.
    """

    MEETS_BOUND = "optimal: meets bound"
    EXHAUSTED = "optimal: smaller arenas refuted"
    BOUND = "bound"
    REFUTED = "infeasible: capacity refuted"
    NOT_PROVED = "not proved"

    @property
    def is_optimal(self) -> bool:
        return self in {Certificate.MEETS_BOUND, Certificate.EXHAUSTED}


@dataclass(frozen=True, slots=True)
class Layout:
    """An offset for each buffer of a problem.

    Attributes:
        offsets: by buffer, in bytes from the base of the arena.
        arena_bytes: one past the highest byte in use; 0 without buffers.
    """

    offsets: tuple[int, ...]
    arena_bytes: int

    @staticmethod
    def of(problem: LayoutProblem, offsets: tuple[int, ...]) -> Layout:
        """The layout with these offsets. O(n)."""
        tops = (offset + buffer.nbytes for offset, buffer in zip(offsets, problem.buffers, strict=True))
        return Layout(offsets, max(tops, default=0))


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What one method reached.

    Attributes:
        arena_bytes: of its layout; None when it found none within its limits.
        nodes: of its search tree; 0 for placement rules.
    """

    arena_bytes: int | None
    seconds: float
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class LayoutResult:
    """A layout with its proof.

    Attributes:
        layout: None when none was found within the capacity.
        live_bytes: most bytes live at one step, each size as given.
        lower_bound_bytes: no layout has a smaller arena.
        methods: what each method reached, in the order in which they ran; times are not part of equality.
    """

    layout: Layout | None
    live_bytes: int
    lower_bound_bytes: int
    capacity_bytes: int | None
    certificate: Certificate
    nodes: int
    seconds: float = field(compare=False)
    methods: Mapping[str, MethodResult] = field(compare=False)

    @property
    def arena_bytes(self) -> int | None:
        return None if self.layout is None else self.layout.arena_bytes

    @property
    def gap(self) -> float | None:
        """Distance of the arena from the bound, as a fraction of the arena; None without a layout."""
        if self.layout is None:
            return None
        arena = self.layout.arena_bytes
        return (arena - self.lower_bound_bytes) / arena if arena else 0.0
