import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from families_by_speed import FAMILIES_BY_SPEED
from neaptide.errors import UsageError
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.curve.curve import CurvePoint, RecomputeCurve, recompute_curve
from neaptide.planner.recompute.curve.search import PlanArchive
from neaptide.planner.strategies import strategy
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, instance, judge, least_seconds, there_and_back
from strategies import graphs
from together import together


def check(step, curve):
    """Numbers are those of the sequences, time never falls as memory shrinks, and bounds hold."""
    before = None
    for point in curve.points:
        assert set(point.sequence) == set(range(step.node_count))
        evaluator = Evaluator(step, point.sequence)
        assert evaluator.peak == point.peak_bytes
        assert step.sequence_seconds(point.sequence) == pytest.approx(point.seconds)
        assert curve.lowest_peak_bytes <= point.peak_bytes
        assert curve.lowest_bound_bytes <= curve.lowest_peak_bytes
        if not point.is_reached:
            assert all(
                not other.is_reached for other in curve.points if other.budget_bytes < point.budget_bytes
            )
            assert point.peak_bytes == curve.lowest_peak_bytes
            continue
        assert point.bound_seconds <= point.seconds
        if before is not None:
            assert before.is_reached
            assert before.budget_bytes > point.budget_bytes
            assert before.seconds <= point.seconds
            assert before.bound_seconds <= point.bound_seconds
        before = point


@pytest.mark.parametrize("family", FAMILIES_BY_SPEED)
def test_from_the_peak_down_to_the_lowest_peak_found(family):
    step = instance(family)
    outcome = recompute_curve(step, count=4)
    curve = outcome.require()
    check(step, curve)
    first, last = curve.points[0], curve.points[-1]
    # Another order may have a lower peak in the same time.
    assert first.peak_bytes <= first.budget_bytes == curve.baseline_peak_bytes
    assert sorted(first.sequence) == list(range(step.node_count))
    assert last.peak_bytes == curve.lowest_peak_bytes
    assert all(point.is_reached for point in curve.points)
    assert last.peak_bytes < 0.8 * first.budget_bytes
    assert curve.overhead(first.seconds) == 0.0
    assert "of 4 budgets proved" in outcome.termination.detail


@together("family", ["transformer", "small_ops"])
def test_about_as_good_as_planning_each_budget_alone(family):
    step = instance(family, 90)
    curve = recompute_curve(step, count=5).require()
    for point in curve.points[1:-1]:
        alone = plan_sequence(step, point.budget_bytes, Limits(work=3000)).require()
        if alone.peak_with_workspace_bytes <= point.budget_bytes:
            assert curve.overhead(point.seconds) <= curve.overhead(alone.seconds) + 0.02


def test_budgets_of_ones_own_in_any_order_and_out_of_reach():
    step = instance("transformer")
    peak = Evaluator(step).peak
    asked = [peak // 2, peak + 5, step.lower_bound_bytes - 1, peak * 7 // 10, peak // 2]
    curve = recompute_curve(step, asked).require()
    check(step, curve)
    assert [point.budget_bytes for point in curve.points] == sorted(set(asked), reverse=True)
    assert not curve.points[-1].is_reached
    assert curve.points[-1].bound_seconds == float("inf")
    assert curve.points[0].sequence == tuple(range(step.node_count))
    within = curve.lowest_within(curve.points[1].seconds)
    assert within is not None
    assert within.peak_bytes == curve.points[1].peak_bytes
    assert curve.lowest_within(curve.baseline_seconds / 2) is None


def test_the_same_under_a_work_limit_and_better_with_more():
    step = instance("skips", 80)
    found = {}
    for work in (0, 200, 1000):
        limits = Limits(work=work, seed=3)
        one = recompute_curve(step, count=5, limits=limits)
        if work == 200:
            assert one.value == recompute_curve(step, count=5, limits=limits).value
        assert one.work <= work
        assert one.termination.reason in {TerminationReason.FEASIBLE, TerminationReason.OPTIMAL}
        check(step, one.require())
        found[work] = one.require()
    assert found[1000].lowest_peak_bytes <= found[200].lowest_peak_bytes <= found[0].lowest_peak_bytes


def test_an_interrupt_leaves_the_baseline():
    interrupt = threading.Event()
    interrupt.set()
    step = instance("transformer")
    outcome = recompute_curve(step, [Evaluator(step).peak * 3 // 4], interrupt=interrupt)
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert outcome.require().points[0].sequence == tuple(range(step.node_count))


@together("make", [transformer_step, conv_step])
def test_steps_with_updates_views_and_writes_in_place(make):
    made = make()
    step = compiled(made)
    curve = recompute_curve(step, count=4, limits=Limits(work=1500)).require()
    check(step, curve)
    assert curve.lowest_peak_bytes < curve.baseline_peak_bytes
    for point in curve.points:
        judge(made.graph, plan_of(step, point))


@settings(max_examples=examples(60), deadline=None)
@given(graphs())
def test_plans_of_random_graphs_are_legal(graph):
    step = compile_problem(graph, toy_registry())
    curve = recompute_curve(step, count=4, limits=Limits(work=2000)).require()
    check(step, curve)
    for point in curve.points:
        judge(graph, plan_of(step, point))


def plan_of(step, point):
    return PlannedSequence.evaluate(step, point.sequence, point.strategy)


@together("seed", range(4))
def test_bounds_hold_against_brute_force(seed):
    step = there_and_back(seed)
    curve = recompute_curve(step, count=4).require()
    for point in curve.points:
        least = least_seconds(step, point.budget_bytes, most=3)
        assert least is not None
        assert point.bound_seconds <= least * (1 + 1e-9)
        assert least <= point.seconds * (1 + 1e-9)


def test_wishes_that_cannot_be_met():
    step = instance("transformer")
    with pytest.raises(UsageError, match="cannot have 1 points"):
        recompute_curve(step, count=1)
    with pytest.raises(UsageError, match="needs budgets"):
        recompute_curve(step, [])


def test_plans_of_another_order_are_not_held_against_the_bound_of_this_one():
    # Running the widest branch first lowers the peak, but by too little to take that order.
    nodes = []
    for k in range(5):
        nodes.append(InstanceNode(f"wide {k}", 1004 if k == 4 else 1000, [], seconds=1.0))
        nodes.append(InstanceNode(f"narrow {k}", 10, [2 * k], seconds=1.0))
    nodes.append(InstanceNode("all", 1, [2 * k + 1 for k in range(5)], seconds=1.0, out=True))
    step = from_nodes(nodes)
    free = strategy("best_order")(PlanningProblem(step, 1050), Limits()).require()
    assert free.peak_with_workspace_bytes < Evaluator(step).peak
    curve = recompute_curve(step, [1054, 1052, 1050, 1040]).require()
    for point in curve.points:
        assert tuple(dict.fromkeys(point.sequence)) == tuple(range(step.node_count))


def plan(peak, seconds):
    return PlannedSequence((0,), "some", peak, peak, float(seconds))


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1), st.integers(0, 25))
def test_the_archive_answers_like_all_plans_together(pairs, budget):
    archive = PlanArchive()
    for peak, seconds in pairs:
        archive.note(plan(peak, seconds))
    assert archive.lowest().peak_with_workspace_bytes == min(peak for peak, _ in pairs)
    fast = [seconds for peak, seconds in pairs if peak <= budget]
    best = archive.best(budget)
    assert (best and best.seconds) == (min(fast) if fast else None)
    kept = sorted((p.peak_with_workspace_bytes, p.seconds) for p in archive.plans)
    # A front: with every step up in memory the time goes down.
    assert [seconds for _, seconds in kept] == sorted({seconds for _, seconds in kept}, reverse=True)


def test_the_lowest_peak_within_a_time_is_of_a_plan_that_is_within_its_budget():
    points = (
        CurvePoint(100, 100, 10.0, 10.0, "a", (0,)),
        CurvePoint(50, 45, 11.0, 10.5, "b", (0,)),
        CurvePoint(20, 40, 12.0, float("inf"), "c", (0,)),
    )
    curve = RecomputeCurve(points, 100, 10.0, 40, 30)
    assert [point.is_reached for point in points] == [True, True, False]
    assert curve.lowest_within(99.0) is points[1]
    assert curve.lowest_within(10.5) is points[0]
    assert curve.lowest_within(9.0) is None
    assert curve.overhead(11.0) == pytest.approx(0.1)
    assert RecomputeCurve((), 0, 0.0, 0, 0).overhead(1.0) == 0.0
