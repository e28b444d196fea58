"""What is measured of storages that leave for the host and come back: bytes are counted while they are there, and once."""

from __future__ import annotations

import pytest
import torch

from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.copy_engines.host_pool import HostPool, make_copy_engine
from neaptide.cost.cards.allocator_events import record

NBYTES = 4 * 5000


@pytest.fixture
def pool():
    capacity = 8 * NBYTES
    return HostPool(capacity, make_copy_engine(torch.device("cpu"), capacity, SlowMemory(bytes_per_s=1e12)))


def away(pool, tensor):
    copy = pool.store(tensor)
    copy.leave()
    return copy


def back(copy):
    copy.load()
    copy.arrive()


def net_bytes(trace):
    """Bytes live at the end minus those live at the start."""
    return sum(event.signed_bytes for event in trace.events)


def test_a_persistent_tensor_that_goes_and_comes_back_is_counted_once(pool):
    owned = torch.ones(5000)

    def program():
        for _ in range(3):
            back(away(pool, owned))
        (owned + owned).sum()

    trace = record(program, persistent=[owned])
    assert net_bytes(trace) == 0
    assert trace.peak_bytes(NBYTES) == pytest.approx(2 * NBYTES, abs=8)
    assert bool((owned == 1).all())


def test_its_bytes_are_others_while_it_is_away(pool):
    owned = torch.ones(5000)

    def program():
        copy = away(pool, owned)
        torch.empty(5000)
        back(copy)

    assert record(program, persistent=[owned]).peak_bytes(NBYTES) == NBYTES


def test_what_the_program_made_itself_leaves_once(pool):
    def program():
        made = torch.ones(5000)
        copy = away(pool, made)
        other = torch.empty(5000)
        del other
        back(copy)

    trace = record(program)
    assert trace.peak_bytes() == NBYTES
    assert net_bytes(trace) == 0


def test_a_tensor_that_leaves_and_stays_away_has_left(pool):
    owned = torch.ones(5000)
    kept = []
    trace = record(lambda: kept.append(away(pool, owned)), persistent=[owned])
    assert net_bytes(trace) == -NBYTES
    back(kept.pop())
    assert bool((owned == 1).all())
