from __future__ import annotations

from neaptide.named_peers import peer
from neaptide.outcome import Limits
from neaptide.planner.passes.history import Enabled, PassStep, steps_to
from neaptide.planner.passes.search import search_passes
from planner.passes.pass_play import TableSpace


def steps(nbytes, edges, state):
    space = TableSpace(nbytes, edges)
    archive = search_passes(space, peer("passes", "exhaustive").Exhaustive(9), Limits()).require()
    return steps_to(archive, archive.number_of(state))


def test_a_step_that_raised_the_footprint_is_said_with_what_it_made_possible():
    found = steps(
        {"start": 864, "apart": 1008, "summed": 768},
        {("start", "elementwise"): "apart", ("apart", "sum"): "summed"},
        "summed",
    )
    assert found == (PassStep("elementwise", 864, 1008, (Enabled(1, None),)), PassStep("sum", 1008, 768))
    assert found[0].saved_bytes == -144
    said = "elementwise: +144 bytes, enabled sum (-240 bytes; it had no place before)"
    assert found[0].described(found) == said
    assert found[1].described(found) == "sum: -240 bytes"


def test_a_step_on_a_plateau_enables_what_saved_less_before_it():
    found = steps(
        {"start": 2304, "cut": 2304, "greedy": 1728, "both": 1440},
        {("start", "cut"): "cut", ("start", "sum"): "greedy", ("cut", "sum"): "both"},
        "both",
    )
    assert found[0] == PassStep("cut", 2304, 2304, (Enabled(1, 576),))
    said = (
        "cut: changed nothing at 2304 bytes, enabled sum (-864 bytes; it would have made -576 bytes before)"
    )
    assert found[0].described(found) == said


def test_steps_that_do_not_depend_on_each_other_enable_nothing():
    found = steps(
        {"start": 100, "p": 80, "q": 90, "pq": 70},
        {("start", "p"): "p", ("start", "q"): "q", ("p", "q"): "pq", ("q", "p"): "pq"},
        "pq",
    )
    assert [step.enabled for step in found] == [(), ()]


def test_the_start_has_no_steps():
    assert steps({"start": 1}, {}, "start") == ()
