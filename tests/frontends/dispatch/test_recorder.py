"""What is recorded of a step: where each operation comes from, numbers that only the data knows, constants."""

import pytest
import torch
from torch import nn

from frontends.steps import simple
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step


def captured(step, *args):
    return capture_step(step, args).steady.graph


def nodes(graph, op):
    return [node for node in graph.nodes if node.op == op]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        y = self.inner(x)
        return y.tanh() + y


def test_backward_calls_have_line_and_module_of_their_forward():
    model = nn.ModuleDict({"block": Block()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        model["block"](x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    graph = captured(step, torch.randn(3, 4))
    (backward,) = nodes(graph, "aten.tanh_backward.default")
    (forward,) = nodes(graph, "aten.tanh.default")
    assert backward.source.phase == "backward"
    assert (backward.source.line, backward.source.code) == (forward.source.line, "return y.tanh() + y")
    assert backward.source.module == forward.source.module == "block"


def test_the_update_is_of_its_own_phase():
    model = nn.Linear(2, 2)
    step = simple(model, torch.optim.SGD(model.parameters(), lr=0.1))
    phases = [node.source.phase for node in captured(step, torch.randn(3, 2)).nodes]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
    assert set(phases) == {"forward", "backward", "optimizer"}


@pytest.mark.parametrize(
    "decide",
    [
        lambda a, b: a > b,
        lambda a, b: (a + b) * 2 == (b - a) / 3,
        lambda a, b: a - a == 0,
        lambda a, b: (a**2 - b) ** 0.5 < 3,
        lambda a, b: -a == -b,
    ],
)
def test_a_branch_on_arithmetic_of_read_numbers_is_refused(decide):
    def step(x):
        return x * 2 if decide(x.sum().item(), x.max().item()) else x

    with pytest.raises(CaptureError, match="asks for a number that depends on the data"):
        captured(step, torch.randn(3))


@pytest.mark.parametrize(
    "into", [torch.mul, torch.add, torch.div, lambda x, n: x.clone().addcmul_(x, x, value=n)]
)
def test_a_read_number_changes_no_dtype_and_no_shape(into):
    def step(x):
        number = 1 / (x.sum().item() ** 2 + 1)
        return into(x, number), into(x.bfloat16(), number)

    x = torch.randn(3)
    graph = captured(step, x)
    shown = [
        (graph.values[v].dtype, [n.constant_value() for n in graph.values[v].shape]) for v in graph.outputs
    ]
    assert shown == [("float32", [3]), ("bfloat16", [3])]
    assert [t.dtype for t in step(x)] == [torch.float32, torch.bfloat16]


def test_a_number_read_from_a_literal_is_known():
    def step(x):
        half = torch.tensor(0.5).item()
        return x * half if half < 1 else x

    (times,) = nodes(captured(step, torch.randn(3)), "aten.mul.Tensor")
    assert times.args[1] == 0.5


def in_place_through_a_view(tensor, number):
    tensor.view(1).mul_(number)
    return tensor


@pytest.mark.parametrize("into", [torch.mul, torch.add, torch.Tensor.mul_, in_place_through_a_view])
def test_a_literal_changed_by_a_read_number_is_no_longer_known(into):
    def loss_of(y):
        changed = into(torch.tensor(2.0), y.detach().sum().item())
        return y.sum() * changed.item()

    def deciding(y):
        changed = into(torch.tensor(2.0), y.detach().sum().item())
        return y.sum() * 2 if changed.item() > 1 else y.sum()

    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    graph = captured(simple(model, optimizer, loss_of), torch.randn(3, 2))
    factors = [
        node for node in nodes(graph, "aten.mul.Tensor") if node.source.code.startswith("return y.sum()")
    ]
    assert {graph.values[node.inputs[1]].name.partition("dense")[0] for node in factors} == {"_local_scalar_"}
    with pytest.raises(CaptureError, match="number that"):
        captured(simple(model, optimizer, deciding), torch.randn(3, 2))


def test_a_tensor_that_is_copied_is_not_taken_for_its_original():
    def step(x):
        views = [x + 1, x + 1]
        views[0].add_(1)
        return views[0] - views[1]

    graph = captured(step, torch.randn(3))
    (difference,) = nodes(graph, "aten.sub.Tensor")
    assert len(set(difference.inputs)) == 2
    assert len(nodes(graph, "aten.add.Tensor")) == 2


def test_composite_operations_are_taken_apart_in_inference_mode():
    def step(x):
        with torch.inference_mode():
            return torch.einsum("ij,kj->ik", x, x).clone()

    ops = {node.op for node in captured(step, torch.randn(3, 2)).nodes}
    assert "aten.einsum.default" not in ops
    assert "aten.bmm.default" in ops


def test_operations_that_take_functions_are_refused_at_their_line():
    def step(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    with pytest.raises(CaptureError):
        captured(step, torch.randn(3))


def test_code_that_was_compiled_is_traced_through():
    model = nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    step = simple(compiled, torch.optim.SGD(model.parameters(), lr=0.1))
    plain = simple(model, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = torch.randn(3, 2)
    assert [n.op for n in captured(step, batch).nodes] == [n.op for n in captured(plain, batch).nodes]


def test_a_backward_inside_of_a_backward_keeps_lines_and_phase():
    class Penalised(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                (inner,) = torch.autograd.grad(again.sin().sum(), again)
            return gradient * inner

    model = nn.Linear(2, 2)
    step = simple(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda y: Penalised.apply(y).sum())
    graph = captured(step, torch.randn(3, 2))
    (cosine,) = nodes(graph, "aten.cos.default")
    assert cosine.source.phase == "backward"
    assert nodes(graph, "aten.add_.Tensor")[-1].source.phase == "optimizer"
