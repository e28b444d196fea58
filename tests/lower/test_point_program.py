"""Which values of a program with points are held in its list: all that an action names, and no others."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.schedule import Schedule
from neaptide.lower.program import Points
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.planner.points.script import Kind
from support.drawn import examples
from support.symbolic_steps import for_all_shapes

COST = EstimatedCost(get_device("rtx3090"), registry())
GRAPH = for_all_shapes(layers=2)
PLAN = point_plan(GRAPH, COST, range(len(GRAPH.nodes)), {"B": 2, "T": 3}, least_budget_bytes=0)
ORDER = Schedule.from_nodes(GRAPH, PLAN.shaped.units.order)
LAST_USE = PLAN.shaped.units.last_use
DECISIONS = Decisions(PLAN)
HELD = Points((), PLAN.repeatable, PLAN.evictable, LAST_USE).held(GRAPH)


def named_by(action):
    if action.kind is Kind.RUN:
        node = GRAPH.nodes[action.target]
        return {*node.outputs, *needed_inputs(GRAPH, node)}
    return {value.id for value in GRAPH.values if value.storage == action.target}


@settings(deadline=None, max_examples=examples(24))
@given(st.integers(1, 40), st.integers(1, 40), st.integers(50, 95))
def test_every_value_that_an_action_names_is_held(batch, tokens, share):
    sizes = {"B": batch, "T": tokens}
    budget = PLAN.shaped.at(sizes).peak_bytes * share // 100
    script = DECISIONS.of(sizes, budget).script
    for actions in script.actions.values():
        for action in actions:
            assert named_by(action) <= HELD


def test_only_held_values_are_in_the_list():
    program = lower(
        GRAPH, ORDER, registry(), points=Points(PLAN.points, PLAN.repeatable, PLAN.evictable, LAST_USE)
    )
    body = program.source.split("def program(")[1]
    indices = {int(number) for number in re.findall(r"held\w*\[(\d+)\]", body)}
    assert indices <= HELD
    made_by_nodes = {value for node in GRAPH.nodes for value in node.outputs}
    assert HELD & made_by_nodes <= indices
    assert made_by_nodes - HELD


def test_a_program_that_decides_nothing_holds_nothing():
    assert Points((), (), (), LAST_USE).held(GRAPH) == frozenset()


def test_a_view_of_an_input_does_not_stay_to_the_end():
    program = lower(GRAPH, ORDER, registry(), points=Points((), (), (), LAST_USE))
    lines = [line.strip() for line in program.source.splitlines()]
    turned = [line.split(" = ")[0] for line in lines if "aten_t_default(w0)" in line]
    assert turned
    for name in turned:
        mentions = [line for line in lines if re.search(rf"\b{name}\b", line)]
        assert mentions[-1].startswith("del ")
