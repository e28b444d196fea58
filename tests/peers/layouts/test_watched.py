"""Rules that are stopped give no layout; a guard without time limit changes nothing."""

import random
import threading

import pytest

from layout_small import random_plain
from neaptide.layout.placement import RuleStopped, watched
from neaptide.outcome import LimitGuard, Limits
from neaptide_peers.layouts.rules import ALL_RULES as RULES
from together import together

PROBLEM = random_plain(random.Random(7), 40, steps=12, size=50)


@together("name", RULES)
def test_a_rule_stops_when_the_user_interrupts(name):
    interrupt = threading.Event()
    interrupt.set()
    with pytest.raises(RuleStopped, match="interrupt"):
        RULES[name](PROBLEM, LimitGuard(Limits(), interrupt))


@together("name", RULES)
def test_work_does_not_stop_a_rule(name):
    guard = LimitGuard(Limits(work=0))
    assert RULES[name](PROBLEM, guard) == RULES[name](PROBLEM)
    assert guard.work == 0


def test_what_was_given_before_the_end_was_given():
    interrupt = threading.Event()
    items = watched(range(5), LimitGuard(Limits(), interrupt))
    assert [next(items), next(items)] == [0, 1]
    interrupt.set()
    with pytest.raises(RuleStopped):
        next(items)
