"""What parts would bring a plan that keeps the bits: one variant, priced in program order, for one line of the report."""

from __future__ import annotations

from neaptide.ir.graph import Graph
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices, Objection
from neaptide.planner.variants.estimate import ON_A_CPU, PartCosts, estimates
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.settings import SETTINGS
from neaptide.plans import PlannedProgram, TriedVariant


def closer_variant(
    graph: Graph,
    pricing: Pricing,
    made: PlannedProgram,
    goal: Goal,
    objection: Objection,
    costs: PartCosts = ON_A_CPU,
) -> TriedVariant | None:
    """A variant that clearly beats a plan before anything is recomputed or moved in it; None if none is found at once.

    Clearly better is a tenth of the peak at no more time, or a tenth of the time within the same bytes. The answer is
    priced exactly as program order is; what a search over variants would make of it is no worse. Costs what it takes to
    find the regions, and a graph for each variant that is priced.

    Args:
        graph: as captured.
        pricing: of any graph, at once.
        made: the plan that keeps the bits.
        goal: what was asked for.
        objection: why a changed graph is not wanted; None where it is.
        costs: of parts, to rank variants by.
    """
    plain = made.predictions
    peak, seconds = plain.peak_with_workspace_bytes, plain.seconds
    step = pricing.problem(graph)
    before = baseline(step)
    price = Price.of_bytes(
        before.seconds,
        before.peak_with_workspace_bytes,
        longer=seconds - before.seconds,
        peak=peak,
        resident_bytes=step.resident_bytes,
    )
    choices = Choices(pricing.registry, objection)
    begun = choices.begun(graph)
    looked = estimates(begun, choices.after(begun), pricing, costs)
    for estimate in sorted(looked, key=lambda seen: price.rank(seen, goal))[: SETTINGS.priced]:
        variant = choices.taken(estimate.choice, estimate.parts)
        if variant is None:
            continue
        found = baseline(pricing.problem(variant.graph))
        lower = found.peak_with_workspace_bytes <= SETTINGS.clearly * peak and found.seconds <= seconds
        faster = found.seconds <= SETTINGS.clearly * seconds and found.peak_with_workspace_bytes <= peak
        if lower or faster:
            return TriedVariant(variant.label, found.peak_with_workspace_bytes, found.seconds)
    return None
