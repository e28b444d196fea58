from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neaptide.planner.recompute.units import forward_units
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.transfers import TO_END
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled
from strategies import graphs


def check_bytes(step):
    """Units that are alive and everything else together are the bytes of the profile."""
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
