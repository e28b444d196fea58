"""Outcomes, limits and the guard that watches them."""

import threading

import pytest

from neaptide.errors import UsageError
from neaptide.outcome import LimitGuard, Limits, Termination, TerminationReason, left_out
from support.together import together


@together(
    ("best", "bound", "gap"),
    [(10, 8, 0.2), (10, 10, 0.0), (None, 8, None), (10, None, None), (0, -1, float("inf"))],
)
def test_gap_is_a_fraction_of_the_best(best, bound, gap):
    assert Termination(TerminationReason.FEASIBLE, best=best, bound=bound).gap == gap


def test_guard_stops_at_the_work_limit_and_keeps_saying_so():
    guard = LimitGuard(Limits(work=3))
    assert [guard.exhausted() for _ in range(5)] == [None, None, None, "work", "work"]
    assert guard.work == 3
    assert guard.finish("x").termination == Termination(TerminationReason.FEASIBLE, "work")


def test_guard_honours_an_interrupt_set_from_outside():
    stop = threading.Event()
    guard = LimitGuard(Limits(), stop)
    assert guard.check_now() is None
    stop.set()
    assert "interrupt" in {guard.exhausted() for _ in range(65)}
    outcome = guard.finish("best so far")
    assert outcome.value == "best so far"
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert outcome.termination.limit is None


@together(
    ("value", "complete", "best", "bound", "reason"),
    [
        ("x", True, 5, None, TerminationReason.OPTIMAL),
        ("x", False, 5, 5, TerminationReason.OPTIMAL),
        ("x", False, 5, 4, TerminationReason.FEASIBLE),
        (None, True, None, None, TerminationReason.INFEASIBLE),
        (None, False, None, 4, TerminationReason.NO_SOLUTION_FOUND),
    ],
)
def test_finish_names_the_reason(value, complete, best, bound, reason):
    ended = LimitGuard(Limits()).finish(value, complete=complete, best=best, bound=bound).termination
    assert ended.reason is reason
    assert ended.is_proved == (reason in {TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE})


def test_a_stage_that_there_is_not_cannot_be_left_out():
    assert left_out(["b"], ["a", "b", "b"]) == {"b"}
    with pytest.raises(UsageError, match="no stage is called 'c'") as raised:
        left_out(["b", "c"], ["a", "b"])
    assert raised.value.next_step == "choose from a, b"
