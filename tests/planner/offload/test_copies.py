"""What a plan says of its copies: as the timeline plays them, kept in its file, and checked."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import PlanError
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.check_plan import check_program, problem_of
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.pricing import Pricing
from neaptide.plans import Plan
from support.catalogue import graph_of

REGISTRY = registry()
DEVICE = get_device("rtx3090")


def factory():
    """A step of a few microseconds, in which some copies are waited for."""
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Conv2d(3, 3, 3, padding=1), nn.GELU())]
    model = nn.Sequential(*layers, nn.AvgPool2d(24), nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return steps.simple(model, optimizer), torch.randn(8, 3, 24, 24)


def planned(graph, peak):
    pricing = Pricing(EstimatedCost(DEVICE, REGISTRY), REGISTRY)
    asked = GraphAsk(Budget(peak), limits=Limits(work=500), host=HostSpace.of(graph, DEVICE, 2**30))
    return plan_graph(graph, pricing, asked).program


@pytest.fixture(scope="module")
def graph():
    return graph_of(factory)


@pytest.fixture(scope="module")
def program(graph):
    return planned(graph, "50%")


def test_each_offload_has_its_copies_in_the_order_of_the_step(graph, program):
    copies, made, host = program.copies, program.predictions, HostSpace.of(graph, DEVICE, 2**30)
    assert program.offloads
    assert made.exposed_seconds > 0
    for offload, row in zip(program.offloads, copies.rows, strict=True):
        assert row.nbytes == graph.storages[offload.storage].nbytes.constant_value()
        for copy, link in ((row.out, host.out), (row.back, host.back)):
            assert copy.issued <= copy.start
            assert copy.end - copy.start == pytest.approx(link.seconds(row.nbytes))
        assert row.out.end <= row.back.issued + 1e-12
    for one in ("out", "back"):
        engine = sorted((getattr(row, one) for row in copies.rows), key=lambda copy: copy.start)
        assert all(first.end <= then.start + 1e-12 for first, then in pairwise(engine))
    assert sum(end - begin for begin, end in copies.waits) == pytest.approx(made.exposed_seconds)


def test_a_plan_without_offloads_has_no_copies(graph):
    assert planned(graph, "100%").copies is None


def test_copies_are_kept_in_the_file(program):
    assert Plan.from_json(Plan((program,)).to_json()).programs[0].copies == program.copies


def with_first(copies, **changes):
    first, *others = copies.rows
    return replace(copies, rows=(replace(first, **changes), *others))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, rows=c.rows[1:]), "copies.rows are .*, of .* offloads"),
        (lambda c: with_first(c, out=c.rows[0].back, back=c.rows[0].out), r"copies.rows\[0\] has times"),
        (lambda c: with_first(c, back=replace(c.rows[0].back, end=1e9)), r"copies.rows\[0\] has times"),
        (lambda c: replace(c, waits=()), "copies.waits take 0.0 seconds, and the plan waits"),
        (lambda c: replace(c, waits=tuple((b, a) for a, b in c.waits)), "copies.waits do not follow"),
    ],
)
def test_copies_that_contradict_the_plan_are_refused(program, change, message):
    edited = replace(program, copies=change(program.copies))
    with pytest.raises(PlanError, match=message):
        Plan.from_json(Plan((edited,)).to_json())


def test_copies_of_other_bytes_are_refused_beside_the_program(graph, program):
    step = problem_of(program, graph, REGISTRY)
    check_program(program, graph, step, REGISTRY)
    edited = replace(program, copies=with_first(program.copies, nbytes=program.copies.rows[0].nbytes + 1))
    with pytest.raises(PlanError, match=r"copies\.rows have other bytes"):
        check_program(edited, graph, step, REGISTRY)
