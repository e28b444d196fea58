"""Parts alone: the best variant in program order; nothing is reordered or recomputed."""

from __future__ import annotations

from neaptide.planner.variants.met import VariantPlan
from neaptide_peers.combinations.asked import Combining
from neaptide_peers.combinations.transformed import best_transformed, in_program_order


def solve(made: Combining) -> VariantPlan:
    """The best variant found in program order.

    Args:
        made: what is asked.
    """
    known = (made.before.peak_with_workspace_bytes, made.before.seconds)
    best = best_transformed(made, in_program_order(made), known)
    found = made.plan_of(best, range(len(best.graph.nodes)), "program_order")
    return made.answer(best, found, best.label)
