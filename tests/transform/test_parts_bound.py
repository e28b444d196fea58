"""What parts cannot go below: reached where only one operation is large, and kept to by every region in any parts."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide import zoo
from neaptide.analysis.axes.follow import follow
from neaptide.analysis.bounds import lower_bound_bytes
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.dependencies import predecessors
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.variants.choices import ladder
from neaptide.planner.variants.looked_at import axes_of
from neaptide.planner.variants.merges import merged, without_joins
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.fission.bound import parts_lower_bound_bytes
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from planner.variants.variant_search import choices_of_all
from schedule.order.small_orders import linear_extensions
from support.catalogue import graph_of

ROWS = 12


def persistent_bytes(graph):
    return sum(graph.storages[s].nbytes.constant_value() for s in graph.input_storages())


def peak(graph):
    return memory_profile(graph, Schedule.program_order(graph)).peak_bytes


def chain():
    """Pointwise work on rows: all of it may run row by row; its sum is a number."""

    def step(x):
        return x.exp().sin().cos().sum()

    graph = capture(step, (torch.randn(ROWS, 64),)).steady.graph
    axis = follow(graph, registry(), {graph.inputs[0]: Along(0)}, ROWS)
    return graph, axis


def test_of_pointwise_work_an_operand_and_a_result_of_one_part_are_left():
    graph, axis = chain()
    assert parts_lower_bound_bytes(graph, [axis]) == persistent_bytes(graph) + 2 * 64 * 4


def test_what_needs_the_whole_axis_is_counted_whole():
    norm = nn.BatchNorm1d(64)

    def step(x):
        return F.relu(norm(x.exp())).sum().detach()

    graph = capture(step, (torch.randn(ROWS, 64),)).steady.graph
    value = next(v for v in graph.inputs if [e.constant_value() for e in graph.values[v].shape] == [ROWS, 64])
    axis = follow(graph, registry(), {value: Along(0)}, ROWS)
    assert axis.barriers
    assert parts_lower_bound_bytes(graph, [axis]) >= persistent_bytes(graph) + 2 * ROWS * 64 * 4


@pytest.mark.parametrize(
    "name",
    [
        "mlp@tiny",
        pytest.param("unet@tiny", marks=pytest.mark.slow),
        pytest.param("gpt2@tiny", marks=pytest.mark.slow),
        pytest.param("resnet50@tiny", marks=pytest.mark.slow),
    ],
)
def test_no_region_in_any_number_of_parts_goes_below_it(name):
    graph = graph_of(zoo.factory(name, device="meta"))
    choices = choices_of_all()
    begun = choices.begun(graph)
    found = choices.after(begun)
    axes = axes_of(begun, found, registry())
    bound = parts_lower_bound_bytes(begun.graph, axes)
    apart = without_joins(begun, choices)
    of_rewritten = parts_lower_bound_bytes(
        apart.graph, axes_of(apart, found, registry()), rewritten=registry()
    )
    assert persistent_bytes(graph) <= bound <= lower_bound_bytes(begun.graph)
    assert persistent_bytes(graph) <= of_rewritten <= lower_bound_bytes(merged(begun, choices).graph)
    made = 0
    for choice in found:
        for parts in itertools.islice(ladder(choice.length), 0, None, 3):
            variant = choices.taken(choice, parts)
            if variant is not None:
                # Of any order of the nodes, and of what is left of them by recomputation, this is a bound as well.
                assert lower_bound_bytes(variant.graph) >= bound
                assert lower_bound_bytes(merged(variant, choices).graph) >= of_rewritten
                made += 1
    assert made


def test_of_a_tiny_graph_no_region_in_no_more_parts_goes_below_it_in_any_order():
    w = torch.ones(6, 5)

    def step(x):
        return ((x.exp() @ w) * x.sum(1, keepdim=True)).sum()

    graph = capture(step, (torch.randn(ROWS, 6),)).steady.graph
    rows = {v: Along(0) for v in graph.inputs if graph.values[v].shape[0].constant_value() == ROWS}
    axis = follow(graph, registry(), rows, ROWS)
    known, lowest = 0, {}
    for count in range(1, len(graph.nodes) + 1):
        for members in itertools.combinations([node.id for node in graph.nodes], count):
            nodes = [graph.nodes[member] for member in members]
            made = {value for node in nodes for value in node.outputs}
            handed = {
                v: axis.axes[v] for node in nodes for v in node.inputs if v in axis.axes and v not in made
            }
            for parts in (2, 5):
                try:
                    split = fission(graph, members, length=ROWS, parts=parts, inputs=handed)
                    variant = replay(graph, registry(), [split], RULES).graph
                except RewriteError:
                    continue
                least = min(
                    memory_profile(variant, Schedule.from_nodes(variant, order)).peak_bytes
                    for order in linear_extensions(predecessors(variant))
                )
                lowest[parts] = min(lowest.get(parts, least), least)
                known += 1
    assert known > 15
    assert parts_lower_bound_bytes(graph, [axis]) <= min(lowest.values())


def test_without_axes_it_is_the_bound_of_any_schedule():
    graph, _ = chain()
    scratch = {2: 10_000}
    assert parts_lower_bound_bytes(graph, [], workspace=scratch) == lower_bound_bytes(
        graph, workspace=scratch
    )


def test_scratch_counts_where_an_operation_runs_whole():
    graph, axis = chain()
    inside = next(iter(axis.members))
    scratch = {inside: 10**6}
    assert parts_lower_bound_bytes(graph, [axis], workspace=scratch) < 10**6
