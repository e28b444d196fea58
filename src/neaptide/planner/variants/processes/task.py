"""The plan of one variant as a task: all that it takes as plain data, here or in another process."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from neaptide.cost.known import KnownCost
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ops.declared import declared_rows
from neaptide.outcome import Limits
from neaptide.planner.body_copies import Links
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.plan_graph import GraphPlan, PlanRequest
from neaptide.planner.pricing import Pricing


@dataclass(frozen=True)
class PlanTask:
    """A variant that is to be planned.

    Attributes:
        graph: of the variant.
        asked: what for.
        limits: of each search.
    """

    graph: Graph
    asked: PlanRequest
    limits: Limits

    def planned(self, pricing: Pricing, interrupt: threading.Event | None = None) -> GraphPlan:
        """The plan, with those of the bodies of its loops.

        Args:
            pricing: of the graph.
            interrupt: set it to get the best so far.
        """
        return BodyPlanner(pricing, self.limits, interrupt).around(self.graph, self.asked)


@dataclass(frozen=True)
class PricedTask:
    """A task with what its graph costs.

    Attributes:
        task: what is to be planned.
        cost: of its graph.
        bits_may_vary: in repetitions, as the registry of the pricing says.
        links: of copies in the bodies of loops, as of the pricing.
        declared: operations that the user vouches for, each with whether it is deterministic.
    """

    task: PlanTask
    cost: KnownCost
    bits_may_vary: bool
    links: Links | None = None
    declared: tuple[tuple[str, bool], ...] = ()

    @staticmethod
    def of(task: PlanTask, pricing: Pricing) -> PricedTask:
        """A task, priced. O(nodes)."""
        cost = KnownCost.of(pricing.cost, task.graph, pricing.binding)
        declared = tuple((row.name, row.deterministic) for row in declared_rows())
        return PricedTask(task, cost, pricing.registry.bits_may_vary, pricing.links, declared)

    def planned(self, registry: OpRegistry, interrupt: threading.Event | None = None) -> GraphPlan:
        """The plan: the same, under a limit of work, as that of the task by the pricing that it was made of."""
        pricing = Pricing(
            self.cost,
            registry.with_bits(may_vary=self.bits_may_vary),
            binding=dict(self.cost.sizes),
            links=self.links,
        )
        return self.task.planned(pricing, interrupt)
