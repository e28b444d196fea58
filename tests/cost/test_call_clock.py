"""The clock for calls: what is taken off; and when memory is fresh."""

import itertools

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost import call_clock, used_memory
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


class Processor:
    """A processor whose pace is set: all that it computes takes `slowness` times as long; reading the clock takes none."""

    def __init__(self, monkeypatch):
        self.now, self.slowness = 0.0, 1.0
        monkeypatch.setattr(call_clock.time, "thread_time", lambda: self.now)
        monkeypatch.setattr(call_clock.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(call_clock.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(call_clock.torch, "mm", lambda *_: self.compute(1e-5))

    def compute(self, seconds):
        self.now += seconds * self.slowness


def test_a_call_takes_as_long_at_any_pace(monkeypatch):
    processor = Processor(monkeypatch)
    clock = CallClock()
    for slowness in (1.0, 2.0, 0.5):
        processor.slowness = slowness
        processor.now += 1.0  # long enough for the clock to look again
        assert clock.seconds(lambda: processor.compute(3e-3)) == pytest.approx(3e-3)


def test_readings_that_were_interrupted_tell_no_pace(monkeypatch):
    """Of each nine readings the first four take ten times as long, as in cold caches or beside another program."""
    processor = Processor(monkeypatch)
    readings = itertools.count()

    def clock_reference(*_):
        processor.compute(1e-4 if next(readings) % 9 < 4 else 1e-5)

    monkeypatch.setattr(call_clock.torch, "mm", clock_reference)
    clock = CallClock()
    assert clock.pace_s == pytest.approx(1e-5)
    processor.slowness = 2.0
    processor.now += 1.0
    assert clock.seconds(lambda: processor.compute(3e-3)) == pytest.approx(3e-3)


def test_a_thread_that_wakes_late_is_not_the_pace(monkeypatch):
    """A worker thread that slept takes milliseconds to come back, and others take the processor away now and then."""
    processor = Processor(monkeypatch)
    runs = itertools.count()
    is_awake = [True]

    def slept(_seconds):
        is_awake[0] = False

    def clock_reference(*_):
        processor.compute(1e-5 if is_awake[0] and next(runs) % 30 else 8e-2)

    monkeypatch.setattr(call_clock.time, "sleep", slept)
    monkeypatch.setattr(call_clock.torch, "mm", clock_reference)
    assert CallClock().pace_s == pytest.approx(1e-5)


def test_a_pace_of_more_than_twice_that_of_now_is_wrong(monkeypatch):
    processor = Processor(monkeypatch)
    assert not CallClock(1.9e-5).is_at_wrong_pace()
    assert CallClock(2.1e-5).is_at_wrong_pace()
    processor.slowness = 3.0  # the pace of now is the slower one: a busy machine says nothing of what is kept
    assert not CallClock(1e-5).is_at_wrong_pace()


def test_a_long_call_is_told_at_the_mean_of_the_paces_before_and_behind(monkeypatch):
    processor = Processor(monkeypatch)
    clock = CallClock()

    def work():
        processor.compute(0.5)
        processor.slowness = 2.0
        processor.compute(0.5)

    assert clock.seconds(work) == pytest.approx(1.0)


def test_a_clock_tells_times_at_the_pace_that_it_is_given(monkeypatch):
    processor = Processor(monkeypatch)
    processor.slowness = 2.0
    assert CallClock(pace_s=1e-5).seconds(lambda: processor.compute(4.0)) == pytest.approx(4.0)


def test_a_clock_that_is_too_coarse_to_tell_a_pace_tells_seconds(monkeypatch):
    processor = Processor(monkeypatch)
    monkeypatch.setattr(call_clock.torch, "mm", lambda *_: None)
    assert CallClock().seconds(lambda: processor.compute(4.0)) == pytest.approx(4.0)


def test_the_usual_pace_is_that_of_runs_which_nothing_disturbed_where_most_were(monkeypatch):
    clock = CallClock(pace_s=1.0)
    runs = itertools.cycle([0.016, 0.016, 3e-5, 0.016])
    monkeypatch.setattr(clock, "_plain_seconds", lambda _: next(runs))
    assert clock.usual_pace_s() == 3e-5
    runs = itertools.cycle([3e-5, 4e-5, 5e-5])
    assert clock.usual_pace_s() == 4e-5


@pytest.mark.parametrize(
    ("kept_below", "expected"), [(2**26, 2**26), (2**25, 2**25), (2**20, 2**23), (2**30, 0)]
)
def test_the_smallest_fresh_block_is_found_from_above(monkeypatch, kept_below, expected):
    monkeypatch.setattr(used_memory, "_is_fresh_again", lambda nbytes: nbytes >= kept_below)
    assert used_memory.smallest_fresh_bytes() == expected


def test_where_pages_are_not_counted_no_block_is_fresh(monkeypatch):
    monkeypatch.setattr(used_memory, "page_faults", lambda: None)
    assert used_memory.smallest_fresh_bytes() == 0
