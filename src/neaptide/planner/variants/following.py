"""What was decided for one graph, decided again for another one that is much like it, as the first step of a training is."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.planner.variants.choices import Choice, Choices, ladder
from neaptide.planner.variants.joins import without_joins
from neaptide.planner.variants.variant import Decision, Variant


def followed(begun: Variant, decisions: Sequence[Decision], choices: Choices) -> Variant:
    """A variant after as many decisions, in their order, as are found again in its graph; the others are left out.

    Costs what it takes to find the choices after each of them.

    Args:
        begun: what they follow from.
        decisions: that were made for another graph.
        choices: of the graph.
    """
    variant = begun
    for decision in decisions:
        if decision.names is not None:
            variant = without_joins(variant, choices, decision.names)
            continue
        found = _again(choices.after(variant), decision)
        variant = (choices.taken(*found) if found else None) or variant
    return variant


def _again(choices: Sequence[Choice], decision: Decision) -> tuple[Choice, int] | None:
    """The choice, and the number of parts, that a decision describes; of several the one of about as many bytes."""
    meant = [
        (choice, parts)
        for choice in choices
        for parts in ladder(choice.length)
        if choice.described(parts) == decision.label
    ]
    return min(meant, key=lambda one: abs(one[0].nbytes - decision.nbytes), default=None)
