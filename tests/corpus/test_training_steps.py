from __future__ import annotations

import pytest

from neaptide.analysis.legality import check_schedule
from neaptide.ir.schedule import Schedule
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step


@pytest.mark.parametrize(
    "made",
    [
        transformer_step(layers=2),
        transformer_step(layers=2, dropout=True, clip=True, optimizer="sgd"),
        conv_step(blocks=2),
        conv_step(blocks=2, optimizer="adamw"),
    ],
    ids=["gpt", "gpt-dropout-clip", "conv", "conv-adamw"],
)
def test_steps_are_legal_and_every_op_has_a_row(made):
    check_schedule(made.graph, Schedule.program_order(made.graph), made.registry)
    assert len(made.seconds) == len(made.graph.nodes)
    assert all(node.op in made.registry for node in made.graph.nodes)
    phases = [node.source.phase for node in made.graph.nodes]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)


def test_every_parameter_is_updated_once_and_views_cost_nothing():
    made = transformer_step(layers=3, optimizer="sgd")
    parameters = {s.id for s in made.graph.storages if s.kind == "parameter"}
    written = [a.storage for n in made.graph.nodes for a in n.effects.writes if a.storage in parameters]
    assert sorted(written) == sorted(parameters)
    views = [n.id for n in made.graph.nodes if n.op == "toy.view"]
    assert views
    assert all(made.seconds[n] == 0 for n in views)
    assert "toy.view" in toy_registry()
