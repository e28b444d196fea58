"""The answer of a search over variants."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.planner.objective import PlannedSequence
from neaptide.planner.plan_graph import GraphPlan
from neaptide.planner.variants.choices import Choice
from neaptide.planner.variants.variant import Variant
from neaptide.plans import TriedVariant


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """The plan that was found, and what was done to the graph before.

    Attributes:
        label: what was done, in words.
        found: of the graph after the rewrites.
        variant: what was done; nothing where the graph as it is was best.
        before: the graph as it is, in program order.
        tried: all variants that were planned, in that order.
        begun: what the search went out from; None where the graph as it is was all that is needed.
        choices: what may follow from that.
        begins: what a further choice would follow from: `variant` without what is done last; None where there is none.
    """

    label: str
    found: GraphPlan
    variant: Variant
    before: PlannedSequence
    tried: tuple[TriedVariant, ...] = ()
    begun: Variant | None = None
    choices: tuple[Choice, ...] = ()
    begins: Variant | None = None
