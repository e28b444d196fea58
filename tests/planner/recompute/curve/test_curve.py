import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.errors import UsageError
from neaptide.outcome import Limits
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.curve.curve import CurvePoint, RecomputeCurve, recompute_curve
from neaptide.planner.recompute.curve.search import PlanArchive
from neaptide.planner.strategies import strategy
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.recompute_forms import FAMILIES
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner.planner_problems import check_sequence, compiled, instance, least_seconds, there_and_back
from support.drawn import examples, graphs
from support.together import together

LIMITS = Limits(work=600)


def curve_of(step, budgets=None, *, count=4, limits=LIMITS):
    """A curve whose numbers are those of its sequences, whose time never falls as memory shrinks, and whose bounds hold."""
    curve = recompute_curve(step, budgets, count=count, limits=limits).require()
    before = None
    for point in curve.points:
        assert set(point.sequence) == set(range(step.node_count))
        assert Evaluator(step, point.sequence).peak == point.peak_bytes
        assert step.sequence_seconds(point.sequence) == pytest.approx(point.seconds)
        assert curve.lowest_bound_bytes <= curve.lowest_peak_bytes <= point.peak_bytes
        if not point.is_reached:
            lower = [other for other in curve.points if other.budget_bytes < point.budget_bytes]
            assert not any(other.is_reached for other in lower)
            assert point.peak_bytes == curve.lowest_peak_bytes
            continue
        assert point.bound_seconds <= point.seconds
        if before is not None:
            assert before.is_reached
            assert before.budget_bytes > point.budget_bytes
            assert before.seconds <= point.seconds
            assert before.bound_seconds <= point.bound_seconds
        before = point
    return curve


@together("family", FAMILIES, quick=("transformer",))
def test_from_the_peak_down_to_the_lowest_peak_found(family):
    step = instance(family, 30)
    curve = curve_of(step)
    first, last = curve.points[0], curve.points[-1]
    # Another order may have a lower peak in the same time.
    assert first.peak_bytes <= first.budget_bytes == curve.baseline_peak_bytes
    assert sorted(first.sequence) == list(range(step.node_count))
    assert last.peak_bytes == curve.lowest_peak_bytes < 0.9 * first.budget_bytes
    assert all(point.is_reached for point in curve.points)
    assert curve.overhead(first.seconds) == 0.0


@pytest.mark.slow
@together("family", FAMILIES)
def test_about_as_good_as_planning_each_budget_alone(family):
    step = instance(family, 90)
    curve = recompute_curve(step, count=5).require()
    for point in curve.points[1:-1]:
        alone = plan_sequence(step, point.budget_bytes, Limits(work=3000)).require()
        if alone.peak_with_workspace_bytes <= point.budget_bytes:
            assert curve.overhead(point.seconds) <= curve.overhead(alone.seconds) + 0.02


def test_budgets_of_ones_own_in_any_order_and_out_of_reach():
    step = instance("transformer", 40)
    peak = Evaluator(step).peak
    asked = [peak // 2, peak + 5, step.lower_bound_bytes - 1, peak * 7 // 10, peak // 2]
    curve = curve_of(step, asked)
    assert [point.budget_bytes for point in curve.points] == sorted(set(asked), reverse=True)
    assert not curve.points[-1].is_reached
    assert curve.points[-1].bound_seconds == float("inf")
    assert curve.points[0].sequence == tuple(range(step.node_count))
    for budgets, count, message in ((None, 1, "cannot have 1 points"), ([], 2, "needs budgets")):
        with pytest.raises(UsageError, match=message):
            recompute_curve(step, budgets, count=count)


def checked(graph, step, limits):
    curve = curve_of(step, limits=limits)
    for point in curve.points:
        check_sequence(graph, PlannedSequence.evaluate(step, point.sequence, point.strategy))
    return curve


@together("made", [transformer_step(layers=2), conv_step(blocks=2)], ids=["transformer", "conv"])
def test_steps_with_updates_views_and_writes_in_place(made):
    curve = checked(made.graph, compiled(made), LIMITS)
    assert curve.lowest_peak_bytes < curve.baseline_peak_bytes


@settings(max_examples=examples(60), deadline=None)
@given(graphs())
def test_plans_of_random_graphs_are_legal(graph):
    checked(graph, compile_problem(graph, toy_registry()), LIMITS)


@together("seed", range(4), quick=(1,))
def test_bounds_hold_against_brute_force(seed):
    step = there_and_back(seed)
    for point in recompute_curve(step, count=4).require().points:
        least = least_seconds(step, point.budget_bytes, most=3)
        assert least is not None
        assert point.bound_seconds <= least * (1 + 1e-9)
        assert least <= point.seconds * (1 + 1e-9)


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


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1), st.integers(0, 25))
def test_the_archive_answers_like_all_plans_together(pairs, budget):
    archive = PlanArchive()
    for peak, seconds in pairs:
        archive.note(PlannedSequence((0,), "some", peak, peak, float(seconds)))
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
    assert [curve.lowest_within(limit) for limit in (99.0, 10.5, 9.0)] == [points[1], points[0], None]
    assert curve.overhead(11.0) == pytest.approx(0.1)
    assert RecomputeCurve((), 0, 0.0, 0, 0).overhead(1.0) == 0.0
