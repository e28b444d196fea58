"""The clock for calls: what is taken off; and memory that was touched before."""

import itertools
import subprocess
import sys
import weakref
from mmap import PAGESIZE

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost.timing import call_clock
from neaptide.cost.timing.call_clock import CallClock, used_memory
from support.together import together


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
    """A processor whose speed is set: all that it computes takes `slowness` times as long; reading the clock takes none."""

    def __init__(self, monkeypatch):
        self.now, self.slowness = 0.0, 1.0
        monkeypatch.setattr(call_clock.time, "thread_time", lambda: self.now)
        monkeypatch.setattr(call_clock.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(call_clock.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(call_clock.torch, "mm", lambda *_: self.compute(1e-5))

    def compute(self, seconds):
        self.now += seconds * self.slowness


def test_a_call_takes_as_long_at_any_clock(monkeypatch):
    processor = Processor(monkeypatch)
    clock = CallClock()
    for slowness in (1.0, 2.0, 0.5):
        processor.slowness = slowness
        processor.now += 1.0  # long enough for the clock to look again
        assert clock.seconds(lambda: processor.compute(3e-3)) == pytest.approx(3e-3)


def test_a_clock_of_more_than_twice_that_of_now_is_wrong(monkeypatch):
    processor = Processor(monkeypatch)
    assert not CallClock(1.9e-5).has_wrong_reference()
    assert CallClock(2.1e-5).has_wrong_reference()
    processor.slowness = (
        3.0  # the speed of now is the slower one: a busy machine says nothing of what is kept
    )
    assert not CallClock(1e-5).has_wrong_reference()


def test_a_long_call_is_told_at_the_mean_of_the_clocks_before_and_behind(monkeypatch):
    processor = Processor(monkeypatch)
    clock = CallClock()

    def work():
        processor.compute(0.5)
        processor.slowness = 2.0
        processor.compute(0.5)

    assert clock.seconds(work) == pytest.approx(1.0)


@together(("reference_s", "is_coarse"), [(1e-5, False), (None, True)])
def test_a_clock_tells_times_at_the_clock_that_it_is_given_and_without_one_as_they_are(
    monkeypatch, reference_s, is_coarse
):
    processor = Processor(monkeypatch)
    processor.slowness = 1.0 if is_coarse else 2.0
    if is_coarse:
        monkeypatch.setattr(call_clock.torch, "mm", lambda *_: None)
    assert CallClock(reference_s).seconds(lambda: processor.compute(4.0)) == pytest.approx(4.0)


@together(
    ("runs_s", "usual_s"),
    [
        ([0.016, 0.016, 3e-5, 0.016], 3e-5),  # most were disturbed
        ([3e-5, 4e-5, 5e-5], 4e-5),
        ([1e-4] * 4 + [1e-5] * 5, 1e-5),  # the first readings find cold caches
        ([8e-2] + [1e-5] * 29, 1e-5),  # others take the processor away now and then
    ],
)
def test_the_usual_clock_is_that_of_runs_which_nothing_disturbed(monkeypatch, runs_s, usual_s):
    clock = CallClock(reference_s=1.0)
    runs = itertools.cycle(runs_s)
    monkeypatch.setattr(clock, "_plain_seconds", lambda _: next(runs))
    assert clock.usual_reference_s() == usual_s


BLOCK_BYTES = 24 * 2**20

TOUCHES = f"""
import torch
from neaptide.cost.host import page_faults
from neaptide.cost.timing.call_clock import used_memory
with used_memory({4 * BLOCK_BYTES}):
    torch.empty({BLOCK_BYTES}, dtype=torch.uint8).fill_(1)
    before = page_faults()
    for _ in range(20):
        torch.empty({BLOCK_BYTES}, dtype=torch.uint8).fill_(1)
    print(page_faults() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a matter of this system's allocator")
def test_blocks_within_are_of_pages_that_were_touched():
    # What the heap of this process looks like is anybody's, and a hole of it may give way to fresh pages once or twice.
    ran = subprocess.run([sys.executable, "-c", TOUCHES], capture_output=True, text=True, check=True)
    assert int(ran.stdout) * PAGESIZE < 20 * BLOCK_BYTES / 4


def test_no_block_stays(monkeypatch):
    kept = []
    blocks = call_clock._blocks

    def seen(count):
        found = blocks(count)
        kept.extend(map(weakref.ref, found))
        return found

    monkeypatch.setattr(call_clock, "_blocks", seen)
    with used_memory(BLOCK_BYTES):
        assert sum(block() is not None for block in kept) == 1
    assert not any(block() is not None for block in kept)


@together(
    ("nbytes", "free_blocks", "expected"),
    [
        (0, 1000, 1),
        (call_clock._SMALL_BYTES, 1000, 1),
        (call_clock._BLOCK_BYTES, 1000, 2),
        (10**12, 16, 3),
    ],
)
def test_as_many_blocks_are_touched_as_are_asked_for_and_no_more_than_a_part_of_what_is_free(
    monkeypatch, nbytes, free_blocks, expected
):
    asked = []
    monkeypatch.setattr(call_clock, "_blocks", lambda count: asked.append(count) or [torch.empty(8)] * count)
    monkeypatch.setattr(
        call_clock.host, "memory_available_bytes", lambda: free_blocks * call_clock._BLOCK_BYTES
    )
    with used_memory(nbytes):
        pass
    assert asked == [expected, expected]
