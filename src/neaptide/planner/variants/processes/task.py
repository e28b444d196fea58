"""The plan of one variant as a task: all that it takes as plain data, here or in another process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from neaptide.ask import OneShape, Place
from neaptide.cost.known import KnownCost
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ops.declared import declared_rows
from neaptide.planner.body_copies import Links
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.plan_graph import GraphAsk, GraphPlan
from neaptide.planner.pricing import Pricing


@dataclass(frozen=True)
class PricedTask:
    """A variant that is to be planned in another process, and what it costs.

    Attributes:
        bits_may_vary: in repetitions, as the registry of the pricing says.
        declared: operations that the user vouches for, each with whether it is deterministic.
    """

    graph: Graph
    asked: GraphAsk
    cost: KnownCost
    bits_may_vary: bool
    links: Links | None = None
    declared: tuple[tuple[str, bool], ...] = ()

    @staticmethod
    def of(graph: Graph, asked: GraphAsk, pricing: Pricing) -> PricedTask:
        """A task, priced. O(nodes)."""
        cost = KnownCost.of(pricing.cost, graph, pricing.binding)
        declared = tuple((row.name, row.deterministic) for row in declared_rows())
        asked = replace(asked, interrupt=None, leave_out=None, rewrites=(), mode=OneShape(), place=Place())
        return PricedTask(graph, asked, cost, pricing.registry.bits_may_vary, pricing.links, declared)

    def planned(self, registry: OpRegistry, interrupt: threading.Event | None = None) -> GraphPlan:
        """The plan: the same, under a limit of work, as that of the variant by the pricing that the task was made of."""
        pricing = Pricing(
            self.cost,
            registry.with_bits(may_vary=self.bits_may_vary),
            binding=self.cost.binding,
            links=self.links,
        )
        return BodyPlanner(pricing, self.asked.limits, interrupt).around(self.graph, self.asked)
