"""Which nodes are updates, and where they run: early where that is free, in the best order, late where they only overwrite."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.ir.builder import GraphBuilder
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.strategies import best_order, early_updates, program_order
from neaptide.planner.updates import (
    update_groups,
    update_name,
    update_nodes,
    updates_moved_earlier,
    with_late_overwrites,
)
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner.planner_problems import check_sequence, compiled
from support.drawn import examples, graphs, node_orders
from support.together import together

PILED_UP = {"layers": 6, "tokens": 16, "width": 64, "optimizer": "sgd"}


@together(
    "options, groups, nodes",
    [
        ({"optimizer": "adamw"}, 9, {8}),
        ({"optimizer": "sgd"}, 9, {3}),
        # A factor that all share does not tie groups together.
        ({"optimizer": "sgd", "clip": True}, 9, None),
    ],
)
def test_updates_are_found_by_phase_and_grouped_by_parameter(options, groups, nodes):
    made = transformer_step(layers=2, **options)
    step = compiled(made)
    updates = update_nodes(step)
    found = update_groups(step, updates)
    assert len(found) == groups
    if nodes is not None:
        assert updates == {n.id for n in made.graph.nodes if n.source.phase == "optimizer"}
        assert {len(group.nodes) for group in found} == nodes
        assert all(group.read_bytes >= 128 * 128 * 4 for group in found)


def test_running_statistics_are_no_updates_and_without_phases_updates_stand_behind_everything_else():
    made = conv_step(blocks=2)
    assert {made.graph.nodes[n].source.phase for n in update_nodes(compiled(made))} == {"optimizer"}
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


# -- early


def hoisted(made, workspace=None):
    """A step in program order and with its updates hoisted, which is checked, and never higher."""
    step = compiled(made, workspace)
    before, found = (
        one.solve(PlanningProblem(step, 0), Limits()).require() for one in (program_order, early_updates)
    )
    check_sequence(made.graph, found, workspace, made.registry)
    assert found.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
    return step, before, found


def test_a_step_whose_gradients_pile_up_gets_lower():
    step, before, after = hoisted(transformer_step(**PILED_UP))
    transient = [p.peak_bytes - step.persistent_bytes for p in (before, after)]
    assert transient[1] < 0.5 * transient[0]
    assert after.seconds == pytest.approx(before.seconds)
    assert sorted(after.sequence) == list(range(step.node_count))
    assert not updates_moved_earlier(step, before.sequence)
    moved = updates_moved_earlier(step, after.sequence)
    assert {update_name(step, group) for group in moved} >= {"head", "h0_qkv"}
    outcome = early_updates.solve(PlanningProblem(step, 0), Limits(work=0))
    assert outcome.require().sequence == before.sequence
    assert (outcome.termination.reason, outcome.termination.limit) == (TerminationReason.FEASIBLE, "work")


def test_a_global_norm_is_a_barrier_by_itself():
    made = transformer_step(**PILED_UP, clip=True)
    _, _, after = hoisted(made)
    factor = next(n.id for n in made.graph.nodes if n.op == "toy.clip_factor")
    owned = set(made.graph.input_storages())
    updates = [n.id for n in made.graph.nodes if any(a.storage in owned for a in n.effects.writes)]
    reads_gradients = [n for n in updates if n > factor and len(made.graph.nodes[n].inputs) > 1]
    assert min(map(after.sequence.index, reads_gradients)) > after.sequence.index(factor)


@together("nbytes", [0, 10**6, 10**8])
@together("made", [transformer_step(layers=2, tokens=256), conv_step(blocks=5)], ids=["gpt", "conv"])
def test_an_update_that_needs_more_than_it_frees_waits(made, nbytes):
    hoisted(made, {n.id: nbytes for n in made.graph.nodes if n.op == "toy.sqrt"})


@given(graphs(max_nodes=12), st.data())
def test_updates_that_moved_are_those_that_run_before_what_they_stood_behind(graph, data):
    step = compile_problem(graph, toy_registry())
    order = data.draw(node_orders(graph))
    updates = update_nodes(step)
    expected = [
        group
        for group in update_groups(step, updates)
        if group.read_bytes
        and any(
            order.index(node) > order.index(group.nodes[-1])
            for node in range(group.nodes[-1])
            if node not in updates
        )
    ]
    assert updates_moved_earlier(step, order) == expected
    assert all(update_name(step, group) in step.storage_names for group in expected)


# -- in the best order


@given(st.integers(0, 10**6), st.integers(2, 25))
@settings(max_examples=examples(120), deadline=None)
def test_best_orders_are_legal_never_above_the_start_and_proved_by_their_bound(seed, n):
    graph = random_graph(seed, n)
    step = compile_problem(graph, toy_registry())
    outcome = best_order.solve(PlanningProblem(step, 0), Limits(work=5000))
    found = outcome.require()
    check_sequence(graph, found)
    assert sorted(found.sequence) == list(range(n))
    assert found.peak_with_workspace_bytes <= program_order.baseline(step).peak_with_workspace_bytes
    assert outcome.termination.bound <= found.peak_with_workspace_bytes
    if outcome.termination.reason is TerminationReason.OPTIMAL:
        assert outcome.termination.bound == found.peak_with_workspace_bytes


def test_the_best_order_finds_updates_without_being_told_what_they_are():
    step, _, early = hoisted(transformer_step(layers=2))
    found = best_order.solve(PlanningProblem(step, 0), Limits(work=100_000)).require()
    assert found.peak_with_workspace_bytes <= early.peak_with_workspace_bytes


# -- late


@given(st.integers(2, 30), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_late_overwrites_keep_the_peak_of_any_legal_order(n, data):
    graph = random_graph(data.draw(st.integers(0, 10**6)), n)
    step, order = compile_problem(graph, toy_registry()), data.draw(node_orders(graph))
    late = with_late_overwrites(step, order)
    before, after = (PlannedSequence.evaluate(step, found, "") for found in (order, late))
    check_sequence(graph, after)
    assert sorted(late) == list(range(n))
    assert after.peak_with_workspace_bytes == before.peak_with_workspace_bytes
    kept = [[node for node in found if not step.writes_persistent(node)] for found in (order, late)]
    assert kept[0] == kept[1]


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
