from __future__ import annotations

import pytest

from chain_play import chain_step
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import program_order
from neaptide_corpus.training_steps import conv_step, transformer_step
from neaptide_peers.strategies import per_block, rotor, sqrt_n
from planner.recompute.chain.test_chain_plans import nominal_of
from planner_problems import compiled, judge, least_seconds


@pytest.mark.parametrize("length", [2, 3, 4])
def test_tiny_chains_agree_with_brute_force(length):
    step = chain_step(length, size=4)
    peak = program_order.baseline(step).peak_bytes
    for budget in range(step.lower_bound_bytes, peak):
        best = least_seconds(step, budget, most=length)
        found = rotor.solve(PlanningProblem(step, budget), Limits()).require()
        if best is None:
            assert found.peak_bytes > budget
        else:
            assert found.peak_bytes <= budget
            assert found.seconds == pytest.approx(best)


@pytest.mark.parametrize("share", [0.75, 0.6, 0.5])
@pytest.mark.parametrize("made", [transformer_step(layers=8), conv_step(blocks=8, batch=32)], ids=["t", "c"])
def test_it_fits_and_is_faster_than_whole_segments(made, share):
    step = compiled(made)
    before = program_order.baseline(step)
    budget = step.resident_bytes + int(share * (before.peak_bytes - step.resident_bytes))
    problem = PlanningProblem(step, budget)
    found = rotor.solve(problem, Limits()).require()
    judge(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= budget
    for peer in (per_block, sqrt_n):
        assert found.rank(budget) <= peer.solve(problem, Limits()).require().rank(budget)


def test_a_chain_of_sixty_reaches_ten_units():
    step = chain_step(60)
    found = rotor.solve(PlanningProblem(step, 1100), Limits()).require()
    assert found.peak_bytes <= 1100
    assert found.seconds < step.baseline_seconds + 3 * 60


def test_the_search_ends_at_the_largest_budget_that_fits():
    step = compiled(transformer_step(layers=6))
    peak = program_order.baseline(step).peak_bytes
    budget = step.resident_bytes + (peak - step.resident_bytes) // 2
    nominal = nominal_of(step, budget)
    fitting = [p for p in rotor.fitting(nominal) if p.peak_with_workspace_bytes <= budget]
    assert fitting
    assert fitting[-1].seconds == min(p.seconds for p in fitting)
    asked = nominal.plan(1.0)
    assert asked is not None
    assert fitting[-1].seconds <= asked.seconds or asked.peak_with_workspace_bytes > budget
