"""Parts first: the variant that is best in program order, and then the best schedule of it, bodies and all."""

from __future__ import annotations

from neaptide.planner.bodies.plans import BodyPlanner
from neaptide.planner.variants.met import VariantPlan
from neaptide_peers.combinations.asked import Combining
from neaptide_peers.combinations.transformed import best_transformed, in_program_order


def solve(made: Combining) -> VariantPlan:
    """The plan of the variant that is best without one.

    Args:
        made: what is asked; the search for the schedule has all of the limits.
    """
    known = (made.before.peak_with_workspace_bytes, made.before.seconds)
    best = best_transformed(made, in_program_order(made), known)
    asked = made.within(made.asked(best.edited))
    found = BodyPlanner(made.exact(best.graph), made.limits, made.interrupt).around(best.graph, asked)
    return made.answer(best, found, best.label)
