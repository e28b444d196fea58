"""The last look at a plan that keeps the bits: results on top of operands, in the sequence that was found.

The search plans the graph as it is. There every node may run again, and no order is forbidden because one operation
overwrites what another reads. Behind it, results go on top of operands that nobody needs any more in that very sequence.
What recomputation costs to keep to a budget is less where results take no bytes of their own, so a plan that recomputes is
compared with one of the graph in which all results are on top of operands.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.outcome import Limits, Outcome
from neaptide.planner.graph_search import GraphSearch
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.moved_plan import carried_over
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.carried_over import placed_again, stays_after
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.plan_graph import GraphAsk, GraphPlan, plan_of_outcome
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Objection
from neaptide.planner.variants.goal import Goal
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.staying import evaluated_with_stays
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from neaptide.transform.rules import RULES

IN_PLACE: Final = "in_place"
"""The rule that keeps the bits and costs nothing."""

# Of a limit of work, what is kept back for the second search, as half of the time is for stays. On `zoo:unet@tiny` with 10,000
# units and +10 % of the time, the peak is .620 of the baseline with a half or a quarter, and .633 with a tenth. Within 60 % of
# the peak, the time is 1.120 with a half and 1.128 with a quarter (`neaptide plan --work-limit`).
_KEPT_BACK: Final = 0.5


@dataclass(frozen=True, slots=True)
class OnOperands:
    """A plan with results on top of operands.

    Attributes:
        edited: what the rewrite makes of the graph.
        rewrite: where.
        found: the plan of that graph.
    """

    edited: Edited
    rewrite: Rewrite
    found: GraphPlan


def before_operands(graph: Graph, registry: OpRegistry, limits: Limits) -> Limits:
    """What a search gets of some limits where `on_operands` gets what it leaves. O(size of the graph).

    Half of the work is kept back, where any result can go on top of an operand. No time is: a search that takes all of
    it has no second one behind it.

    Args:
        graph: what is planned.
        registry: what its operations mean.
        limits: of both searches together.
    """
    if limits.work is None or _found_everywhere(graph, registry) is None:
        return limits
    return replace(limits, work=limits.work - int(_KEPT_BACK * limits.work))


def on_operands(
    graph: Graph,
    found: GraphPlan,
    goal: Goal,
    asked: Callable[[Edited], GraphAsk],
    pricing: Callable[[Graph], Pricing],
    objection: Objection,
    *,
    search_again: bool = True,
) -> OnOperands | None:
    """A better plan with results on top of operands; None where there is none.

    In the sequence that was found the peak must fall and the time may not rise. Where storages wait on the host it is
    enough that the time falls: they are placed anew in the room that there is then. Where the sequence repeats operations,
    waits for copies or is above its budget, or has time left to do so, the graph with all results on top of operands is
    searched as well. O(size of the graph + length of the sequence), and what placement, layout and search take.

    Args:
        graph: what was planned.
        found: its plan.
        goal: what better means.
        asked: what is asked of a graph that follows from it, with the limits of its layout and of the search.
        pricing: prices any graph; it may run operations to learn what they take.
        objection: why a changed graph is not wanted; None where it is.
        search_again: whether that graph may be searched; else only the sequence that was found is looked at.
    """
    every = _everywhere(graph, pricing(graph).registry)
    if every is None:
        return None
    search = _OnOperands(graph, found, goal, asked, pricing, objection)
    made = [search.in_sequence(*every)]
    before = found.program.predictions
    is_over = before.peak_with_workspace_bytes > goal.allowed
    takes_longer = len(found.program.sequence) > len(graph.nodes) or before.exposed_seconds > 0
    # A search that repeated nothing may have been too short to find what is worth the time that there is.
    has_time = goal.longest is not None and before.seconds < goal.longest
    if search_again and (is_over or takes_longer or has_time):
        made.append(search.searched(*every))
    better = [one for one in made if one is not None and search.is_better(one.found)]
    return min(better, key=lambda one: goal.rank_of(one.found.program), default=None)


@dataclass(frozen=True)
class _OnOperands:
    """The arguments of `on_operands`."""

    graph: Graph
    found: GraphPlan
    goal: Goal
    asked: Callable[[Edited], GraphAsk]
    pricing: Callable[[Graph], Pricing]
    objection: Objection

    def is_better(self, made: GraphPlan) -> bool:
        return self.goal.rank_of(made.program) < self.goal.rank_of(self.found.program)

    def in_sequence(self, edited: Edited, rewrite: Rewrite) -> OnOperands | None:
        """The sequence that was found, where it gets lower or faster."""
        sequence, before = self.found.program.sequence, self.found.program.predictions
        uses = _Uses(self.graph, sequence)
        kept = tuple(
            node for node in rewrite.nodes if uses.ends_with(_overwritten(self.graph, edited, node), node)
        )
        if not kept:
            return None
        if kept != rewrite.nodes:
            rewrite = replace(rewrite, nodes=kept)
            edited = apply_rewrite(self.graph, self.pricing(self.graph).registry, rewrite, RULES)
        if self.objection(edited) is not None:
            return None
        request = replace(self.asked(edited), bodies=self.found.schedule.bodies)
        pricing = self.pricing(edited.graph)
        step = pricing.problem(edited.graph, request.bodies)
        stored = self._staying(step, edited, request.host)
        there = stored.planned
        most = max(self.goal.allowed, baseline(step).peak_with_workspace_bytes)
        is_lower = there.peak_with_workspace_bytes < before.peak_with_workspace_bytes
        is_faster = bool(self.found.program.stays) and there.seconds < before.seconds
        is_better = is_faster or (is_lower and there.seconds <= before.seconds)
        if not is_better or there.peak_with_workspace_bytes > most:
            return None

        def outcome(search: GraphSearch) -> Outcome[PlannedSequence]:
            ended = self.found.program.termination
            return carried_over(search, ended, there, has_stays=bool(stored.stays))

        plan = plan_of_outcome(edited.graph, pricing, request, outcome, stored=stored)
        return OnOperands(edited, rewrite, plan)

    def _staying(self, step: StepProblem, edited: Edited, host: HostSpace | None) -> OffloadPlan:
        """The sequence that was found, after the change, with what still has to wait on the host."""
        program, goal = self.found.program, self.goal
        if not program.stays:
            return OffloadPlan(PlannedSequence.evaluate(step, program.sequence, program.strategy))
        assert host is not None
        stays = stays_after(self.graph, edited, program.stays)
        peak = evaluated_with_stays(step, program.sequence, stays).peak
        # Room is of use where time is asked for.
        is_timed = goal.longest is None and peak <= goal.allowed
        budget = goal.allowed if is_timed else peak
        return placed_again(step, program.sequence, stays, host, budget, program.strategy)

    def searched(self, edited: Edited, rewrite: Rewrite) -> OnOperands | None:
        """The graph with all results on top of operands, searched as any graph; None without time or work, or where it may not be."""
        request = self.asked(edited)
        is_cut = request.interrupt is not None and request.interrupt.is_set()
        is_spent = request.limits.time_s == 0.0 or request.limits.work == 0
        if is_cut or is_spent or self.objection(edited) is not None:
            return None
        planner = BodyPlanner(self.pricing(edited.graph), request.limits, request.interrupt)
        longest = self.goal.longest
        if longest is not None and math.isfinite(longest):
            request = replace(request, budget=replace(request.budget, latency=longest))
        return OnOperands(edited, rewrite, planner.around(edited.graph, request))


def _everywhere(graph: Graph, registry: OpRegistry) -> tuple[Edited, Rewrite] | None:
    """All results on top of operands that program order permits; None for none."""
    found = _found_everywhere(graph, registry)
    return None if found is None else (apply_rewrite(graph, registry, found, RULES), found)


def _found_everywhere(graph: Graph, registry: OpRegistry) -> Rewrite | None:
    return next((one for one in RULES[IN_PLACE].find(graph, registry) if isinstance(one, Rewrite)), None)


def _overwritten(graph: Graph, edited: Edited, node: int) -> int:
    """The storage of the graph whose bytes a node overwrites after the change; the nodes keep their ids."""
    after = edited.graph
    written = after.values[after.nodes[node].outputs[0]].storage
    operand = next(value for value in after.nodes[node].inputs if after.values[value].storage == written)
    storage = graph.values[edited.value_of[operand]].storage
    assert storage is not None
    return storage


class _Uses:
    """Where a sequence makes and reads storages. O(size of the graph + its length)."""

    def __init__(self, graph: Graph, sequence: Sequence[int]) -> None:
        self.runs = Counter(sequence)
        self.makers: dict[int, set[int]] = {}
        self.last: dict[int, int] = {}  # the node that reads a storage last
        for node in graph.nodes:
            for value in node.outputs:
                storage = graph.values[value].storage
                if storage is not None:
                    self.makers.setdefault(storage, set()).add(node.id)
        reads = [
            {s for value in needed_inputs(graph, node) if (s := graph.values[value].storage) is not None}
            for node in graph.nodes
        ]
        for number in sequence:
            self.last.update(dict.fromkeys(reads[number], number))

    def ends_with(self, storage: int, node: int) -> bool:
        """Whether a storage is made once, and a node that runs once is the last that reads it."""
        once = all(self.runs[one] == 1 for one in (*self.makers.get(storage, ()), node))
        return once and self.last[storage] == node
