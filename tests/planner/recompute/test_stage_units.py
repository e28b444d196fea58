from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.units import stage_units
from neaptide.planner.strategies import greedy_recompute
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry
from planner_problems import compiled, judge
from strategies import graphs


@given(st.data(), st.integers(0, 2**32), st.floats(0.0, 0.4))
def test_any_table_whose_operands_are_there_is_a_legal_sequence(data, seed, share):
    graph = data.draw(graphs(min_nodes=2))
    step = compile_problem(graph, toy_registry())
    units = stage_units(step, range(step.node_count))
    draw = random.Random(seed)
    repeated = []
    for stage in range(units.stages):
        again = units.again(stage)
        chosen = {u for u in again if draw.random() < share}
        # A reader may find its operands dropped, never too early: they are there from their first execution on.
        for u in reversed(again):
            if u in chosen:
                chosen.update(o for s in units.units[u].reads if (o := units.unit_of[s]) in again)
        repeated.append(sorted(chosen))
    sequence = units.sequence(repeated)
    judge(graph, PlannedSequence.evaluate(step, sequence, "table"))


@given(st.data(), st.floats(0.3, 1.0))
def test_repetitions_of_other_searches_are_found_again(data, share):
    graph = data.draw(graphs(min_nodes=2, in_place=False, views=False))
    step = compile_problem(graph, toy_registry())
    budget = int(share * PlannedSequence.evaluate(step, range(step.node_count), "").peak_with_workspace_bytes)
    found = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    units = stage_units(step, tuple(dict.fromkeys(found.sequence)))
    assert units.sequence(units.repeated_in(found.sequence)) == found.sequence


def test_what_may_run_again_knows_updates_and_refusals():
    made = conv_step(blocks=2)
    step = compiled(made)
    units = stage_units(step, range(step.node_count))
    for unit in units.units:
        may = unit.first <= unit.last
        if any(step.refusals[node] for node in unit.nodes):
            assert not may
        if may:
            assert unit.first > max(
                unit.position, *(units.order.index(n) for s in unit.storages for n in step.writers[s]), 0
            )
            for node in unit.nodes:
                for storage, version in step.reads[node]:
                    if storage not in unit.storages and len(step.writers[storage]) > version:
                        assert unit.last <= units.order.index(step.writers[storage][version])
    assert any(unit.first <= unit.last for unit in units.units)
    assert any(len(unit.nodes) > 1 for unit in units.units if unit.first <= unit.last)
