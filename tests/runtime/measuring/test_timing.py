"""Turn-taking and ratios; nothing here depends on how fast anything runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import UsageError
from neaptide.runtime.measuring.timing import interleaved, median_ratio

TIMES = st.lists(st.floats(min_value=1e-6, max_value=1e3), min_size=1, max_size=20)


def test_programs_take_turns_and_the_first_one_changes_and_calls_before_do_not_count():
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = interleaved(runs, 3, synchronize=lambda: calls.append("|"))
    assert "".join(calls) == "|a||b||c|" * 2 + "|b||c||a|" + "|c||a||b|"
    assert list(times) == ["a", "b", "c"]
    calls.clear()
    before = interleaved(runs, 1, before_each=1)
    assert "".join(calls) == "abc" + "aabbcc"
    assert [len(times["a"].wall_s), len(times["b"].cpu_s), len(before["c"].cpu_s)] == [3, 3, 1]
    assert min(times["a"].wall_s) > 0


@given(TIMES, st.floats(min_value=0.1, max_value=10))
def test_a_constant_ratio_is_found_with_a_tight_interval_however_the_machine_drifts(times, factor):
    estimate = median_ratio([factor * t for t in times], times)
    assert (estimate.ratio, estimate.low, estimate.high) == pytest.approx((factor, factor, factor))


@given(TIMES.flatmap(lambda a: st.tuples(st.just(a), st.permutations(a))))
def test_interval_is_ordered_repeatable_and_within_the_rounds(pair):
    above, below = pair
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    estimate = median_ratio(above, below, seed=3)
    assert estimate == median_ratio(above, below, seed=3)
    assert min(ratios) <= estimate.low <= estimate.high <= max(ratios)
    assert min(ratios) <= estimate.ratio <= max(ratios)


@pytest.mark.parametrize(("above", "below"), [([0.0], [1.0]), ([1.0], [float("nan")])])
def test_an_impossible_ratio_is_refused(above, below):
    with pytest.raises(UsageError):
        median_ratio(above, below)
