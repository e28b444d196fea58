"""The numbers of a cost model as plain data: the same problems as by the model itself, also after a pickle."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from neaptide.cost.model import EstimatedCost, KnownCost
from neaptide.cost.presets import get_device
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.choices import Choices
from support.catalogue import graph_of
from support.steps import rows_step


@pytest.fixture(scope="module")
def in_parts():
    """A step in three parts, the last one shorter."""
    choices = Choices(registry(), lambda _: None)
    begun = choices.begun(graph_of(rows_step))
    choice = next(choice for choice in choices.after(begun) if choice.length % 3)
    return choices.taken(choice, 3).graph


class Measured(EstimatedCost):
    """Says that it is measured, and knows storages that are larger than the graph says."""

    is_measured = True

    def storage_bytes(self, graph, nodes=None):
        made = (s for node in nodes or graph.nodes for s in graph.created_storages(node))
        return {s: 4096 + s for s in made if s % 2}


def models():
    return [made(get_device("rtx3090"), registry()) for made in (EstimatedCost, Measured)]


def other_orders(graph):
    """Bodies that run one of their nodes twice, where it may run again: another order than that of the program."""
    found = {}
    for node in graph.nodes:
        for loop in node.regions:
            again = next(n.id for n in loop.body.nodes if n.effects.is_pure and n.inputs)
            order = [n.id for n in loop.body.nodes]
            found[node.id] = Schedule.from_nodes(loop.body, [*order[: again + 1], again, *order[again + 1 :]])
    return found


@pytest.mark.parametrize("cost", models(), ids=["estimated", "measured"])
def test_problems_are_those_of_the_model(in_parts, cost):
    known = KnownCost.of(cost, in_parts, {})
    assert known.is_measured == cost.is_measured
    there, graph = pickle.loads(pickle.dumps((known, in_parts)))
    bodies = other_orders(in_parts)
    assert bodies
    for orders in ({}, bodies):
        wanted = Pricing(cost, registry()).problem(in_parts, orders)
        for model, program in ((known, in_parts), (there, graph)):
            found = Pricing(model, registry()).problem(program, orders)
            assert (found.seconds, found.workspace) == (wanted.seconds, wanted.workspace)
            assert found.storage_bytes == wanted.storage_bytes


def test_another_graph_is_not_known(in_parts):
    known = KnownCost.of(models()[0], in_parts, {})
    other = replace(in_parts, name="another")
    first = next(node for node in other.nodes if not node.regions)
    assert isinstance(first, Node)
    with pytest.raises(KeyError):
        known.seconds(other, first)
