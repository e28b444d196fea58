"""The best variant by a measure that plans nothing: one choice after the other, each the best of those that promise most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.estimate import Estimate, estimates
from neaptide.planner.variants.merges import merged
from neaptide.planner.variants.variant import Variant
from neaptide.plans import TriedVariant
from neaptide_peers.combinations.asked import Combining

_LOOKED_AT: Final = 8  # variants a round
_ROUNDS: Final = 3

Numbers = tuple[int, float]
"""Peak with workspace, and seconds."""
Checker = Callable[[Variant], Numbers | None]
"""The numbers of a variant; None where it cannot be."""


def in_program_order(made: Combining) -> Checker:
    """The numbers of variants whose nodes run in program order."""

    def check(variant: Variant) -> Numbers:
        found = baseline(made.exact(variant.graph).problem(variant.graph))
        return found.peak_with_workspace_bytes, found.seconds

    return check


def best_transformed(made: Combining, check: Checker, known: Numbers) -> Variant:
    """The best variant that is found; the graph as it is where none is better.

    Ranked by estimates, a few variants a round are made and checked; from the best the next round goes on.

    Args:
        made: what is asked; it is told what was tried.
        check: says what a variant comes to.
        known: what there is without variants.
    """
    choices = Choices(made.quick.registry, made.objection)
    guard = LimitGuard(made.limits, made.interrupt)
    begins = choices.begun(made.graph)
    best, numbers = Variant.captured(made.graph), known
    for _ in range(_ROUNDS):
        found: Variant | None = None
        seen = estimates(begins, choices.after(begins), made.quick, made.costs)
        before = baseline(made.quick.problem(begins.graph)).seconds
        seen.sort(key=lambda estimate: _promised(made, estimate, before))
        for estimate in seen[:_LOOKED_AT]:
            if guard.check_now() is not None:
                return best
            variant = choices.taken(estimate.choice, estimate.parts)
            if variant is None:
                continue
            finished = merged(variant, choices)
            checked = check(finished)
            if checked is None:
                continue
            made.tried.append(TriedVariant(finished.label, *checked))
            if made.goal.rank(*checked) < made.goal.rank(*numbers):
                best, numbers, found = finished, checked, variant
        if found is None:
            break
        begins = found
    return best


def _promised(made: Combining, estimate: Estimate, before: float) -> tuple[float, ...]:
    seconds = before + estimate.seconds + estimate.added_seconds
    return made.goal.rank(int(estimate.peak_bytes), seconds)
