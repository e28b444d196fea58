"""A changed graph is ordered again as if it had been ordered from nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.legality import check_schedule
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Ref
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.from_step import step_order_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide_corpus.training_steps import conv_step, toy_registry
from neaptide_peers.candidates.reorder import reorder_candidate, settled_order
from neaptide_peers.candidates.standing import Standing
from neaptide_peers.incremental.edit import edit_of
from random_edits import edited_graphs
from schedule.order.order_problems import brute_force, literal_bytes
from seen_cost import SeenCost
from strategies import graphs, node_orders, segmented

REGISTRY = toy_registry()
LIMITS = Limits(work=2000)


@settings(max_examples=examples(120))
@given(st.data())
def test_a_changed_graph_is_legal_and_bounded_from_below(data):
    graph = data.draw(graphs(min_nodes=1, max_nodes=7).flatmap(segmented))
    edited = data.draw(edited_graphs(graph, most=2))
    pricing = Pricing(SeenCost(), REGISTRY)
    standing = Standing(graph, pricing)
    before = settled_order(standing, LIMITS)
    found = reorder_candidate(standing, before, edited, LIMITS).require()
    check_schedule(edited.graph, Schedule.from_nodes(edited.graph, found.order), REGISTRY)
    step = pricing.problem(edited.graph)
    assert Evaluator(step, found.order).peak == found.peak_bytes
    best = min(found.peak_bytes, best_order(step_order_problem(step), LIMITS).require().peak_bytes)
    assert found.order_lower_bound_bytes <= best
    if 0 < step.node_count <= 7:
        assert found.order_lower_bound_bytes <= brute_force(step_order_problem(step))


@settings(max_examples=examples(120))
@given(st.data())
def test_an_edit_of_a_graph_is_one_of_its_ordering_problem(data):
    graph = data.draw(graphs(min_nodes=1, max_nodes=12))
    edited = data.draw(edited_graphs(graph))
    pricing = Pricing(SeenCost(), REGISTRY)
    before = step_order_problem(pricing.problem(graph))
    after = step_order_problem(pricing.problem(edited.graph))
    edit = edit_of(before, after, edited)
    order = data.draw(node_orders(edited.graph))
    assert literal_bytes(edit.problem, order) == literal_bytes(after, order)
    assert edit.problem.predecessors == after.predecessors
    kept = [now for now in edit.now_at if now is not None]
    assert kept == sorted(set(kept))
    assert set(edit.changed) >= set(range(after.op_count)) - set(kept)
    for op, now in enumerate(edit.now_at):
        if now is not None and now not in edit.changed:
            assert before.ops[op].reads == edit.problem.ops[now].reads
            assert before.ops[op].writes == edit.problem.ops[now].writes


def test_after_a_small_change_little_is_ordered_again():
    made = conv_step(blocks=6)
    pricing = Pricing(EstimatedCost(get_device("rtx3090"), made.registry), made.registry)
    standing = Standing(made.graph, pricing)
    before = settled_order(standing, Limits(work=20_000))
    edit = GraphEdit(made.graph)
    node = next(n for n in made.graph.nodes if n.effects.is_pure and n.source.phase == "forward")
    was = made.graph.values[node.outputs[0]]
    copy = edit.fresh("copy", was.dtype, was.shape)
    edit.insert_after(node.id, NodeDraft("toy.mix", (was.id,), (copy,), (Ref(0),)))
    edit.replace_uses(was.id, copy)
    edited = edit.finish()
    outcome = reorder_candidate(standing, before, edited, Limits(work=20_000))
    found = outcome.require()
    problem = step_order_problem(pricing.problem(edited.graph))
    full = best_order(problem, Limits(work=200_000))
    assert evaluate_order(problem, found.order).peak_bytes == found.peak_bytes
    assert found.peak_bytes == full.require().peak_bytes
    assert found.order_lower_bound_bytes == full.require().order_lower_bound_bytes
