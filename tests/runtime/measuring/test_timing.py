"""Turn-taking and ratios; nothing here depends on how fast anything runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import UsageError
from neaptide.runtime.measuring.timing import interleaved, median_ratio

TIMES = st.lists(st.floats(min_value=1e-6, max_value=1e3), min_size=1, max_size=20)


def test_programs_take_turns_and_the_first_one_changes():
    calls = []
    times = interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, repeats=3, warmup=1)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"
    assert list(times) == ["a", "b", "c"]
    for one in times.values():
        assert len(one.wall_s) == len(one.cpu_s) == 3
        assert min(one.wall_s) > 0


def test_calls_before_each_timed_one_are_of_the_same_program_and_do_not_count():
    calls = []
    times = interleaved({name: lambda name=name: calls.append(name) for name in "ab"}, 2, before_each=1)
    assert "".join(calls) == "ab" + "aabb" + "bbaa"
    assert all(len(one.cpu_s) == 2 for one in times.values())


def test_each_timed_call_is_synchronized_before_and_after():
    calls = []
    run, wait = (lambda: calls.append("run")), (lambda: calls.append("wait"))
    assert len(interleaved({"": run}, 2, warmup=1, synchronize=wait)[""].wall_s) == 2
    assert calls == ["wait", "run", "wait"] * 3


@given(TIMES, st.floats(min_value=0.1, max_value=10))
def test_constant_ratio_is_found_with_a_tight_interval(times, factor):
    estimate = median_ratio([factor * t for t in times], times)
    assert estimate.ratio == pytest.approx(factor)
    assert estimate.low == pytest.approx(factor)
    assert estimate.high == pytest.approx(factor)


@given(TIMES.flatmap(lambda a: st.tuples(st.just(a), st.permutations(a))))
def test_interval_is_ordered_repeatable_and_within_the_rounds(pair):
    above, below = pair
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    estimate = median_ratio(above, below, seed=3)
    assert estimate == median_ratio(above, below, seed=3)
    assert min(ratios) <= estimate.low <= estimate.high <= max(ratios)
    assert min(ratios) <= estimate.ratio <= max(ratios)


def test_drift_of_the_machine_cancels_within_rounds():
    slow_down = [1.0, 2.0, 4.0, 8.0, 16.0]
    estimate = median_ratio([1.1 * t for t in slow_down], slow_down)
    assert (estimate.low, estimate.high) == (pytest.approx(1.1), pytest.approx(1.1))


@pytest.mark.parametrize(("above", "below"), [([0.0], [1.0]), ([1.0], [float("nan")])])
def test_an_impossible_ratio_is_refused(above, below):
    with pytest.raises(UsageError):
        median_ratio(above, below)
