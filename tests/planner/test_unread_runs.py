"""Executions that nobody reads are left out; what is left is legal."""

from __future__ import annotations

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.replay import repeat_rule
from neaptide.ir.schedule import Schedule
from neaptide.planner.unread_runs import without_unread_runs
from neaptide_corpus.training_steps import conv_step


def test_a_run_that_is_repeated_before_anybody_reads_it_is_left_out():
    made = conv_step(blocks=2)
    graph = made.graph
    order = range(len(graph.nodes))
    pure = {
        node.id
        for node in graph.nodes
        if not node.effects.writes and repeat_rule(graph, node, made.registry).is_allowed
    }
    assert pure
    twice = [number for number in order for _ in range(1 + (number in pure))]
    left = without_unread_runs(graph, twice)
    check_schedule(graph, Schedule.from_nodes(graph, left), made.registry)
    assert left == tuple(order)


def test_a_run_that_is_read_stays():
    made = conv_step(blocks=1)
    order = tuple(range(len(made.graph.nodes)))
    assert without_unread_runs(made.graph, order) == order
