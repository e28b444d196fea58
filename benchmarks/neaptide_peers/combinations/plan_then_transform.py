"""The schedule first: the best one of the graph as it is, and then parts where it allows them, all else left in its place."""

from __future__ import annotations

from neaptide.planner.bodies.plans import BodyPlanner
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.variant import Variant
from neaptide_peers.candidates.check import check_candidate
from neaptide_peers.candidates.standing import Standing
from neaptide_peers.combinations.asked import Combining
from neaptide_peers.combinations.transformed import Numbers, best_transformed


def solve(made: Combining) -> VariantPlan:
    """The best variant in the sequence of the plan of the graph as it is; that plan where none is better.

    A variant in which that sequence is not legal, as where something is repeated that lies in a loop now, is none.

    Args:
        made: what is asked; the search for the schedule has all of the limits.
    """
    plain = Variant.captured(made.graph)
    pricing = made.exact(made.graph)
    asked = made.within(made.asked(plain.edited))
    found = BodyPlanner(pricing, made.limits, made.interrupt).around(made.graph, asked)
    standing = Standing(made.graph, pricing, found.program.sequence)

    def check(variant: Variant) -> Numbers | None:
        made.exact(variant.graph)
        candidate = check_candidate(standing, variant.edited)
        return None if candidate.refusal else (candidate.peak_with_workspace_bytes, candidate.seconds)

    planned = found.program.predictions
    best = best_transformed(made, check, (planned.peak_with_workspace_bytes, planned.seconds))
    if not best.rewrites:
        return made.answer(plain, found, "as it is")
    sequence = check_candidate(standing, best.edited).sequence()
    return made.answer(best, made.plan_of(best, sequence, found.program.strategy), best.label)
