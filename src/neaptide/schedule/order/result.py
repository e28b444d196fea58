"""What an ordering search returns: the order, its peak, a bound, and what kind of proof there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from neaptide.schedule.order.regions.parts import SolvedPart


class Certificate(StrEnum):
    """What is known about a peak.

    `MEETS_BOUND`: it equals a lower bound that holds for every order. `EXHAUSTED`: an exact search has shown that no
    order is below it. `BOUND`: there is a lower bound, and a gap to it.
    """

    MEETS_BOUND = "optimal: meets bound"
    EXHAUSTED = "optimal: search exhausted below"
    BOUND = "bound"

    @property
    def is_optimal(self) -> bool:
        return self is not Certificate.BOUND


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What one method reached: the peak of its order, if any, states looked at, and what it says besides."""

    peak_bytes: int | None
    seconds: float
    states: int = 0
    note: str = ""


class FoundOrder(NamedTuple):
    """What a peer finds. `note` is one sentence for the user, without its full stop; it may be empty."""

    order: tuple[int, ...] | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class OrderResult:
    """An order with its proof.

    Attributes:
        order_lower_bound_bytes: no order of these ops has a lower peak.
        methods: what each method reached, in the order in which they ran; times are not part of equality.
        parts: what exact reductions have solved on their own; an outer part comes after those inside it.
    """

    order: tuple[int, ...]
    peak_bytes: int
    order_lower_bound_bytes: int
    certificate: Certificate
    states: int
    seconds: float = field(compare=False)
    methods: Mapping[str, MethodResult] = field(compare=False)
    parts: tuple[SolvedPart, ...] = ()

    @property
    def gap(self) -> float:
        """Distance of the peak from the bound, as a fraction of the peak."""
        if self.peak_bytes == self.order_lower_bound_bytes:
            return 0.0
        return (self.peak_bytes - self.order_lower_bound_bytes) / self.peak_bytes
