"""What is to run where sums may be taken in another order: the variant of a program that the outer search chooses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from neaptide.ask import Ask
from neaptide.ir.edits.edit import Edited
from neaptide.named_peers import COMBINATIONS, MAGIS, peer
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan
from neaptide.planner.variants import MICRO_BATCH
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.looked_at import parts_record
from neaptide.planner.variants.met import MetPlans, VariantPlan
from neaptide.planner.variants.planning import Request, VariantPrices
from neaptide.planner.variants.search import plan_alike, plan_variants
from neaptide.planner.variants.variant import Variant
from neaptide.runtime.steps.planned_graph import PlannedGraph
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from neaptide.units import format_bytes, format_seconds

logger = logging.getLogger(__name__)


def searched_variant(
    planned: PlannedGraph,
    asked: Callable[[PlannedGraph], GraphAsk],
    ask: Ask,
    prices: VariantPrices,
    choices: Choices,
    like: PlannedGraph | None,
    met: MetPlans | None,
    keeping_bits: Callable[[GraphAsk], tuple[PlannedGraph, GraphPlan]],
) -> tuple[PlannedGraph, GraphPlan]:
    """A program after the rewrites that the search over variants chose, in program order, and the plan of it.

    Args:
        ask: of the search; `micro_batch` looks at whole steps alone, and combinations and `magis` are peers.
        like: another program of the step, which was searched for: what was decided there is done here.
        keeping_bits: the search that keeps the bits, told what is asked of the program.
    """

    def request(edited: Edited) -> GraphAsk:
        return asked(planned.rewritten(edited, ()))

    def floor(wanted: GraphAsk) -> tuple[Variant, GraphPlan]:
        changed, plan = keeping_bits(wanted)
        rewrites = changed.rewrites[len(planned.rewrites) :]
        return Variant((), rewrites, replay(planned.graph, prices.quick.registry, rewrites, RULES)), plan

    if ask.strategy in (*COMBINATIONS, MAGIS):
        made = _of_peer(planned, request, ask, prices)
    elif like is not None:
        made = plan_alike(
            planned.graph,
            request,
            prices,
            choices,
            like.decisions,
            floor,
            merging=ask.strategy != MICRO_BATCH,
        )
    else:
        is_micro_batch = ask.strategy == MICRO_BATCH
        made = plan_variants(
            planned.graph,
            request,
            prices,
            choices,
            only=(lambda choice: choice.is_whole_step) if is_micro_batch else lambda _: True,
            merging=not is_micro_batch,
            met=met,
            floor=floor,
        )
    for tried in made.tried:
        peak, seconds = format_bytes(tried.peak_bytes), format_seconds(tried.seconds)
        logger.info("%s: %s in %s", tried.label, peak, seconds)
    found = made.found
    if made.begun is not None:
        record = parts_record(made, made.begun, prices.quick, choices)
        found = replace(found, program=replace(found.program, parts=record))
    return as_variant(planned, made.variant), found


def as_variant(planned: PlannedGraph, variant: Variant) -> PlannedGraph:
    """A program after the rewrites of a variant of it, in program order."""
    if not variant.rewrites:
        return planned
    rewritten = planned.rewritten(variant.edited, variant.rewrites)
    return replace(rewritten, decisions=variant.decisions)


def _of_peer(planned: PlannedGraph, asked: Request, ask: Ask, prices: VariantPrices) -> VariantPlan:
    """What another strategy finds, which searches for each program anew."""
    combining = peer("combinations", "asked").Combining(
        planned.graph,
        asked,
        ask.limits,
        prices.quick,
        prices.exact,
        planned.objection,
        prices.costs,
        ask.interrupt,
    )
    solver = peer("magis", "strategy") if ask.strategy == MAGIS else peer("combinations", ask.strategy)
    made: VariantPlan = solver.solve(combining)
    return made
