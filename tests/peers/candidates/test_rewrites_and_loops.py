"""Candidates that rewrite a graph or stand beside planned loops: judged as program order of the changed graph is."""

from __future__ import annotations

import math

import pytest

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Ref
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.evaluate import Evaluator
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from neaptide_peers.candidates.judge import judge_candidate
from neaptide_peers.candidates.standing import Standing
from planner.test_loop_bodies import loop_of, nested, priced
from rule_examples import EXAMPLES
from together import together

REGISTRY = registry()
LIMITS = Limits(work=100)


def counted(graph, pricing):
    """Peak and seconds of program order, each operation by itself."""
    workspace, order = pricing.prices(graph).own_workspace, Schedule.program_order(graph)
    profile = memory_profile(graph, order, binding=pricing.binding, workspace=workspace)
    seconds = math.fsum(pricing.cost.seconds(graph, node) for node in graph.nodes)
    return profile.peak_with_workspace_bytes, seconds


@together("rule", RULES)
def test_judging_a_candidate_in_program_order_says_the_same(rule):
    example = EXAMPLES[rule]()
    cost = EstimatedCost(get_device("rtx3090"), registry(), example.sizes)
    pricing = Pricing(cost, registry(), binding=example.sizes)
    edited = replay(example.graph, registry(), [example.rewrite], RULES)
    found = baseline(pricing.problem(edited.graph))
    peak, seconds = counted(edited.graph, pricing)
    assert found.peak_with_workspace_bytes == peak
    assert found.seconds == pytest.approx(seconds, abs=1e-12)
    judged = judge_candidate(Standing(example.graph, pricing), edited)
    assert judged.refusal == ""
    assert judged.seconds == pytest.approx(found.seconds, abs=1e-12)
    if judged.sequence() == tuple(range(len(edited.graph.nodes))):
        assert judged.peak_with_workspace_bytes == found.peak_with_workspace_bytes


def test_a_change_beside_a_planned_loop_is_judged_with_its_body():
    graph, pricing = nested(), priced()
    node = loop_of(graph)
    bodies = BodyPlanner(pricing, LIMITS).bodies(graph, Budget("min"))
    standing = Standing(graph, pricing, bodies=bodies)
    edit = GraphEdit(graph)
    was = graph.values[node.outputs[0]]
    copy = edit.fresh("copy", was.dtype, was.shape)
    rows = graph.values[graph.inputs[0]]
    first = edit.fresh("first", rows.dtype, rows.shape)
    edit.insert_before(0, NodeDraft("aten.clone.default", (rows.id,), (first,), (Ref(0),)))
    edit.replace_uses(rows.id, first, [0])
    edit.insert_after(node.id, NodeDraft("aten.clone.default", (was.id,), (copy,), (Ref(0),)))
    edit.replace_uses(was.id, copy, [node.id + 1])
    edited = edit.finish()
    found = judge_candidate(standing, edited)
    assert not found.refusal
    (loop,) = found.bodies()
    assert edited.node_of[loop] == node.id
    step = Pricing(pricing.cost, REGISTRY).problem(edited.graph, found.bodies())
    assert found.peak_with_workspace_bytes == Evaluator(step, found.sequence()).peak
    assert found.seconds == step.sequence_seconds(found.sequence())
    assert step == pricing.problem(edited.graph, found.bodies())
    assert step.workspace[loop] < pricing.problem(edited.graph).workspace[loop]
