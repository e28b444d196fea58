from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import Limits
from neaptide.planner.offload.bound import offload_bound
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_stays
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import toy_registry
from offload_play import chain, least_seconds, links, recomputed
from strategies import graphs
from together import together


@settings(max_examples=examples(100))
@given(st.data())
def test_no_plan_that_is_found_is_below_the_bound(data):
    graph = data.draw(graphs(min_nodes=4, max_nodes=18))
    seconds = data.draw(
        st.lists(st.sampled_from([1, 2, 5]), min_size=len(graph.nodes), max_size=len(graph.nodes))
    )
    step = compile_problem(graph, toy_registry(), seconds=seconds)
    budget = data.draw(st.integers(step.lower_bound_bytes, Evaluator(step).peak))
    nbytes = data.draw(st.sampled_from([0, 60, 1 << 40]))
    host = HostSpace(nbytes, *links(data.draw(st.sampled_from([1.0, 16.0, 256.0]))))
    known = recomputed(step, budget)
    found = choose_stays(OffloadProblem(step, budget, host, [known]), Limits()).require().planned
    bound = offload_bound(step, budget, host, dict.fromkeys(known.sequence))
    assert bound >= step.baseline_seconds
    if found.peak_with_workspace_bytes <= budget:
        assert bound <= found.seconds * (1 + 1e-6)


@together("seed", range(8))
def test_the_bound_is_below_the_best_of_all_choices(seed):
    draw = random.Random(seed)
    step = chain(3, draw)
    budget = draw.randint(step.lower_bound_bytes, Evaluator(step).peak)
    host = HostSpace(1 << 40, *links(draw.choice([0.5, 1.0, 2.0])))
    least = least_seconds(step, budget, host, repetitions=1)
    bound = offload_bound(step, budget, host, range(step.node_count))
    assert least is None or bound <= least * (1 + 1e-6)


def test_without_a_host_the_bound_is_that_of_recomputation_at_single_steps():
    """Of chains, whose best programs see one step; never above, and above the operations alone in most."""
    rises = 0
    for seed in range(12):
        step = chain(5, random.Random(seed))
        budget = (2 * step.lower_bound_bytes + Evaluator(step).peak) // 3
        bound = offload_bound(step, budget, HostSpace(0, *links(1.0)), range(step.node_count))
        known = recompute_bound(step, budget)
        assert bound <= known.seconds * (1 + 1e-6)
        rises += bound > step.baseline_seconds * (1 + 1e-6)
    assert rises >= 6


def test_links_that_take_no_time_leave_the_seconds_of_the_operations():
    step = chain(6, random.Random(3))
    budget = (step.lower_bound_bytes + Evaluator(step).peak) // 2
    bound = offload_bound(step, budget, HostSpace(1 << 40, *links(1e15)), range(step.node_count))
    assert bound == pytest.approx(step.baseline_seconds)
