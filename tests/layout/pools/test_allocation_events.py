import pytest

from neaptide.errors import LayoutProblemError
from neaptide.layout.pools.allocation_events import BlockEvent, problem_events, recorded_events
from neaptide.layout.problem import Buffer, LayoutProblem


def test_what_ends_at_a_step_is_freed_before_anything_starts_there():
    problem = LayoutProblem(
        (Buffer("b", 2, 3, 7), Buffer("a", 0, 2, 5), Buffer("c", 1, 3, 9), Buffer("d", 2, 5, 1))
    )
    assert list(problem_events(problem)) == [
        BlockEvent(1, 5),
        BlockEvent(2, 9),
        BlockEvent(1, 0),
        BlockEvent(0, 7),
        BlockEvent(3, 1),
        BlockEvent(0, 0),
        BlockEvent(2, 0),
        BlockEvent(3, 0),
    ]


def test_a_recording_leaves_out_what_began_before_it():
    changes = [(64, 10), (32, -5), (0, -100), (128, 20), (64, -10), (64, 30), (96, 0), (64, -30)]
    assert list(recorded_events(changes)) == [
        BlockEvent(64, 10),
        BlockEvent(128, 20),
        BlockEvent(64, 0),
        BlockEvent(64, 30),
        BlockEvent(64, 0),
    ]


def test_a_recording_with_two_blocks_at_one_address_is_refused():
    with pytest.raises(LayoutProblemError, match="two blocks at the address 64"):
        list(recorded_events([(64, 1), (64, 2)]))
