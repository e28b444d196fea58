"""Rewritten programs of torch operations give the bits that were recorded, in the bytes that are predicted."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from neaptide.transform.rewrite import apply_rule
from neaptide.transform.rules import RULES
from support.drawn import examples
from support.torch_programs import check_run, random_program
from transform.graph_play import doubled


@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_random_program_whose_equal_operations_run_once(data):
    recorder, graph = random_program(data.draw)
    made = doubled(data.draw, graph)
    made = made.then(apply_rule(made.graph, registry(), RULES["common_subexpressions"]).edited)
    recorder.follow(made, graph)
    schedule = Schedule.program_order(made.graph)
    check_run(
        recorder, made.graph, schedule, Executable(lower(made.graph, schedule, registry()), name="test")
    )
