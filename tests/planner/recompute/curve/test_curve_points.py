import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.planner.objective import PlannedSequence
from neaptide.planner.recompute.curve.curve import CurvePoint, PlanArchive, RecomputeCurve


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
