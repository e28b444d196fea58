from __future__ import annotations

import threading
from dataclasses import replace

import pytest

import neaptide.planner.arena_order as arena_order_module
import neaptide.planner.graphs.plan_graph as plan_graph_module
from frontends import steps
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.budget import Budget
from neaptide.cost.devices import Link
from neaptide.errors import UsageError, VerifyError
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.arena_order import PlannedArena
from neaptide.planner.atomic import atomic_step
from neaptide.planner.graphs.graph_search import STRATEGIES, GraphSearch, check_strategy
from neaptide.planner.graphs.on_operands import Operands
from neaptide.planner.graphs.plan_graph import GraphAsk, finished_plan, plan_graph
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.search import choose_offload
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from planner.given_cost import given_pricing
from support.catalogue import graph_of
from support.together import together

REGISTRY = registry()
LIMITS = Limits(work=300)
HOST = HostSpace(2**30, Link("device", "host", 1e15, 0.0), Link("host", "device", 1e15, 0.0))
"""Links that take no time: everything that is idle may wait."""


@pytest.fixture(scope="module")
def graph():
    return graph_of(steps.batch_norm)


def priced(graph):
    return given_pricing(REGISTRY, [1e-6] * len(graph.nodes))


def plan(graph, budget, **options):
    return plan_graph(graph, priced(graph), GraphAsk(budget, **{"limits": LIMITS, **options}))


def moved_arena(graph, step, pricing, sequence, *_, **__):
    """The first order that two neighbours swapped give, legal and no higher."""
    most = Evaluator(step, sequence).peak
    for k in range(1, len(sequence)):
        other = (*sequence[: k - 1], sequence[k], sequence[k - 1], *sequence[k + 1 :])
        if len({*sequence[: k + 1]}) < k + 1:
            break
        try:
            check_schedule(graph, Schedule.from_nodes(graph, other), pricing.registry)
        except VerifyError:
            continue
        if Evaluator(step, other).peak <= most:
            return PlannedArena(other, 0, 0)
    raise AssertionError("nothing can be moved")


@together("name", STRATEGIES, quick=range(0, 40, 3))
def test_every_strategy_gives_a_plan_that_is_no_worse_than_the_baseline(graph, name):
    found = plan(graph, Budget("85%"), strategy=name)
    predicted = found.program.predictions
    assert predicted.lower_bound_bytes <= predicted.peak_bytes <= predicted.baseline_peak_bytes
    assert found.schedule.node_steps()[-1].target < len(graph.nodes)
    assert found.program.fingerprint


def test_a_limit_in_bytes_overrides_the_budget_and_an_interrupted_search_gives_what_it_has(graph):
    found = plan(graph, Budget("85%"), budget_bytes=10**9).program
    assert found.budget_bytes == 10**9
    assert not found.moves.recomputations
    interrupt = threading.Event()
    interrupt.set()
    made = plan(graph, Budget("60%"), interrupt=interrupt).program.predictions
    assert made.peak_bytes <= made.baseline_peak_bytes


def test_a_limit_on_time_alone_gives_the_lowest_peak_within_it(graph):
    free = plan(graph, Budget(None, latency="+0%"))
    slower = plan(graph, Budget(None, latency="+40%"))
    for found in (free, slower):
        # What is proved is of the peak: the least time under whatever budget gave it is nothing that was asked for.
        ended = found.program.termination
        assert ended.bound <= ended.best == found.program.predictions.peak_with_workspace_bytes
        assert "within the limit on time" in ended.detail
    assert free.program.predictions.seconds <= free.program.predictions.baseline_seconds * (1 + 1e-9)
    assert slower.program.predictions.seconds <= slower.program.predictions.baseline_seconds * 1.4
    assert slower.program.predictions.peak_bytes <= free.program.predictions.peak_bytes


def test_an_atomic_plan_says_what_it_saves_and_what_that_costs(graph):
    usual, atomic = plan(graph, Budget("100%")), plan(graph, Budget("100%"), atomic=True)
    predicted = atomic.program.predictions
    assert (usual.program.saved, usual.program.predictions.saved_bytes) == ((), 0)
    assert len(atomic.program.saved) == 4
    assert predicted.saved_bytes == 96
    assert predicted.atomic_extra_bytes >= 96
    assert predicted.persistent_bytes == usual.program.predictions.persistent_bytes
    assert predicted.baseline_peak_bytes == usual.program.predictions.baseline_peak_bytes
    assert predicted.lower_bound_bytes == usual.program.predictions.lower_bound_bytes + 96


@together("name", ["default", "greedy_recompute"])
def test_an_atomic_plan_keeps_to_a_budget_or_to_a_limit_on_time_by_recomputing(graph, name):
    within = plan(graph, Budget("92%"), atomic=True, strategy=name).program
    assert within.moves.recomputations
    assert within.predictions.peak_with_workspace_bytes <= within.budget_bytes
    found = plan(graph, Budget(None, latency="+10%"), atomic=True, strategy=name)
    predicted = found.program.predictions
    assert found.program.moves.recomputations
    assert predicted.seconds <= 1.1 * predicted.baseline_seconds
    slow = plan(graph, Budget(None, latency=1e-9), atomic=True, strategy=name)
    assert slow.program.termination.reason == "infeasible"
    assert predicted.peak_with_workspace_bytes < slow.program.predictions.peak_with_workspace_bytes


def test_a_misspelt_strategy_and_one_that_cannot_be_atomic_are_refused():
    check_strategy("greedy_recompute", atomic=True)
    with pytest.raises(UsageError, match="cannot make an atomic plan"):
        check_strategy("early_updates", atomic=True)
    with pytest.raises(UsageError, match="no strategy is called 'gredy'") as caught:
        check_strategy("gredy", atomic=False)
    assert "greedy_recompute" in caught.value.next_step


def test_steps_moved_for_the_arena_get_the_bound_of_their_own_order_alone(graph, monkeypatch):
    monkeypatch.setattr(plan_graph_module, "settle_arena", moved_arena)
    found = plan(graph, Budget(None, latency="+5%")).program
    assert (found.termination.reason, found.termination.bound) == ("feasible", None)
    assert found.termination.best == found.predictions.peak_with_workspace_bytes
    asked = []

    def bound(step, budget, *, sequence, guard):
        asked.append(sequence)
        return recompute_bound(step, budget, sequence=sequence, guard=guard)

    monkeypatch.setattr(arena_order_module, "recompute_bound", bound)
    found = plan(graph, Budget("85%")).program
    assert found.moves.recomputations
    assert asked == [found.sequence]
    assert found.termination.bound <= found.termination.best == found.predictions.seconds


def test_offloads_are_planned_where_the_budget_of_the_host_has_room(graph):
    alone = plan(graph, Budget("85%")).program
    found = plan(graph, Budget("85%", host="1GiB"), host=HOST).program
    assert found.offloads
    assert found.predictions.peak_with_workspace_bytes <= alone.budget_bytes
    assert 0 < found.predictions.host_bytes <= 2**30
    assert len(found.sequence) == len(graph.nodes)
    assert found.predictions.seconds == pytest.approx(found.predictions.baseline_seconds)
    assert found.predictions.seconds <= alone.predictions.seconds
    assert found.strategy == "offload"
    assert found.termination.bound == pytest.approx(found.predictions.baseline_seconds)
    # Without room there, or with all bytes allowed, nothing is stored.
    for budget, nbytes in ((Budget("85%"), 0), (Budget("100%"), 2**30), (Budget("min"), 0)):
        found = plan(graph, budget, host=replace(HOST, nbytes=nbytes)).program
        assert (found.offloads, found.predictions.host_bytes) == ((), 0)


def test_the_search_leaves_time_to_the_choice_of_offloads(graph, monkeypatch):
    """Also where it takes all of its own."""
    searched, chosen = [], []

    def searching(*arguments):
        searched.append(arguments[4].time_s)
        return GraphSearch(*arguments)

    def choosing(problem, limits, interrupt):
        chosen.append(limits.time_s)
        return choose_offload(problem, limits, interrupt)

    monkeypatch.setattr(plan_graph_module, "GraphSearch", searching)
    monkeypatch.setattr(plan_graph_module, "choose_offload", choosing)
    limits = Limits(1000.0, 500, 0)
    plan(graph, Budget("85%"), host=HOST, limits=limits)
    plan(graph, Budget("85%"), limits=limits)
    assert searched == [500.0, 1000.0]
    assert len(chosen) == 1
    assert 500.0 < chosen[0] <= 1000.0


def test_a_peer_with_offloads_is_asked_for_by_name(graph):
    budget = Budget("85%", host="1GiB")
    found = plan(graph, budget, strategy="pofo", host=HOST).program
    assert found.strategy == "pofo"
    assert found.predictions.peak_with_workspace_bytes <= found.budget_bytes
    alone = plan(graph, Budget("85%"), strategy="pofo").program
    assert (alone.strategy, alone.offloads) == ("pofo", ())
    assert alone.predictions.peak_with_workspace_bytes > alone.budget_bytes


def test_an_atomic_step_has_everything_back_before_its_first_update(graph):
    found = plan(graph, Budget("90%"), atomic=True, host=HOST).program
    whole = atomic_step(compile_problem(graph, REGISTRY), [s.nbytes.evaluate() for s in graph.storages])
    first = found.sequence.index(whole.first_write)
    assert found.offloads
    assert all(offload.back_before <= first for offload in found.offloads)
    assert found.predictions.peak_with_workspace_bytes <= found.budget_bytes


@together("budget", [Budget("min"), Budget(latency="+5%"), Budget("min", latency="+20%")])
@together("atomic", [False, True], quick=(0,))
def test_the_lowest_peak_is_lower_with_offloads_that_take_no_time(graph, budget, atomic):
    alone = plan(graph, budget, atomic=atomic).program
    found = plan(graph, budget, atomic=atomic, host=HOST).program
    made, before = found.predictions, alone.predictions
    assert made.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
    assert made.peak_with_workspace_bytes < before.peak_with_workspace_bytes or made.seconds <= before.seconds
    longest = budget.resolve_latency(made.baseline_seconds)
    assert longest is None or made.seconds <= longest
    assert found.offloads
    assert "with offloads" in found.termination.detail
    assert found.termination.best == made.peak_with_workspace_bytes


def test_a_draft_that_is_finished_is_the_plan(graph):
    def finished(draft):
        return finished_plan(graph, priced(graph), GraphAsk(budget, limits=LIMITS), draft)

    budget = Budget(None, latency="+50%")
    draft, whole = plan(graph, budget, is_draft=True), plan(graph, budget)
    assert draft.is_draft
    assert not draft.program.fingerprint
    assert draft.program.predictions.arena_bytes == 0 < whole.program.predictions.arena_bytes
    assert draft.program.sequence == whole.program.sequence
    assert finished(draft) == whole
    assert finished(whole) is whole
    assert not plan(graph, Budget("90%"), atomic=True, is_draft=True).is_draft


def test_a_search_begins_with_known_plans(graph):
    """Given nothing to search with, it answers with the best of them that is fast enough."""
    longer, shorter = (plan(graph, Budget(None, latency=share)) for share in ("+60%", "+20%"))
    least = plan(graph, Budget(None, latency="+40%"), limits=Limits(work=1), known=(longer, shorter))
    peaks = [one.program.predictions.peak_with_workspace_bytes for one in (longer, shorter, least)]
    assert peaks[2] <= peaks[1]
    assert least.program.predictions.seconds <= 1.4 * least.program.predictions.baseline_seconds


@together("is_moved", [False, True])
def test_a_plan_that_leaves_operands_alone_is_told_as_one_of_its_graph(graph, monkeypatch, is_moved):
    if is_moved:
        monkeypatch.setattr(plan_graph_module, "settle_arena", moved_arena)
    operands = Operands.of(graph, priced, lambda _: GraphAsk(Budget("100%")), lambda _: None)
    slower = {node: (storage, 2e-6) for node, (storage, _) in operands.seconds.items()}
    found = plan(graph, Budget("100%"), operands=replace(operands, seconds=slower))
    made, ended = found.program.predictions, found.program.termination
    assert found.rewritten is None
    evaluator = Evaluator(priced(graph).problem(graph), found.program.sequence)
    assert made.peak_bytes == evaluator.peak_without_workspace
    assert ended.best == ended.bound == made.seconds
