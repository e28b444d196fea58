"""Lines found under some budgets bound every other one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.bounds.envelope import BoundEnvelope, BoundLine
from neaptide.planner.recompute.bounds.joint_program import JointProgram
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.strategies import program_order
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.recompute_form import InstanceNode, from_nodes
from neaptide_corpus.training_steps import toy_registry
from planner.planner_problems import instance, least_seconds
from support.drawn import examples, graphs
from support.together import together


def even(step, count, low=0.0):
    peak = program_order.baseline(step).peak_with_workspace_bytes
    least = max(step.lower_bound_bytes, int(low * peak))
    return [least + (peak - least) * k // count for k in range(count)]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.booleans()), min_size=3, max_size=4),
    st.floats(0.3, 1.0),
)
@settings(max_examples=examples(60), deadline=None)
def test_no_sequence_is_faster_than_lines_drawn_elsewhere(chain, share):
    nodes = [
        InstanceNode(f"f{k}", size, [k - 1] if k else [], seconds=float(seconds))
        for k, (size, seconds, _) in enumerate(chain)
    ]
    count = len(chain)
    for k, (size, seconds, out) in enumerate(reversed(chain)):
        deps = [count - 1 + k, count - 1 - k] if k else [count - 1]
        nodes.append(
            InstanceNode(f"b{k}", size // 2, deps, seconds=float(seconds), out=out or k == count - 1)
        )
    step = from_nodes(nodes)
    budget = int(share * program_order.baseline(step).peak_with_workspace_bytes)
    envelope = BoundEnvelope(step)
    envelope.prove_floor(program_order.baseline(step).peak_with_workspace_bytes)
    envelope.prove([b for b in even(step, 4) if b != budget])
    best = least_seconds(step, budget, most=3)
    if best is not None:
        assert envelope.seconds(budget) <= best * (1 + 1e-9)


@together("family", ["transformer", "skips", "layered"], quick=("layered",))
def test_a_line_is_below_the_program_of_its_step_under_every_budget(family):
    step = instance(family)
    envelope = BoundEnvelope(step)
    budgets = even(step, 6)
    envelope.prove(budgets)
    tables = StepTables(step, None)
    slack = 1e-7 * step.baseline_seconds
    for line in envelope.lines[::5]:
        assert line.slope <= 0.0
        for budget in np.linspace(budgets[0], budgets[-1], 5).astype(int).tolist():
            found = JointProgram(tables, (line.position,), budget).relax()
            assert found.is_infeasible or line.at(budget) <= found.bound + slack


def test_certificates_hold_for_smaller_budgets():
    step = instance("layered", 30)
    budget = even(step, 10, low=0.4)[3]
    envelope = BoundEnvelope(step)
    envelope.certify(budget)
    found = recompute_bound(step, budget)
    assert envelope.seconds(budget) == envelope.seconds(budget - 1) == found.seconds
    assert envelope.seconds(program_order.baseline(step).peak_with_workspace_bytes) == step.baseline_seconds


@given(st.data(), st.floats(0.3, 1.0))
@settings(max_examples=examples(60), deadline=None)
def test_plans_of_any_graph_keep_the_envelope_of_their_order(data, share):
    step = compile_problem(data.draw(graphs(min_nodes=2)), toy_registry())
    baseline = program_order.baseline(step)
    budget = int(share * baseline.peak_with_workspace_bytes)
    plan = plan_sequence(step, budget, Limits(work=300)).require()
    envelope = BoundEnvelope(step, plan.sequence)
    envelope.prove_floor(plan.peak_with_workspace_bytes)
    envelope.prove(even(step, 3))
    assert envelope.floor_bytes <= plan.peak_with_workspace_bytes
    if plan.peak_with_workspace_bytes <= budget:
        assert envelope.seconds(budget) <= plan.seconds + 1e-9 * step.baseline_seconds


def test_what_is_out_of_reach_and_what_is_not_asked():
    step = instance("transformer")
    guard = LimitGuard(Limits(time_s=0.0))
    envelope = BoundEnvelope(step, guard=guard)
    envelope.prove(even(step, 4))
    envelope.certify(even(step, 4)[1])
    assert envelope.lines == []
    assert envelope.seconds(step.lower_bound_bytes) == step.baseline_seconds
    assert envelope.seconds(step.lower_bound_bytes - 1) == float("inf")
    assert BoundLine(0, 10, 4.0, -0.5).at(12) == 3.0
