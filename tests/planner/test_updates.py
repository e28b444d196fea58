from __future__ import annotations

import pytest

from neaptide.corpus.training_steps import conv_step, toy_registry, transformer_step
from neaptide.ir.builder import GraphBuilder
from neaptide.planner.updates import update_groups, update_nodes
from neaptide.schedule.problem import compile_problem


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_updates_are_found_by_phase_and_grouped_by_parameter(optimizer):
    made = transformer_step(layers=2, optimizer=optimizer)
    step = compile_problem(made.graph, made.registry)
    updates = update_nodes(step)
    assert updates == {n.id for n in made.graph.nodes if n.source.phase == "optimizer"}
    groups = update_groups(step, updates)
    assert len(groups) == 2 * 4 + 1
    assert {len(group.nodes) for group in groups} == ({3} if optimizer == "sgd" else {8})
    assert all(group.read_bytes >= 128 * 128 * 4 for group in groups)


def test_running_statistics_are_no_updates():
    made = conv_step(blocks=2)
    step = compile_problem(made.graph, made.registry)
    assert {made.graph.nodes[n].source.phase for n in update_nodes(step)} == {"optimizer"}


def test_without_phases_updates_are_what_stands_behind_everything_else():
    b = GraphBuilder("plain", toy_registry())
    w, m = b.input("w", (64,)), b.input("m", (64,))
    (h,) = b.node("toy.mix", w, outputs=["h: f32[64]"])
    (g,) = b.node("toy.mix", h, outputs=["g: f32[64]"])
    (o,) = b.node("toy.mix", h, outputs=["o: f32[1]"])
    (d,) = b.node("toy.mix", g, outputs=["d: f32[64]"])
    b.node("toy.add_", m, d, outputs=["m2: f32[64] @m"])
    b.node("toy.add_", w, m, outputs=["w2: f32[64] @w"])
    b.output(o)
    step = compile_problem(b.finish(), toy_registry())
    assert update_nodes(step) == {3, 4, 5}
    assert [group.nodes for group in update_groups(step, update_nodes(step))] == [(3, 4, 5)]


def test_a_shared_factor_does_not_tie_groups_together():
    made = transformer_step(layers=2, optimizer="sgd", clip=True)
    step = compile_problem(made.graph, made.registry)
    groups = update_groups(step, update_nodes(step))
    assert len(groups) == 9
