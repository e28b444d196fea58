"""Time against memory for a step whose regions may run in parts."""

from __future__ import annotations

from dataclasses import replace

from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.planner.variants.front import VariantFront, variants_front
from neaptide.planner.variants.search import VariantPlan
from neaptide.runtime.prepared_step import PreparedStep
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.searched_variant import variants_of


def searched_front(prepared: PreparedStep, options: SearchOptions, count: int) -> VariantFront:
    """Plans of the usual program in which parts are allowed, none both lower and faster than another.

    Args:
        prepared: the step.
        options: of all searches together; their budget is not looked at.
        count: of searches.

    Raises:
        UsageError: fewer than two searches.
    """
    planned = prepared.rewritten(0, options.rewrites, options.leave_out)

    def search(longest: float | None, limits: Limits) -> VariantPlan:
        wanted = replace(
            options, budget=Budget("min", latency=longest, host=options.budget.host), limits=limits
        )
        allowed = prepared.allowed(wanted, 0, None)
        return variants_of(
            planned,
            lambda changed: prepared.request(0, "steady", changed, wanted, allowed),
            wanted,
            prepared.quick_pricing,
            prepared.pricing,
            prepared.part_costs,
        )

    return variants_front(search, options.limits, count)
