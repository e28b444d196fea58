"""One round of the outer search: what may follow from one variant, and what is planned of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from neaptide.planner.variants.choices import Choice
from neaptide.planner.variants.estimate import Estimate
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.variant import Variant


@dataclass(frozen=True, slots=True)
class Round:
    """How far the search looks at what may follow from one variant.

    Attributes:
        choices: of which one variant is planned.
        planned: variants in all.
        begun: share of the time that must be left for one more.
        plans_one: one is planned in any case.
    """

    choices: int
    planned: int
    begun: float
    plans_one: bool = False

    @staticmethod
    def first() -> Round:
        """Behind what all variants begin with."""
        return replace(_usual(0), plans_one=True)

    @staticmethod
    def late() -> Round:
        """Of the whole step, where the time is short: another variant then promises more than a longer search for one."""
        return replace(Round.later(), begun=Round.behind().begun, plans_one=True)

    @staticmethod
    def later() -> Round:
        """Behind a choice."""
        return _usual(1)

    @staticmethod
    def behind() -> Round:
        """Behind the beginning that promises less."""
        return _usual(2)


def _usual(number: int) -> Round:
    return Round(SETTINGS.choices[number], SETTINGS.planned[number], SETTINGS.begun[number])


@dataclass(frozen=True, slots=True)
class Picked:
    """A variant that is to be planned.

    Attributes:
        choice: that it takes.
        begins: what a further choice would follow from.
        variant: that with what is done last.
    """

    choice: Choice
    begins: Variant
    variant: Variant


@dataclass(slots=True)
class Looking:
    """What is known of a round so far.

    Attributes:
        looked: estimates that were not taken up yet.
        price: of recomputation, with what was priced exactly.
        planned: choices, in the order in which they were.
        best: of these, where one is better than what was known before.
    """

    looked: list[Estimate]
    price: Price
    planned: list[Choice] = field(default_factory=list)
    best: Choice | None = None

    def among(self, most: int) -> tuple[Sequence[Estimate], bool]:
        """Among which to choose, and whether none of them is of a choice that was planned.

        Each choice once, up to some, as far as it promises something; then the best in other numbers of parts.
        """
        fresh = [seen for seen in self.looked if not any(seen.choice is choice for choice in self.planned)]
        again = [seen for seen in self.looked if seen.choice is self.best]
        is_fresh = bool(fresh) and (len(self.planned) < most or not again)
        return (fresh, True) if is_fresh else (again, False)

    def drop(self, choice: Choice) -> None:
        """Look at a choice no more."""
        self.looked = [seen for seen in self.looked if seen.choice is not choice]
