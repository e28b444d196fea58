"""No plan crosses a segment: first executions keep to its borders, whichever strategy made it."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.budget import Budget
from neaptide.errors import VerifyError
from neaptide.ir.graph import Segment
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.strategies import NAMES
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner.given_cost import given_pricing
from support.drawn import graphs, segmented
from support.together import together

STRATEGIES = ("default", *NAMES[:6])


def by_phase(made):
    """A step whose forward, backward and optimizer are segments."""
    phases = [node.source.phase for node in made.graph.nodes]
    ends = [0]
    for _, group in groupby(phases):
        ends.append(ends[-1] + len(list(group)))
    segments = tuple(Segment(f"part {k}", a, b) for k, (a, b) in enumerate(pairwise(ends)))
    assert len(segments) >= 2
    return replace(made.graph, segments=segments)


def planned(graph, registry, seconds, budget, **options):
    pricing = given_pricing(registry, seconds)
    return plan_graph(graph, pricing, GraphAsk(Budget(budget), limits=Limits(work=150), **options))


def assert_keeps_to_segments(graph, found):
    segment_of = [number for number, s in enumerate(graph.segments) for _ in range(s.start, s.end)]
    order = list(dict.fromkeys(found.program.sequence))
    assert [segment_of[node] for node in order] == segment_of


@together("made", [transformer_step(layers=2), conv_step(blocks=2)], ids=["transformer", "conv"])
@together("name", STRATEGIES, quick=("default",))
@together("budget", ["60%", "min"])
def test_plans_of_a_training_step_in_segments(made, name, budget):
    graph = by_phase(made)
    assert_keeps_to_segments(graph, planned(graph, made.registry, made.seconds, budget, strategy=name))


@together("budget, options", [("90%", {"atomic": True}), (None, {})])
def test_other_plans_of_a_training_step_in_segments(budget, options):
    made = transformer_step(layers=2)
    graph = by_phase(made)
    assert_keeps_to_segments(graph, planned(graph, made.registry, made.seconds, budget, **options))


@given(st.data(), st.sampled_from(STRATEGIES), st.floats(0.3, 1.0))
def test_plans_of_any_graph_in_segments(data, name, share):
    graph = data.draw(segmented(data.draw(graphs(min_nodes=1, max_nodes=12))))
    found = planned(graph, toy_registry(), [1.0] * len(graph.nodes), f"{100 * share:.3f}%", strategy=name)
    assert_keeps_to_segments(graph, found)


def test_an_update_that_crosses_a_segment_is_refused_and_a_repetition_is_not():
    made = transformer_step(layers=2)
    graph = by_phase(made)
    whole = planned(made.graph, made.registry, made.seconds, "60%", strategy="early_updates")
    assert whole.program.moves.updates_moved_earlier
    check_schedule(made.graph, whole.schedule, made.registry)
    with pytest.raises(VerifyError, match="cannot run"):
        check_schedule(graph, whole.schedule, made.registry)
    found = planned(graph, made.registry, made.seconds, "60%")
    assert found.program.moves.recomputations
    last = graph.segments[0].end - 1
    schedule = Schedule.from_nodes(graph, found.program.sequence)
    places = {step.target: place for place, step in enumerate(schedule.steps) if step.occurrence == 0}
    again = [place for place, step in enumerate(schedule.steps) if step.occurrence]
    # What the forward made is made again in the backward.
    assert max(again) > max(places[node] for node in range(last + 1))
