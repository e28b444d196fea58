"""What a combination is asked, and the plan that it answers with."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from neaptide.analysis.loops import NO_BODIES, Bodies
from neaptide.ir.edits.edit import Edited
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.loops.orders import body_orders
from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.check_plan import check_program
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan, GraphPlanning
from neaptide.planner.graphs.record import planned_program
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Objection
from neaptide.planner.variants.estimate import ON_A_CPU, PartCosts
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.planning import PricingOf, Request
from neaptide.planner.variants.price import Goal
from neaptide.planner.variants.variant import Variant
from neaptide.plans import TriedVariant


@dataclass
class Combining:
    """A graph, and what is asked of a plan of it.

    Attributes:
        graph: as captured.
        asked: what for, of each variant; `budget_bytes` must be given.
        limits: of each search for a schedule.
        quick: prices any graph at once.
        exact: what prices a graph that is looked at; it may run operations.
        objection: why a changed graph is not wanted; None where it is.
        costs: of parts, to rank variants by.
        interrupt: set it to get the best so far.
        tried: variants that were looked at.
    """

    graph: Graph
    asked: Request
    limits: Limits
    quick: Pricing
    exact: PricingOf
    objection: Objection
    costs: PartCosts = ON_A_CPU
    interrupt: threading.Event | None = None
    tried: list[TriedVariant] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = baseline(self.exact(self.graph).problem(self.graph))
        first = self.asked(Edited.unchanged(self.graph))
        assert first.budget_bytes is not None
        self.goal = Goal.of(first.budget, first.budget_bytes, self.before.seconds)

    def within(self, asked: GraphAsk) -> GraphAsk:
        """What is asked of a variant, with a limit of time in seconds of the graph as it is."""
        if self.goal.longest is None or self.goal.longest == float("inf"):
            return asked
        return replace(asked, budget=replace(asked.budget, latency=self.goal.longest))

    def answer(self, variant: Variant, found: GraphPlan, label: str) -> VariantPlan:
        """A plan as that of a search over variants."""
        return VariantPlan(label, found, variant, self.before, tuple(self.tried))

    def plan_of(
        self, variant: Variant, sequence: Sequence[int], name: str, bodies: Bodies = NO_BODIES
    ) -> GraphPlan:
        """The plan that runs a variant in a sequence, checked. O(size).

        Args:
            variant: what is run.
            sequence: node ids of its graph.
            name: of what found it.
            bodies: orders of the bodies of its loops; program order for those without one.

        Raises:
            PlanError: the sequence does not stand before the checker.
        """
        graph, asked = variant.graph, self.asked(variant.edited)
        pricing = self.exact(graph)
        step = pricing.problem(graph, bodies).named(asked.names)
        found = PlannedSequence.evaluate(step, sequence, name)
        ended = Termination(TerminationReason.FEASIBLE, best=found.peak_with_workspace_bytes)
        budget_bytes = asked.budget_bytes
        assert budget_bytes is not None
        program = planned_program(
            graph,
            step,
            Outcome(found, ended),
            budget_bytes=found.peak_with_workspace_bytes if asked.budget.is_min else budget_bytes,
            role=asked.role,
            assumed=pricing.prices(graph).assumed,
            bodies=body_orders(bodies),
        )
        program = replace(program, fingerprint=fingerprint(graph))
        schedule = check_program(program, graph, step, pricing.registry, binding=pricing.binding)
        return GraphPlan(program, schedule)

    def plan_with_offloads(self, variant: Variant, stored: OffloadPlan, bodies: Bodies) -> GraphPlan:
        """The same with offloads.

        Args:
            variant: what is run.
            stored: the sequence and its offloads.
            bodies: orders of the bodies of its loops; program order for those without one.

        Raises:
            PlanError: the plan does not stand before the checker.
            VerifyError: it is above the budget, and above its graph in program order.
        """
        asked = replace(self.asked(variant.edited), bodies=bodies, limits=self.limits)
        ended = Termination(TerminationReason.FEASIBLE, best=stored.planned.peak_with_workspace_bytes)
        outcome = Outcome(stored.planned, ended)
        planning = GraphPlanning(variant.graph, self.exact(variant.graph), asked)
        planning.check(stored.planned.sequence)
        return planning.ended(outcome, stored if stored.offloads else None)
