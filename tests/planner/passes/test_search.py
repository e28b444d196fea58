from __future__ import annotations

import pytest

from neaptide.named_peers import PASSES as PEERS
from neaptide.named_peers import peer
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.passes.learned import LearnedStrategy
from neaptide.planner.passes.named_order import NamedOrder
from neaptide.planner.passes.prior import FORMAT, Prior, PriorFile
from neaptide.planner.passes.search import search_passes
from planner.passes.pass_play import PASSES, SetSpace, TableSpace
from support.together import together

EMPTY = Prior(PriorFile(FORMAT, (), (), {}, -0.01, -0.05))


def strategies(seed):
    made = {name: peer("passes", name).strategy(seed) for name in PEERS}
    return {**made, "learned": LearnedStrategy(EMPTY), "named": NamedOrder(PASSES)}


@together("seed", range(25))
def test_exhaustive_search_finds_what_plain_recursion_finds(seed):
    for depth in (1, 2, 3):
        space = SetSpace(seed)
        strategy = peer("passes", "exhaustive").Exhaustive(depth)
        outcome = search_passes(space, strategy, Limits())
        assert outcome.require().best.nbytes == space.best_to_depth(depth)
        assert outcome.work == len(space.measured) == len(set(space.measured))


@together("name", ["learned", "random_pick", "beam"])
def test_a_strategy_without_limits_comes_to_the_lowest_footprint(name):
    for seed in range(15):
        space = SetSpace(seed)
        outcome = search_passes(space, strategies(seed)[name], Limits())
        assert outcome.require().best.nbytes == space.best_to_depth(len(PASSES))


def test_greedy_stops_where_no_pass_helps_at_once_and_the_search_for_what_is_enabled_goes_on():
    space = TableSpace(
        {"start": 100, "joined": 110, "summed": 60, "less": 95},
        {("start", "raise"): "joined", ("joined", "sum"): "summed", ("start", "small"): "less"},
    )
    greedy = search_passes(space, strategies(0)["greedy"], Limits()).require()
    assert greedy.passes(greedy.best.number) == ("small",)
    learned = search_passes(space, LearnedStrategy(EMPTY), Limits()).require()
    assert learned.passes(learned.best.number) == ("raise", "sum")


def test_a_budget_ends_the_search_at_the_first_state_within_it():
    space = TableSpace({"start": 100, "one": 80, "two": 60}, {("start", "p"): "one", ("one", "q"): "two"})
    outcome = search_passes(space, NamedOrder(("p", "q")), Limits(), enough_bytes=85)
    assert outcome.require().best.nbytes == 80
    assert outcome.work == 2
    assert outcome.termination.detail == "the footprint is within the budget"
    met = search_passes(space, NamedOrder(("p", "q")), Limits(), enough_bytes=100)
    assert met.work == 1


@pytest.mark.parametrize(
    ("limits", "limit", "detail"),
    [
        (Limits(), None, "the strategy has no pass left to try"),
        (Limits(work=2), "work", "no measurement is left"),
        (Limits(time_s=0.0), "time", ""),
    ],
)
def test_the_outcome_says_why_the_search_ended(limits, limit, detail):
    space = TableSpace({"start": 100, "one": 80, "two": 60}, {("start", "p"): "one", ("one", "q"): "two"})
    end = search_passes(space, NamedOrder(("p", "q")), limits).termination
    assert (end.reason, end.limit, end.detail) == (TerminationReason.FEASIBLE, limit, detail)


def test_named_passes_are_applied_in_order_and_left_out_where_they_find_no_place():
    space = TableSpace(
        {"start": 100, "up": 120, "down": 70},
        {("start", "up"): "up", ("start", "no"): None, ("up", "down"): "down", ("down", "up"): "down"},
    )
    archive = search_passes(space, NamedOrder(("absent", "no", "up", "down", "up")), Limits()).require()
    assert archive.passes(archive.best.number) == ("up", "down")
    assert archive.entries[2].tried == {"up": 2}


def test_what_a_graph_shows_corrects_what_was_predicted():
    # `p` saves much wherever it is measured, against what the prior says of every pass.
    space = TableSpace(
        {"start": 100, "p1": 60, "q1": 99, "p1q": 59, "p2": 36},
        {("start", "p"): "p1", ("start", "q"): "q1", ("p1", "q"): "p1q", ("p1", "p"): "p2"},
    )
    archive = search_passes(space, LearnedStrategy(EMPTY), Limits(work=4)).require()
    assert [entry.state for entry in archive.entries] == ["start", "p1", "q1", "p2"]


def test_the_transfer_graph_takes_states_that_weigh_as_much_for_one():
    # `a` and `b` weigh as much, so only what follows the first that is measured is looked at.
    space = TableSpace(
        {"start": 100, "a": 90, "b": 90, "low": 10},
        {("start", "to_a"): "a", ("start", "to_b"): "b", ("b", "on"): "low", ("a", "off"): None},
    )
    found = set()
    for seed in range(20):
        archive = search_passes(space, peer("passes", "transfer_graph").strategy(seed), Limits()).require()
        first = archive.entries[1].state
        assert archive.best.nbytes == (10 if first == "b" else 90)
        found.add(first)
    assert found == {"a", "b"}
