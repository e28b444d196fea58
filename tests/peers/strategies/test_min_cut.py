from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.units import forward_units
from neaptide.planner.strategies import program_order
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from neaptide_peers.strategies import min_cut, min_cut_ratios
from neaptide_peers.strategies.saved_cut import compute_intensive, saved_units, worth_saving
from peers.strategies.stage_instances import chain
from planner_problems import compiled, judge
from strategies import graphs

STEPS = {
    "gpt": transformer_step(layers=6, dropout=True, vocab=256),
    "conv": conv_step(blocks=8, batch=32),
}


def suffices(forward, saved, banned):
    """Whether the backward can be run from what is saved."""
    need = {unit for reads in forward.reads for unit in reads}
    while need:
        unit = need.pop()
        if unit in saved:
            continue
        if forward.units[unit].is_pinned or unit in banned:
            return False
        need.update(forward.units[unit].operands)
    return True


@pytest.mark.parametrize("seed", range(30))
def test_the_cut_saves_the_fewest_bytes(seed):
    step = chain(seed, 7)
    forward = forward_units(step, range(step.node_count))
    banned = {unit for unit in forward.units if (unit + seed) % 3 == 0}
    saved = saved_units(forward, banned)
    assert suffices(forward, saved, banned)
    least = min(
        sum(forward.units[u].nbytes for u in chosen)
        for k in range(len(forward.units) + 1)
        for chosen in combinations(forward.units, k)
        if suffices(forward, chosen, banned)
    )
    assert sum(forward.units[u].nbytes for u in saved) == least


@pytest.mark.parametrize("seed", range(10))
def test_the_knapsack_picks_the_most_seconds(seed):
    step = chain(seed, 7)
    forward = forward_units(step, range(step.node_count))
    units = list(forward.units)
    room = forward.nbytes(units) // 2
    best = max(
        forward.seconds(chosen)
        for k in range(len(units) + 1)
        for chosen in combinations(units, k)
        if forward.nbytes(chosen) <= room
    )
    chosen = worth_saving(forward, units, room)
    assert forward.nbytes(chosen) <= room
    assert forward.seconds(chosen) >= best * (1 - 1e-3)


def test_contractions_are_what_takes_long_for_its_bytes():
    made = STEPS["gpt"]
    step = compiled(made)
    forward = forward_units(step, range(step.node_count))
    ops = {made.graph.nodes[c].op for c in compute_intensive(step, forward)}
    assert {"toy.matmul", "toy.attention"} <= ops
    assert ops.isdisjoint({"toy.gelu", "toy.add", "toy.layer_norm", "toy.dropout"})


@pytest.mark.parametrize("made", STEPS.values(), ids=STEPS)
def test_plans_are_legal_and_those_of_ratios_no_worse(made):
    step = compiled(made)
    before = program_order.baseline(step)
    for share in (0.8, 0.5):
        budget = step.resident_bytes + int(share * (before.peak_bytes - step.resident_bytes))
        problem = PlanningProblem(step, budget)
        cut = min_cut.solve(problem, Limits()).require()
        judge(made.graph, cut, None, made.registry)
        assert cut.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
        if made is STEPS["gpt"]:
            assert cut.peak_with_workspace_bytes < before.peak_with_workspace_bytes
        best = min_cut_ratios.solve(problem, Limits()).require()
        judge(made.graph, best, None, made.registry)
        assert best.rank(budget) <= cut.rank(budget)


@given(st.data(), st.floats(0.3, 1.0))
def test_any_graph_stays_legal_and_no_higher(data, share):
    graph = data.draw(graphs(min_nodes=2))
    step = compile_problem(graph, toy_registry())
    before = program_order.baseline(step)
    problem = PlanningProblem(step, int(share * before.peak_with_workspace_bytes))
    for strategy in (min_cut, min_cut_ratios):
        after = strategy.solve(problem, Limits()).require()
        judge(graph, after)
        assert after.rank(problem.budget_bytes) <= before.rank(problem.budget_bytes)
