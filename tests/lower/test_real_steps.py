"""Whole training steps, optimizer included: the same bits and exactly the predicted bytes, in any legal order."""

from __future__ import annotations

import random

import pytest

from neaptide.analysis.legality import check_schedule
from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from neaptide.zoo.spec import factory
from recorded_steps import record_step
from torch_programs import check_run, shuffled, with_repetitions

SLOW = [pytest.param(spec, marks=pytest.mark.slow) for spec in ("unet", "vit", "llama")]


@pytest.mark.parametrize("spec", ["mlp", "lstm", "resnet50", "gpt2", *SLOW])
def test_recorded_step(spec):
    if spec in {"vit", "gpt2", "llama"}:
        pytest.importorskip("transformers")
    recorder, graph = record_step(factory(spec))
    chance = random.Random(1)
    order = shuffled(graph, chance)
    orders = [range(len(graph.nodes)), order, with_repetitions(graph, order, chance, tries=12)]
    assert len(orders[-1]) > len(order)
    for nodes in orders:
        schedule = Schedule.from_nodes(graph, nodes)
        check_schedule(graph, schedule, registry())
        executable = Executable(lower(graph, schedule, registry()), name=spec)
        check_run(recorder, graph, schedule, executable)
