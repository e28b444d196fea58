"""Plans of which none beats another, from searches that each have their part of the limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.outcome import Limits
from neaptide.planner.variants.front import undominated, variants_front
from neaptide.plans import TriedVariant
from neaptide.policy.prepared_step import PreparedStep
from neaptide.policy.searched_front import searched_front
from neaptide.runtime.steps.capturing import capture
from wide_rows import rows_step

PLANS = st.builds(TriedVariant, st.just("x"), st.integers(0, 20), st.integers(0, 20).map(float))


@given(st.lists(PLANS, max_size=30))
def test_what_is_left_is_what_nothing_beats(plans):
    front = undominated(plans)
    for plan in plans:
        assert any(p.peak_bytes <= plan.peak_bytes and p.seconds <= plan.seconds for p in front)
    for one in front:
        others = [p for p in front if p is not one]
        assert not any(p.peak_bytes <= one.peak_bytes and p.seconds <= one.seconds for p in others)
    assert [p.seconds for p in front] == sorted(p.seconds for p in front)


def test_one_search_is_no_front():
    with pytest.raises(UsageError, match="a front cannot have 1 points"):
        variants_front(lambda _longest, _limits: None, Limits(), 1)


def test_a_step_over_rows_has_a_front_from_program_order_to_parts():
    step, batch = rows_step()
    prepared = PreparedStep(capture(step, (batch,)), device="rtx3090")
    options = Ask(Budget("min"), limits=Limits(None, 3000, 0), numerics="close")
    front = searched_front(prepared, options, 3)
    peaks = [point.peak_bytes for point in front.points]
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[0] <= front.baseline_peak_bytes
    assert front.points[0].seconds <= front.baseline_seconds
    assert peaks[-1] < 0.7 * front.baseline_peak_bytes
    assert "parts" in front.points[-1].label


@pytest.mark.slow
def test_the_front_is_the_same_under_the_same_work_limit():
    step, batch = rows_step()
    prepared = PreparedStep(capture(step, (batch,)), device="rtx3090")
    options = Ask(Budget("min"), limits=Limits(None, 3000, 0), numerics="close")
    one, other = (searched_front(prepared, options, 3) for _ in range(2))
    assert one.points == other.points
