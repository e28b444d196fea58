"""Units: what runs again together, what it costs, and where it may."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from neaptide.outcome import Limits
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.units import forward_units, stage_units
from neaptide.planner.strategies import greedy_recompute
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.instances import TO_END
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner.planner_problems import check_sequence, compiled, units_of
from support.drawn import graphs


def check_bytes(step):
    """Units that are live and everything else together are the bytes of the profile."""
    forward = forward_units(step, range(step.node_count))
    evaluator = Evaluator(step)
    for offset, other in enumerate(forward.other_bytes):
        place = forward.turning + offset
        held = 0
        for storage, spans in enumerate(evaluator.spans):
            unit = forward.units.get(step.creator[storage])
            if unit is not None and not unit.is_pinned:
                held += step.storage_bytes[storage] * sum(
                    evaluator.position[start] <= place and (end == TO_END or evaluator.position[end] >= place)
                    for start, end in spans
                )
        assert held + other == evaluator.bytes_at(place)
        assert forward.between_bytes[offset] <= other


@given(st.data())
def test_bytes_split_into_units_and_the_rest_on_any_graph(data):
    graph = data.draw(graphs(min_nodes=1))
    check_bytes(compile_problem(graph, toy_registry(), workspace={n.id: 5 for n in graph.nodes[::4]}))


def test_bytes_split_on_training_steps():
    check_bytes(compiled(transformer_step(layers=2, dropout=True)))
    check_bytes(compiled(conv_step(blocks=2)))


def test_the_forward_part_ends_where_the_backward_begins():
    made = transformer_step(layers=2)
    step = compiled(made)
    forward = forward_units(step, range(step.node_count))
    assert step.phases[forward.order[forward.turning]] == "backward"
    assert "backward" not in {step.phases[node] for node in forward.order[: forward.turning]}
    loss = next(n.id for n in made.graph.nodes if n.op == "toy.loss")
    assert forward.units[loss].is_pinned


def test_a_unit_takes_its_writers_along():
    made = conv_step(blocks=1)
    step = compiled(made)
    forward = forward_units(step, range(step.node_count))
    norms = [n.id for n in made.graph.nodes if n.op == "toy.batch_norm"]
    added = next(n.id for n in made.graph.nodes if n.op == "toy.add_" and step.phases[n.id] == "forward")
    with_sum = forward.units[norms[1]]
    assert with_sum.seconds > step.seconds[norms[1]] + step.seconds[added]


def test_missing_stops_at_what_is_there():
    step = compiled(transformer_step(layers=3))
    forward = forward_units(step, range(step.node_count))
    last = max(u for u, unit in forward.units.items() if not unit.is_pinned)
    all_of_it = forward.missing([last], ())
    assert forward.missing([last], {last}) == set()
    near = set(forward.units[last].operands)
    assert forward.missing([last], near) == {last}
    assert last in all_of_it
    assert forward.seconds(all_of_it) > forward.seconds({last})


@given(st.data(), st.integers(0, 2**32), st.floats(0.0, 0.4))
def test_any_table_whose_operands_are_there_is_a_legal_sequence(data, seed, share):
    graph = data.draw(graphs(min_nodes=2))
    step = compile_problem(graph, toy_registry())
    units = stage_units(step, range(step.node_count))
    draw = random.Random(seed)
    items = []
    for stage in range(units.stages):
        again = units.again(stage)
        chosen = {u for u in again if draw.random() < share}
        # A reader may find its operands dropped, never too early: they are there from their first execution on.
        for u in reversed(again):
            if u in chosen:
                chosen.update(o for s in units.units[u].reads if (o := units.unit_of[s]) in again)
        items += [(stage, unit) for unit in chosen]
    sequence = units.sequence(items)
    check_sequence(graph, PlannedSequence.evaluate(step, sequence, "table"))


@given(st.data(), st.floats(0.3, 1.0))
def test_repetitions_of_other_searches_are_found_again(data, share):
    graph = data.draw(graphs(min_nodes=2, in_place=False, views=False))
    step = compile_problem(graph, toy_registry())
    budget = int(share * PlannedSequence.evaluate(step, range(step.node_count), "").peak_with_workspace_bytes)
    found = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    units = stage_units(step, tuple(dict.fromkeys(found.sequence)))
    assert units.sequence(units.items_of(found.sequence)) == found.sequence


def test_repetitions_of_a_plan_add_up_to_what_it_takes_longer():
    step = compiled(conv_step(blocks=4))
    budget = (step.persistent_bytes + Evaluator(step).peak) // 2
    found = greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()
    units = units_of(step, found)
    assert abs(sum(unit.seconds for unit in units) - found.seconds + step.baseline_seconds) < 1e-9
    assert sum(len(unit.nodes) for unit in units) == len(found.sequence) - step.node_count > 0


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
