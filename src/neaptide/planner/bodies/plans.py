"""Plans the bodies of loops by the same search as any graph, and the graph around them with what they then need."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.legality.transfers import storages_in_collectives
from neaptide.analysis.loops import Bodies
from neaptide.ask import DEFAULT_STRATEGY
from neaptide.budget import Budget
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Offload, Schedule
from neaptide.outcome import Limits
from neaptide.planner.failed_stages import Stage
from neaptide.planner.graphs.graph_search import GraphSearch
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan, plan_graph
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.outcome import before_offload, offload_after
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.offloaded import OffloadedSequence, with_offloads
from neaptide.schedule.problem import StepProblem

ORDER_ALONE: Final = Budget(None)
_MIN: Final = "min"


class BodyPlanner:
    """Plans bodies of loops; bodies that are alike are planned once."""

    def __init__(self, pricing: Pricing, limits: Limits, interrupt: threading.Event | None = None) -> None:
        self.pricing, self.limits, self.interrupt = pricing, limits, interrupt
        self._known: dict[object, Schedule] = {}

    def bodies(self, graph: Graph, budget: Budget = ORDER_ALONE) -> Bodies:
        """The best order found for one trip of each loop of a graph, by loop, repetitions included.

        A shorter last part runs in the same order: bytes are those of the largest part, seconds those of all trips.
        The budget's `peak` is of the working bytes of a body, a share of those in program order; its `latency` is of all
        trips. One that limits nothing asks for the lowest peak found by order alone.
        """
        return self._bodies(graph, self.pricing, _Asked(budget, {}))

    def around(self, graph: Graph, asked: GraphAsk) -> GraphPlan:
        """The plan of a graph with loops: its own, and those of the bodies in it.

        Bodies run in the best order found first, without repetitions. Where the graph then does not keep to its budget,
        or takes longer to keep to it, its bodies are planned a second time, for what is left where they run, on the host
        too; the better of both plans is taken. In an atomic step nothing in bodies is moved, as a copy can fail after an
        update.

        Where plans for other limits are known, the orders of bodies of the best that keeps to the budget take the place of
        the first ones.
        Plans are known for limits of time alone, without a host.
        """
        asked = replace(asked, limits=self.limits, interrupt=self.interrupt)
        loops = [node.id for node in graph.nodes if node.regions]
        if not loops:
            return plan_graph(graph, self.pricing, asked)
        if asked.known:
            return self._from_known(graph, asked)
        bodies = self.bodies(graph)
        budget = asked.budget.in_seconds(baseline(self.pricing.problem(graph, bodies)).seconds)

        def planned(bodies: Bodies) -> GraphPlan:
            return plan_graph(graph, self.pricing, replace(asked, budget=budget, bodies=bodies))

        found = planned(bodies)
        allowed, made = found.program.budget_bytes, planned_sequence(found)
        on_host = 0 if asked.host is None or asked.atomic else asked.host.nbytes
        there = OffloadPlan(made, found.offloads or found.program.offloads)
        tighter = self._tighter(graph, self.pricing, bodies, there, budget, allowed, on_host)
        if tighter == bodies:
            return found
        again = planned(tighter)
        is_better = _rank(planned_sequence(again), budget, allowed) < _rank(made, budget, allowed)
        return again if is_better else found

    def _from_known(self, graph: Graph, asked: GraphAsk) -> GraphPlan:
        """The best plan with the bodies of a known one, and with bodies for the time that is asked for."""
        assert asked.host is None
        step = self.pricing.problem(graph)
        budget = asked.budget.in_seconds(baseline(step).seconds)
        longest = budget.resolve_latency(0.0)
        orders: dict[int, list[Schedule]] = {}
        for known in asked.known:
            for loop, schedule in known.schedule.bodies.items():
                orders.setdefault(loop, []).append(schedule)
        share = _Asked(_share_of_time(budget, step), {}, known=orders)
        bodies = [self._bodies(graph, self.pricing, share)]
        start = min(asked.known, key=lambda one: _rank_within(planned_sequence(one), longest))
        if _rank_within(planned_sequence(start), longest)[0] == 0.0 and start.schedule.bodies != bodies[0]:
            bodies.append(start.schedule.bodies)
        found = [plan_graph(graph, self.pricing, replace(asked, budget=budget, bodies=one)) for one in bodies]
        return min(found, key=lambda one: _rank_within(planned_sequence(one), longest))

    def _bodies(self, graph: Graph, pricing: Pricing, asked: _Asked) -> Bodies:
        found = {}
        for node in graph.nodes:
            if node.regions:
                body, inside = node.regions[0].body, pricing.within(graph, node)
                budget, on_host = asked.of(node.id), asked.on_host.get(node.id, 0)
                key = (fingerprint(body), inside.runs(), budget, on_host)
                if key not in self._known:
                    known = asked.known.get(node.id, ())
                    self._known[key] = self._searched(body, inside, budget, on_host, known)
                found[node.id] = self._known[key]
        return found

    def _searched(
        self, body: Graph, inside: Pricing, budget: Budget, on_host: int, known: Sequence[Schedule]
    ) -> Schedule:
        """The order of a body with so many bytes on the host."""
        written = baseline(inside.problem(body))
        handed = inside.problem(body).persistent_bytes
        allowed = budget.resolve(written.peak_with_workspace_bytes - handed) + handed
        bodies = self._bodies(body, inside, _Asked(ORDER_ALONE, {}))
        timed = budget.in_seconds(baseline(inside.problem(body, bodies)).seconds)
        found = self._search(body, inside, bodies, timed, allowed, on_host, known)
        tighter = self._tighter(body, inside, bodies, found, timed, allowed, on_host)
        if tighter != bodies:
            again = self._search(body, inside, tighter, timed, allowed, on_host, known)
            if _rank(again.planned, timed, allowed) < _rank(found.planned, timed, allowed):
                found, bodies = again, tighter
        return Schedule.from_nodes(body, found.planned.sequence, bodies).with_offloads(found.offloads)

    def _search(
        self,
        body: Graph,
        inside: Pricing,
        bodies: Bodies,
        budget: Budget,
        allowed: int,
        on_host: int,
        known: Sequence[Schedule],
    ) -> OffloadPlan:
        def check(sequence: Sequence[int], offloads: Sequence[Offload] = ()) -> None:
            schedule = Schedule.from_nodes(body, sequence, bodies).with_offloads(offloads)
            check_schedule(body, schedule, inside.registry)

        host = _host_in_trips(body, inside, on_host)
        # What the loop hands to its body is part of a storage around it, and stays on the device.
        step = replace(inside.problem(body, bodies), state_bytes=())
        limits = before_offload(self.limits, host)
        before = tuple(
            PlannedSequence.evaluate(step, [one.target for one in order.node_steps()], DEFAULT_STRATEGY)
            for order in known
        )
        search = GraphSearch(
            step, None, budget, allowed, limits, DEFAULT_STRATEGY, None, check, self.interrupt, before
        )
        outcome = search.run()
        if host is not None:
            with Stage("the choice of offloads"):
                plan = offload_after(search, outcome, host, self.limits).require()
                check(plan.planned.sequence, plan.offloads)
                return plan
        return OffloadPlan(outcome.require())

    def _tighter(
        self,
        graph: Graph,
        pricing: Pricing,
        bodies: Bodies,
        plan: OffloadPlan,
        budget: Budget,
        allowed: int,
        on_host: int,
    ) -> Bodies:
        """Orders of the bodies of a graph for the room that they have; `bodies` where they need not be others."""
        if not bodies or budget.is_none:
            return bodies
        step, found = pricing.problem(graph, bodies), plan.planned
        placed = with_offloads(Evaluator(step, found.sequence), plan.offloads)
        left = {} if pricing.links is None or not on_host else _left_on_host(placed, bodies, on_host)
        if budget.is_min or budget.peak is None:
            return self._bodies(graph, pricing, _Asked(_share_of_time(budget, step), {}, left))
        rooms = _rooms(placed, bodies, allowed)
        if not rooms and found.seconds > baseline(step).seconds:
            rooms = _rooms(
                with_offloads(Evaluator(step, tuple(dict.fromkeys(found.sequence)))), bodies, allowed
            )
        if not rooms:
            return bodies
        left = {loop: nbytes for loop, nbytes in left.items() if loop in rooms}
        return self._bodies(graph, pricing, _Asked(ORDER_ALONE, rooms, left))


@dataclass(frozen=True)
class _Asked:
    """What is asked of the bodies of a graph: a budget of all, or bytes of some; and what some may have on the host.

    `known` are orders of them that were found for other limits.
    """

    budget: Budget
    rooms: Mapping[int, int]
    on_host: Mapping[int, int] = field(default_factory=dict)
    known: Mapping[int, Sequence[Schedule]] = field(default_factory=dict)

    def of(self, loop: int) -> Budget:
        return Budget(max(self.rooms[loop], 1)) if loop in self.rooms else self.budget


def _rooms(placed: OffloadedSequence, loops: Iterable[int], allowed: int) -> dict[int, int]:
    """By loop that runs above a limit in a sequence, the bytes that its body may take within it."""
    evaluator, rooms = placed.evaluator, {}
    for loop in loops:
        most = max(int(placed.bytes[evaluator.places[e]]) for e in evaluator.executions[loop])
        if most > allowed:
            rooms[loop] = allowed - (most - evaluator.problem.workspace[loop])
    return rooms


def _left_on_host(placed: OffloadedSequence, loops: Iterable[int], nbytes: int) -> dict[int, int]:
    """By loop, the bytes on the host that its body may take beside what waits there around it."""
    evaluator, away = placed.evaluator, placed.host_bytes
    inside = evaluator.problem.body_host_bytes
    left = {}
    for loop in loops:
        most = max(int(away[evaluator.places[e]]) for e in evaluator.executions[loop])
        left[loop] = max(nbytes - (most - inside[loop]), 0)
    return left


def _host_in_trips(body: Graph, inside: Pricing, nbytes: int) -> HostSpace | None:
    """The host as a body sees it, whose seconds are of all trips: each copy is made in every trip."""
    if not nbytes or inside.links is None:
        return None
    count = sum(runs for runs, _ in inside.runs())
    out, back = (
        replace(
            link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / count, latency_s=link.latency_s * count
        )
        for link in inside.links
    )
    return HostSpace(nbytes, out, back, frozenset(storages_in_collectives(body)))


def _share_of_time(budget: Budget, step: StepProblem) -> Budget:
    """The lowest peak of a body at the share of more time that the graph around it may take."""
    seconds, before = budget.resolve_latency(1.0), baseline(step).seconds
    if seconds is None or not before:
        return Budget(_MIN)
    return Budget(None, latency=f"+{max(100 * (seconds / before - 1), 0):.6f}%")


def _rank(made: PlannedSequence, budget: Budget, allowed: int) -> tuple[float, ...]:
    """Lower is better: the peak where the lowest is asked for, else as strategies rank."""
    if budget.is_min or budget.peak is None:
        return made.peak_with_workspace_bytes, made.seconds
    return made.rank(allowed)


def _rank_within(made: PlannedSequence, longest: float | None) -> tuple[float, ...]:
    """Lower is better: the seconds beyond a limit, the peak, the seconds."""
    above = 0.0 if longest is None else max(made.seconds - longest, 0.0)
    return above, made.peak_with_workspace_bytes, made.seconds


def planned_sequence(plan: GraphPlan) -> PlannedSequence:
    """The sequence of a plan, with what is predicted of it."""
    program, made = plan.program, plan.program.predictions
    peaks = made.peak_bytes, made.peak_with_workspace_bytes
    return PlannedSequence(program.sequence, program.strategy, *peaks, made.seconds)
