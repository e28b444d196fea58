"""The clock for calls: what is taken off; and when memory is fresh."""

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost import call_clock, fresh_pages
from neaptide.cost.call_clock import CallClock


@pytest.fixture
def world(monkeypatch):
    """A clock that takes 1 s to read."""
    state = {"now": 0.0}

    def now():
        state["now"] += 1.0
        return state["now"]

    monkeypatch.setattr(call_clock.time, "thread_time", now)
    monkeypatch.setattr(call_clock.time, "perf_counter", now)
    return state


def test_reading_the_clock_is_taken_off(world):
    clock = CallClock()

    def work(seconds):
        world["now"] += seconds

    assert clock.seconds(lambda: work(7.0)) == pytest.approx(7.0)
    assert clock.seconds(lambda: work(-1.0)) == 0.0


@pytest.mark.parametrize(
    ("kept_below", "expected"), [(2**26, 2**26), (2**25, 2**25), (2**20, 2**23), (2**30, 0)]
)
def test_the_smallest_fresh_block_is_found_from_above(monkeypatch, kept_below, expected):
    monkeypatch.setattr(fresh_pages, "_is_fresh_again", lambda nbytes: nbytes >= kept_below)
    assert fresh_pages.smallest_fresh_bytes() == expected


def test_where_pages_are_not_counted_no_block_is_fresh(monkeypatch):
    monkeypatch.setattr(fresh_pages, "page_faults", lambda: None)
    assert fresh_pages.smallest_fresh_bytes() == 0
