"""What a search over sequences of passes is asked about, whatever the states are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

S = TypeVar("S")

Facts = tuple[float, ...]
"""What a prediction of one pass on one state needs, in the order of `features.NAMES`."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What measuring a state tells.

    Attributes:
        nbytes: footprint by the best order.
        facts: by name, the passes that find a place in the state.
        counts: how many inputs, outputs and operations it has.
    """

    nbytes: int
    facts: Mapping[str, Facts]
    counts: tuple[int, ...] = ()


class Space(Protocol[S]):
    """States, and the passes between them. Equal states have equal keys, and the same question has the same answer."""

    @property
    def start(self) -> S: ...

    def after(self, state: S, name: str) -> S | None:
        """The state after a pass; None where the pass changes nothing."""

    def key(self, state: S) -> str: ...

    def measure(self, state: S) -> Measurement:
        """The expensive question: one measurement."""
