from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.placement import fill_gaps
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_offload
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.timeline import OffloadClock
from neaptide_corpus.training_steps import toy_registry
from planner.offload.offload_play import chain, checked, least_seconds, links, recomputed
from support.drawn import examples, graphs
from support.together import together

REGISTRY = toy_registry()


@settings(max_examples=examples(60))
@given(st.data())
def test_plans_with_offloads_are_what_the_judges_say(data):
    graph = data.draw(graphs(min_nodes=4, max_nodes=16))
    seconds = data.draw(
        st.lists(st.sampled_from([1, 2, 5]), min_size=len(graph.nodes), max_size=len(graph.nodes))
    )
    step = compile_problem(graph, REGISTRY, seconds=seconds, random_state_seconds=0.5)
    peak = Evaluator(step).peak
    budget = data.draw(st.integers(step.lower_bound_bytes, peak))
    out, back = links(data.draw(st.sampled_from([1.0, 16.0, 256.0])))
    host = HostSpace(data.draw(st.sampled_from([40, 1 << 40])), out, back)
    known = recomputed(step, budget)
    outcome = choose_offload(OffloadProblem(step, budget, host, [known]), Limits())
    found, bound = outcome.require(), outcome.termination.bound
    assert bound is None or step.baseline_seconds <= bound <= found.planned.seconds * (1 + 1e-9)
    checked(graph, REGISTRY, step, found, host)
    assert found.rank(budget) <= known.rank(budget)


@together("seed", range(6))
def test_with_a_link_that_takes_no_time_nothing_is_recomputed(seed):
    draw = random.Random(seed)
    step = chain(draw.randint(3, 7), draw)
    evaluator = Evaluator(step)
    host = HostSpace(1 << 40, *links(1e15))
    low = fill_gaps(
        evaluator.bytes, GapTable(evaluator, host).all(), 0, OffloadClock.of(evaluator, host.out, host.back)
    ).peak_bytes
    found = choose_offload(OffloadProblem(step, low, host, [recomputed(step, low)]), Limits()).require()
    assert found.planned.peak_with_workspace_bytes <= low
    assert found.planned.seconds == pytest.approx(step.baseline_seconds)


def test_without_room_on_the_host_nothing_is_stored():
    step = chain(5, random.Random(1))
    budget = int(0.7 * Evaluator(step).peak)
    known = recomputed(step, budget)
    found = choose_offload(
        OffloadProblem(step, budget, HostSpace(0, *links(1e15)), [known]), Limits()
    ).require()
    assert (found.offloads, found.host_bytes) == ((), 0)
    assert found.planned.seconds <= known.seconds


@pytest.mark.parametrize("seeds", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_small_choices_are_near_the_best_of_all(seeds):
    """Over a fixed set of problems: never better than all choices, and as good in most of them."""
    as_good = compared = 0
    for seed in range(seeds):
        draw = random.Random(seed)
        step = chain(3, draw)
        evaluator = Evaluator(step)
        budget = draw.randint(step.lower_bound_bytes, evaluator.peak)
        host = HostSpace(1 << 40, *links(draw.choice([1.0, 2.0, 4.0])))
        least = least_seconds(step, budget, host, repetitions=1)
        if least is None:
            continue
        found = choose_offload(
            OffloadProblem(step, budget, host, [recomputed(step, budget)]), Limits()
        ).require()
        compared += 1
        if found.planned.peak_with_workspace_bytes <= budget and len(found.offloads) <= 2:
            assert len(found.planned.sequence) > step.node_count + 1 or found.planned.seconds >= least - 1e-9
            as_good += found.planned.seconds <= least + 1e-9
    assert compared >= seeds // 2
    assert as_good >= 0.8 * compared
