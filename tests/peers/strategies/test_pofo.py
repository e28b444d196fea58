from __future__ import annotations

import random

import pytest

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_offload
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.strategies import program_order
from neaptide_corpus.training_steps import conv_step, transformer_step
from neaptide_peers.strategies import pofo, rotor
from planner.chain_play import random_chain_step
from planner.offload.offload_play import chain, checked, least_seconds, links
from planner.planner_problems import compiled


def planned(step, budget, host):
    known = [pofo.solve(PlanningProblem(step, budget), Limits()).require()]
    return pofo.choose_offload(OffloadProblem(step, budget, host, known), Limits()).require()


@pytest.mark.parametrize(
    ("made", "share"),
    [
        (transformer_step(layers=4), 0.6),
        (conv_step(blocks=6, batch=32), 0.75),
        (conv_step(blocks=6, batch=32), 0.6),
    ],
    ids=["t", "c75", "c60"],
)
def test_its_plans_are_what_the_checkers_say(made, share):
    step = compiled(made)
    before = program_order.baseline(step)
    budget = step.persistent_bytes + int(share * (before.peak_bytes - step.persistent_bytes))
    moved = sum(step.storage_bytes)
    out, back = links(moved / step.baseline_seconds)
    host = HostSpace(1 << 60, out, back)
    found = planned(step, budget, host)
    assert found.offloads
    assert found.planned.strategy == "pofo"
    assert found.planned.peak_with_workspace_bytes <= budget
    checked(made.graph, made.registry, step, found, host)
    alone = rotor.solve(PlanningProblem(step, budget), Limits()).require()
    assert found.rank(budget) <= alone.rank(budget)


@pytest.mark.parametrize("seeds", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_small_plans_are_never_better_than_the_best_of_all(seeds):
    compared = 0
    for seed in range(seeds):
        draw = random.Random(seed)
        step = chain(3, draw)
        peak = program_order.baseline(step).peak_with_workspace_bytes
        budget = draw.randint(step.lower_bound_bytes, peak - 1)
        host = HostSpace(1 << 40, *links(draw.choice([1.0, 2.0, 4.0])))
        least = least_seconds(step, budget, host, repetitions=1)
        found = planned(step, budget, host)
        is_small = len(found.offloads) <= 2 and len(found.planned.sequence) <= step.node_count + 1
        if least is not None and is_small and found.planned.peak_with_workspace_bytes <= budget:
            compared += 1
            assert found.planned.seconds >= least - 1e-9
    assert compared >= seeds // 3


def test_without_room_on_the_host_it_is_rotor():
    step = random_chain_step(5, random.Random(1))
    budget = (step.lower_bound_bytes + program_order.baseline(step).peak_with_workspace_bytes) // 2
    found = planned(step, budget, HostSpace(0, *links(1e15)))
    assert found.offloads == ()
    assert found.planned.seconds <= rotor.solve(PlanningProblem(step, budget), Limits()).require().seconds


def seconds_of_both(seed, length):
    """By budget and link, seconds of POFO and of the search where POFO meets the budget; the search then does so too."""
    draw = random.Random(seed)
    step = random_chain_step(length, draw)
    peak, least = program_order.baseline(step).peak_with_workspace_bytes, step.lower_bound_bytes
    for share in (0.3, 0.7, 1.0):
        budget = peak - int(share * (peak - least))
        alone = plan_sequence(step, budget, Limits(work=4000)).require()
        for rate in (4.0, 20.0):
            host = HostSpace(1 << 40, *links(rate))
            theirs = planned(step, budget, host).planned
            ours = choose_offload(OffloadProblem(step, budget, host, [alone]), Limits()).require().planned
            assert ours.peak_with_workspace_bytes <= max(budget, theirs.peak_with_workspace_bytes)
            if theirs.peak_with_workspace_bytes <= budget:
                yield theirs.seconds, ours.seconds


def test_ours_is_never_worse_on_a_short_chain():
    assert all(ours <= theirs * (1 + 1e-9) for theirs, ours in seconds_of_both(0, 3))


@pytest.mark.slow
@pytest.mark.parametrize("length", [6, 11])
def test_ours_is_faster_on_the_whole(length):
    """POFO solves a chain as one program, so it is better now and then."""
    both = [pair for seed in range(100, 106) for pair in seconds_of_both(seed, length)]
    assert sum(ours for _, ours in both) <= sum(theirs for theirs, _ in both)
    assert sum(ours > theirs * (1 + 1e-9) for theirs, ours in both) <= len(both) // 5
