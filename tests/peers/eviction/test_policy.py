"""What is evicted: the scores of the paper on hand-made programs, and the neighbourhoods that they count."""

from __future__ import annotations

import pytest

from neaptide.errors import UsageError
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry
from neaptide_peers.eviction.neighbourhoods import ClassNeighbourhoods, ExactNeighbourhoods
from neaptide_peers.eviction.policy import HEURISTICS, EvictionPolicy, heuristic
from neaptide_peers.eviction.run_state import RunState
from neaptide_peers.eviction.units import eviction_units
from planner.chain_play import chain_step


def pool_after(step, position):
    """A state in which the first nodes have run and nothing is gone."""
    state = RunState(eviction_units(step, range(step.node_count)))
    for node in range(position):
        state.note_run(node, step.seconds[node])
        for storage in step.created[node]:
            state.put(storage)
        state.position += 1
        if step.created[node]:
            state.price(node)
    return state


def evict(state, unit, *watching):
    for storage in state.units.problem.created[unit]:
        state.take(storage)
    for neighbourhoods in watching:
        neighbourhoods.changed(unit)


def restore(state, unit, *watching):
    for storage in state.units.problem.created[unit]:
        state.put(storage)
    for neighbourhoods in watching:
        neighbourhoods.changed(unit)


def test_the_oldest_goes_first_where_all_cost_the_same():
    state = pool_after(chain_step(6), 5)
    assert EvictionPolicy(state, heuristic("dtr")).victim() == 0
    assert EvictionPolicy(state, heuristic("evict_oldest")).victim() == 0


def test_next_to_what_is_gone_everything_is_dearer():
    state = pool_after(chain_step(8), 7)
    policy = EvictionPolicy(state, heuristic("dtr"))
    evicted = []
    for _ in range(3):
        unit = policy.victim()
        evicted.append(unit)
        evict(state, unit, policy.neighbourhoods)
    assert evicted[0] == 0
    assert evicted[1] != 1, "it would have to be made together with the first"


def test_what_is_locked_stays():
    state = pool_after(chain_step(6), 5)
    state.locks[0] += 1
    assert EvictionPolicy(state, heuristic("evict_oldest")).victim() == 1


def test_nothing_is_left():
    state = pool_after(chain_step(4), 3)
    for unit in range(3):
        state.locks[unit] += 1
    assert EvictionPolicy(state, heuristic("dtr")).victim() is None


def test_the_exact_neighbourhood_is_the_evicted_stretch_on_both_sides():
    state = pool_after(chain_step(9), 8)
    exact = ExactNeighbourhoods(state)
    above_only = ExactNeighbourhoods(state, with_descendants=False)
    for unit in (1, 2, 4):
        evict(state, unit, exact, above_only)
    assert [exact.seconds(u) for u in (0, 3, 5, 6)] == [2.0, 3.0, 1.0, 0.0]
    assert [above_only.seconds(u) for u in (0, 3, 5, 6)] == [0.0, 2.0, 1.0, 0.0]
    restore(state, 2, exact, above_only)
    assert [exact.seconds(u) for u in (0, 2, 3, 5)] == [1.0, 1.0, 1.0, 1.0]


def test_classes_agree_with_the_neighbourhood_until_something_comes_back():
    state = pool_after(chain_step(9), 8)
    classes = ClassNeighbourhoods(state)
    for unit in (1, 2, 4):
        evict(state, unit, classes)
    assert [classes.seconds(u) for u in (0, 3, 5, 6)] == [2.0, 3.0, 1.0, 0.0]
    evict(state, 3, classes)
    restore(state, 2, classes)
    assert classes.seconds(2) == classes.seconds(5) == 3.0, (
        "the class is not split, so 1 counts for 5 as well"
    )


def test_remembered_neighbourhoods_are_those_that_a_fresh_walk_finds():
    for seed in range(20):
        graph = random_graph(seed, 30, persistent=False, rng=False)
        step = compile_problem(graph, toy_registry())
        state = pool_after(step, 25)
        kept = ExactNeighbourhoods(state)
        units = [unit for unit in range(25) if step.created[unit]]
        for number, unit in enumerate([*units[::3], *units[::6]]):
            (restore if number >= len(units[::3]) else evict)(state, unit, kept)
            fresh = ExactNeighbourhoods(state)
            assert [kept.seconds(u) for u in units] == [fresh.seconds(u) for u in units]


def test_an_unknown_way_to_evict_is_refused_by_name():
    with pytest.raises(UsageError, match="no way to evict is called 'lifo'"):
        heuristic("lifo")
    assert all(name == found.name for name, found in HEURISTICS.items())
