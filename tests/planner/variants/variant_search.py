"""The search over variants of a graph under a limit of work, by prices that do not depend on the machine."""

from __future__ import annotations

from typing import Any

from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.graph import Graph
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.planning import VariantPrices
from neaptide.planner.variants.search import plan_variants

PRICING = Pricing(EstimatedCost(get_device("rtx3090"), registry()), registry())


def choices_of_all() -> Choices:
    """Whatever may be chosen."""
    return Choices(registry(), lambda _: None)


def searched(
    graph: Graph,
    budget: Budget,
    limits: Limits,
    *,
    prices: Pricing = PRICING,
    choices: Choices | None = None,
    asked: dict[str, Any] | None = None,
    **options: Any,
) -> VariantPlan:
    """The best variant that is found; a budget in per cent is of program order."""
    before = baseline(prices.problem(graph)).peak_with_workspace_bytes
    request = GraphAsk(
        budget, limits=limits, budget_bytes=budget.resolve(before), **{"workers": 1, **(asked or {})}
    )
    return plan_variants(
        graph,
        lambda _: request,
        VariantPrices(prices, lambda _: prices),
        choices or choices_of_all(),
        **options,
    )
