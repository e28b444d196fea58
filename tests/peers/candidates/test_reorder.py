"""A changed graph is ordered again as if it had been ordered from nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ir.random_edits import edited_graphs
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.order.from_step import step_order_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide_corpus.training_steps import toy_registry
from neaptide_peers.candidates.reorder import reorder_candidate, settled_order
from neaptide_peers.candidates.standing import Standing
from peers.candidates.seen_cost import SeenCost
from schedule.order.order_problems import brute_force
from support.drawn import examples, graphs, segmented

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
