"""What the planner counts for C is what the C program takes, slices and joins without copies included."""

import random

import pytest

import neaptide.onnx
from neaptide.lower.c.of_model import write_c
from neaptide.lower.c.order import MOST_NUMBERS, c_problem
from neaptide.ops.onnx import registry
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.of_model import model_problem
from support.onnx_cases import graph_of, model_of

# By case the footprint in the order of the graph that counts copies, and the one of C, in floats.
CASES = {
    "parts, one of them in two steps": (
        """g (float[1,4,8,8] x, float[4,4,1,1] w) => (float[1,8,8,8] y) {
          a = Conv(x, w) b = Relu(a) c = Conv(x, w) y = Concat<axis = 1>(b, c) }""",
        (1024, 768),
    ),
    "windows": (
        """g (float[1,8,8,8] x, float[8,1,1,1] w1, float[2,4,1,1] w2) => (float[1,2,8,8] y) {
          h = Constant<value_ints = [4, 4]>() k = Conv<group = 8>(x, w1)
          a, b = Split<axis = 1>(k, h) p = Conv(a, w2) q = Conv(b, w2) y = Add(p, q) }""",
        (1024, 1024),
    ),
    "a part of what the caller hands over is copied": (
        """g (float[1,4,8,8] x, float[4,4,1,1] w, float[8,8,1,1] wj) => (float[1,8,8,8] y) {
          a = Conv(x, w) j = Concat<axis = 1>(x, a) b = Relu(j) c = Conv(b, wj) y = Add(c, b) }""",
        (1024, 1024),
    ),
}


def random_order(problem, draw):
    """Some legal order."""
    done, order = set(), []
    while len(order) < problem.op_count:
        ready = [
            op
            for op in range(problem.op_count)
            if op not in done and done.issuperset(problem.predecessors[op])
        ]
        order.append(draw.choice(ready))
        done.add(order[-1])
    return order


@pytest.mark.parametrize("case", CASES)
def test_the_program_takes_no_more_than_is_counted(case):
    text, counted = CASES[case]
    model = graph_of(text)
    graph, numbers = model.graph, model.small_numbers(MOST_NUMBERS)
    plain, seen = model_problem(graph, registry()), c_problem(graph, registry(), numbers)
    in_file_order = [
        evaluate_order(problem, range(problem.op_count)).peak_bytes // 4 for problem in (plain, seen)
    ]
    assert tuple(in_file_order) == counted
    for seed in range(5):
        order = random_order(seen, random.Random(seed))
        assert plain.is_order(order)
        peak = evaluate_order(seen, order).peak_bytes
        assert write_c(model, "m", order=order).live_bytes <= peak


def test_a_plan_for_c_counts_as_the_program_does():
    text, (_, floats) = CASES["parts, one of them in two steps"]
    plan = neaptide.onnx.plan(model_of(text), target="c", passes="none")
    assert plan.peak_bytes == floats * 4 == sum(plan.to_c("m").arena_bytes)
