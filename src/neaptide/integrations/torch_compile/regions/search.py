"""Which regions of a joint graph run in parts, where sums may be taken in another order.

A region of the forward with its backward crosses the border. So the backward of a scalar loss runs before it as far as such a
region needs: the shortest suffix of the forward, or else all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx

from neaptide.ask import CLOSE, Ask
from neaptide.budget import Budget
from neaptide.cost.measured import MeasuredCost
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph, read_joint
from neaptide.integrations.torch_compile.joint.rows import rows
from neaptide.integrations.torch_compile.regions.parts import rewritten
from neaptide.integrations.torch_compile.regions.tangent import (
    closed,
    dependents,
    factored,
    is_linear,
    scalar_tangent,
)
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.planning import VariantPrices
from neaptide.planner.variants.search import plan_variants


@dataclass(frozen=True)
class Wanted:
    """What is asked of a plan: the budget, the bytes that it allows, and seconds for the search."""

    budget: Budget
    allowed: int
    seconds: float


def plans_in_parts(
    joint: JointGraph, cost: MeasuredCost, pricing: Pricing, wanted: Wanted
) -> Iterator[tuple[JointGraph, GraphPlan, str]]:
    """Plans of a joint graph with regions in parts, and what these are in words; each is searched for when it is asked for.

    Those that change less of it come first. Its sizes are numbers.
    """
    for moved in _with_early_backward(joint):
        yield _planned(moved, cost, pricing, wanted)


def _planned(
    joint: JointGraph, cost: MeasuredCost, pricing: Pricing, wanted: Wanted
) -> tuple[JointGraph, GraphPlan, str]:
    def asked(_edited: Edited) -> GraphAsk:
        ask = Ask(wanted.budget, limits=Limits(wanted.seconds), numerics=CLOSE)
        return GraphAsk.of(ask, budget_bytes=wanted.allowed)

    def exact(graph: Graph) -> Pricing:
        cost.prepare(graph)
        return pricing

    choices = Choices(rows(), lambda _edited: None)
    made = plan_variants(joint.graph, asked, VariantPrices(pricing, exact), choices)
    schedule = made.found.schedule
    return rewritten(joint, made.variant.edited, schedule.bodies), made.found, made.variant.label


def _with_early_backward(joint: JointGraph) -> Iterator[JointGraph]:
    """The joint graph as it is, or with more and more of its backward before the border where its tangent is a factor."""
    tangent = scalar_tangent(joint.sides)
    depending = {} if tangent is None else dependents(tangent)
    if tangent is None or not depending:
        yield joint
        return
    whole = read_joint(*factored(joint.module, joint.sides, depending))
    seen: set[int] = {0}
    for early in (_shortest_suffix(whole, depending), [*depending]):
        if len(early) not in seen and all(is_linear(node, {tangent, *depending}) for node in early):
            seen.add(len(early))
            is_whole = len(early) == len(depending)
            yield whole if is_whole else read_joint(*factored(joint.module, joint.sides, early))
    if len(seen) == 1:
        yield joint


def _shortest_suffix(whole: JointGraph, depending: dict[fx.Node, None]) -> list[fx.Node]:
    """Of what depends on the tangent, what the shortest region of forward and backward needs; empty where there is none."""
    by_name = {node.name: node for node in depending}
    choices = Choices(rows(), lambda _edited: None)
    found: list[list[fx.Node]] = []
    for choice in choices.after(choices.begun(whole.graph)):
        if choice.within or any(region.kind != "suffix" for region in choice.regions):
            continue
        olds = (choice.begun.edited.node_of[n] for region in choice.regions for n in region.members)
        names = {whole.node_of[old].name for old in olds if old >= 0}
        back = [by_name[name] for name in names if name in by_name]
        if back and len(back) < len(names):
            found.append(closed(back, depending))
    return min(found, key=len, default=[])
