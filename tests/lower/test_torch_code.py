"""Lowered programs compute the recorded bits and hold exactly the predicted bytes."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_programs import Recorder, bits, check_run, random_order, random_program, with_recomputation

from neaptide.analysis.legality import check_schedule
from neaptide.errors import LoweringError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Named, Ref
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide.lower.program import Watch
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.ops.structural import CONSTANT_OP
from neaptide.runtime.executor import Executable

SLOW_DRAWS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def executable(graph, schedule, **options):
    return Executable(lower(graph, schedule, registry(), **options), name="test")


def code(graph, schedule=None, **options):
    return lower(graph, schedule or Schedule.program_order(graph), registry(), **options).source


@SLOW_DRAWS
@given(st.data())
def test_random_program_in_program_order(data):
    recorder, graph = random_program(data.draw)
    schedule = Schedule.program_order(graph)
    check_run(recorder, graph, schedule, executable(graph, schedule))


@SLOW_DRAWS
@given(st.data())
def test_random_program_in_a_random_order(data):
    recorder, graph = random_program(data.draw)
    schedule = Schedule.from_nodes(graph, random_order(data.draw, graph))
    check_schedule(graph, schedule, registry())
    check_run(recorder, graph, schedule, executable(graph, schedule))


@SLOW_DRAWS
@given(st.data())
def test_random_program_with_recomputation(data):
    recorder, graph = random_program(data.draw)
    order = with_recomputation(data.draw, graph, random_order(data.draw, graph))
    schedule = Schedule.from_nodes(graph, order)
    check_run(recorder, graph, schedule, executable(graph, schedule))
