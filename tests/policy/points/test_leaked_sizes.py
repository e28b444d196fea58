"""A program for all shapes in which a size of the example was left behind is refused, with the operation that has it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from neaptide.ops import registry
from neaptide.policy.points.for_all_shapes import for_all_shapes
from neaptide.policy.points.leaked_sizes import check_sizes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.symbolic.size_expr import SizeExpr
from support.step_checks import needs_varying_dims

pytestmark = needs_varying_dims

WIDTH = 4


@pytest.fixture(scope="module")
def whole():
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        count, length, _ = x.shape
        found = model(x.reshape(count * length, WIDTH)) + torch.arange(count * length).unsqueeze(1)
        loss = found.reshape(count, length, WIDTH).mean(1).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    batch = torch.randn(3, 5, WIDTH)
    return capture_step(step, (batch,), dynamic={"x": {0: (1, 64), 1: (2, 64)}})


def with_numbers(arg, example):
    if isinstance(arg, tuple):
        return tuple(with_numbers(item, example) for item in arg)
    return arg.evaluate(example) if isinstance(arg, SizeExpr) else arg


def leaking(program, node, example):
    """The program with the sizes of the example in the arguments of one node."""
    nodes = list(program.graph.nodes)
    nodes[node] = replace(nodes[node], args=with_numbers(nodes[node].args, example))
    return replace(program, graph=replace(program.graph, nodes=tuple(nodes)))


def test_each_argument_with_a_size_of_the_example_is_found_and_its_operation_is_named(whole):
    for program in whole.programs:  # with expressions everywhere
        check_sizes(program, whole.sizes.examples, registry())
    program, example = whole.steady, whole.sizes.examples
    found = []
    for node in program.graph.nodes:
        other = leaking(program, node.id, example)
        if other.graph.nodes[node.id].args == node.args:
            continue
        if node.op == "aten.div.Scalar":  # the number of elements in a mean changes no size
            check_sizes(other, example, registry())
            continue
        with pytest.raises(CaptureError, match=f"{node.op} has a size of the example") as caught:
            check_sizes(other, example, registry())
        assert f"x_0 = {example['x_0']}" in caught.value.why
        found.append(node.op)
    assert {"aten.arange.default", "aten.view.default"} <= set(found)


def test_a_size_of_a_result_that_should_vary_is_found_and_planning_refuses_it(whole):
    graph, example = whole.steady.graph, whole.sizes.examples
    node = next(node for node in graph.nodes if node.op == "aten.arange.default")
    (value,) = node.outputs
    values = list(graph.values)
    values[value] = replace(values[value], shape=(SizeExpr.const(15),))
    program = replace(whole.steady, graph=replace(graph, values=tuple(values)))
    with pytest.raises(CaptureError, match="a size of the example"):
        check_sizes(program, example, registry())
    made = replace(whole, steady=leaking(whole.steady, node.id, example))
    with pytest.raises(CaptureError, match=r"aten\.arange\.default has a size of the example"):
        for_all_shapes(PreparedStep(made), Ask(Budget("100%")))
