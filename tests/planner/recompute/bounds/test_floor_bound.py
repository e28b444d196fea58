"""No plan gets below the floor's bound, and sometimes one reaches it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.planner.recompute.bounds.floor import floor_bound, outputs_bound, pinned_bytes
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.strategies import program_order
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.training_steps import conv_step, transformer_step
from planner_problems import compiled, least_seconds


def random_instance(seed, count):
    draw = random.Random(seed)
    return from_nodes(
        [
            InstanceNode(
                f"n{k}",
                draw.randint(0, 9),
                sorted(draw.sample(range(k), min(k, draw.randint(1, 2)))),
                out=k == count - 1 or draw.random() < 0.3,
                workspace=draw.choice((0, 0, 3)),
            )
            for k in range(count)
        ]
    )


@given(st.integers(0, 10**6), st.integers(3, 6))
@settings(max_examples=examples(120), deadline=None)
def test_no_sequence_has_a_lower_peak(seed, count):
    step = random_instance(seed, count)
    peak = program_order.baseline(step).peak_with_workspace_bytes
    bound = floor_bound(StepTables(step, None), peak)
    assert step.lower_bound_bytes <= bound <= peak
    assert outputs_bound(step) <= bound
    assert least_seconds(step, bound - 1, most=None) is None


def test_outputs_are_made_beside_each_other():
    # Two outputs of 4 bytes, each made from a storage of 8 bytes: the second needs its operand beside the first.
    step = from_nodes(
        [
            InstanceNode("a", 8, []),
            InstanceNode("b", 4, [0], out=True),
            InstanceNode("c", 8, []),
            InstanceNode("d", 4, [2], out=True),
        ]
    )
    assert step.lower_bound_bytes == 12
    assert outputs_bound(step) == 16
    assert floor_bound(StepTables(step, None), 99) == 16
    assert least_seconds(step, 16, most=None) is not None


@pytest.mark.parametrize("make", [transformer_step, conv_step])
def test_what_cannot_be_made_again_stays(make):
    step = compiled(make())
    tables = StepTables(step, None)
    pinned = pinned_bytes(tables)
    assert (pinned <= tables.profile).all()
    assert pinned.min() >= step.resident_bytes
    peak = program_order.baseline(step).peak_with_workspace_bytes
    assert int(pinned.max()) <= floor_bound(tables, peak) <= peak
