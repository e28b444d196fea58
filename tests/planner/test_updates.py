from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.ir.builder import GraphBuilder
from neaptide.outcome import Limits
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.updates import update_groups, update_nodes, with_late_overwrites
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import judge


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


@given(st.integers(0, 10**6), st.integers(2, 30))
@settings(max_examples=examples(120), deadline=None)
def test_late_overwrites_keep_the_peak_of_any_legal_order(seed, n):
    graph = random_graph(seed, n)
    step = compile_problem(graph, toy_registry())
    order = _any_order(step, seed)
    late = with_late_overwrites(step, order)
    judge(graph, PlannedSequence.evaluate(step, late, ""))
    assert sorted(late) == list(range(n))
    before, after = (PlannedSequence.evaluate(step, found, "") for found in (order, late))
    assert after.peak_with_workspace_bytes == before.peak_with_workspace_bytes
    stay = [node for node in order if not step.writes_resident(node)]
    assert [node for node in late if not step.writes_resident(node)] == stay


def test_a_decay_in_front_of_the_backward_forbids_no_recomputation():
    b = GraphBuilder("decay", toy_registry())
    x, w = b.input("x", (64,)), b.input("w", (64,))
    (h,) = b.node("toy.mix", x, w, outputs=["h: f32[1024]"])
    (small,) = b.node("toy.mix", h, outputs=["small: f32[1]"])
    (wide,) = b.node("toy.mix", small, outputs=["wide: f32[1024]"])
    (narrow,) = b.node("toy.mix", wide, outputs=["narrow: f32[1]"])
    (g,) = b.node("toy.mix", h, narrow, outputs=["g: f32[64]"])
    b.node("toy.add_", w, x, outputs=["decayed: f32[64] @w"])
    b.node("toy.add_", w, g, outputs=["stepped: f32[64] @w"])
    b.output(narrow)
    step = compile_problem(b.finish(), toy_registry())
    early = (0, 5, 1, 2, 3, 4, 6)
    late = with_late_overwrites(step, early)
    assert late == (0, 1, 2, 3, 4, 5, 6)
    limit = PlannedSequence.evaluate(step, early, "").peak_with_workspace_bytes - 1024
    lowest = [
        plan_sequence(step, limit, Limits(work=2000), order=order).require().peak_with_workspace_bytes
        for order in (early, late)
    ]
    assert lowest[1] <= limit < lowest[0]


def _any_order(step, seed):
    """A legal order, drawn."""
    draw = random.Random(seed)
    waits = [len(before) for before in step.predecessors]
    ready, order = [n for n, count in enumerate(waits) if not count], []
    while ready:
        node = ready.pop(draw.randrange(len(ready)))
        order.append(node)
        for after in step.successors[node]:
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    return tuple(order)
