"""Stays move along where results go on top of operands: still legal, and nowhere more bytes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from example_counts import examples
from frontends import steps
from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.schedule import HostStay, Schedule
from neaptide.ops import registry
from neaptide.planner.offload.carried_over import placed_again, stays_after
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.pricing import Pricing
from neaptide.runtime.steps.capturing import capture
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.staying import evaluated_with_stays
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from neaptide.transform.rules import RULES

DEVICE = get_device("rtx3090")


@cache
def both():
    """A training step, and all its results on top of operands that program order permits."""
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(6, 6), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(6, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    graph = capture(steps.simple(model, optimizer), (torch.randn(5, 6),)).steady.graph
    found = RULES["in_place"].find(graph, registry())
    rewrite = next(one for one in found if isinstance(one, Rewrite))
    return graph, apply_rewrite(graph, registry(), rewrite, RULES)


@st.composite
def stays_of(draw, gaps):
    """Some of the gaps filled, each in a part of it."""
    found = []
    for gap in gaps:
        if draw(st.booleans()):
            gone = draw(st.integers(gap.start, gap.end - 2))
            load = draw(st.integers(gone + 1, gap.end - 1))
            found.append(HostStay(gap.storage, gap.occurrence, gap.start, gone, load, gap.end))
    return tuple(sorted(found, key=lambda stay: (stay.store_behind, stay.storage, stay.occurrence)))


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_stays_are_legal_behind_the_change_and_bytes_no_more(data):
    graph, edited = both()
    assert len(edited.graph.storages) < len(graph.storages)
    host, order = HostSpace.of(graph, DEVICE, 2**30), range(len(graph.nodes))
    pricing = Pricing(EstimatedCost(DEVICE, registry()), registry())
    step = pricing.problem(edited.graph)
    stays = data.draw(stays_of(host.gaps(Evaluator(pricing.problem(graph)))))
    before = Schedule.program_order(graph).with_stays(stays)
    check_schedule(graph, before, registry())
    moved = stays_after(graph, edited, stays)
    after = Schedule.program_order(edited.graph).with_stays(moved)
    check_schedule(edited.graph, after, registry())
    profiles = memory_profile(graph, before), memory_profile(edited.graph, after)
    assert all(new <= old for old, new in zip(*(made.bytes_at for made in profiles), strict=True))
    assert profiles[1].peak_host_bytes <= profiles[0].peak_host_bytes

    budget = evaluated_with_stays(step, order, moved).peak
    there = HostSpace.of(edited.graph, DEVICE, 2**30)
    again = placed_again(step, order, moved, there, budget, "placed again")
    assert again.planned.peak_with_workspace_bytes <= budget
    assert {stay.storage for stay in again.stays} <= {stay.storage for stay in moved}
    assert again.planned.seconds == pytest.approx(step.baseline_seconds + again.exposed_s)
    check_schedule(edited.graph, Schedule.program_order(edited.graph).with_stays(again.stays), registry())
