"""The backward pass in Python gives what PyTorch's engine gives: gradients bit for bit, and the same operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from neaptide import zoo
from neaptide.frontends.card.backward_pass import BackwardPasses
from neaptide.frontends.objects.places import all_replaced
from neaptide.frontends.torch_step import capture_step


def in_python() -> Any:
    """Backward passes inside are walked in Python."""
    return all_replaced(BackwardPasses().replacements())


class Doubled(torch.autograd.Function):
    """Two results, an operand that is no tensor, and one that wants no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float, other: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return x * factor + other, y.exp()

    @staticmethod
    def backward(ctx: Any, of_first: Tensor, of_second: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, y = ctx.saved_tensors
        return of_first * ctx.factor, None, None, of_second * y.exp() + x.sum()


class WithoutZeros(torch.autograd.Function):
    """Wants no zeros for a result that has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, of_first: Tensor | None, of_second: Tensor | None) -> Tensor | None:  # type: ignore[override]
        return None if of_first is None else (of_first * 2 if of_second is None else of_first)


def _leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).requires_grad_() for shape in shapes]


def fan_in() -> list[Any]:
    a, b = _leaves((4, 3), (3,))
    c = a * b + a.sin() + b
    (c.relu() * c + c.sum(0) * a.double().float()).sum().backward()
    return [a.grad, b.grad]


def same_gradient_twice() -> list[Any]:
    a, b = _leaves((3,), (3,))
    (a + b).sum().backward()
    (a + b).square().sum().backward()
    return [a.grad, b.grad]


def not_contiguous() -> list[Any]:
    (a,) = _leaves((4, 3))
    a = a.detach().t().requires_grad_()
    (a.t() @ a).sum().backward()
    return [a.grad, a.grad.stride()]


def other_dtypes() -> list[Any]:
    a, b = _leaves((3, 3), (3,))
    half = a.to(torch.bfloat16) @ b.to(torch.bfloat16)
    torch.view_as_real(torch.fft.fft(half.float() * a)).square().sum().backward()
    return [a.grad, b.grad]


def hooks() -> list[Any]:
    a, b = _leaves((3,), (3,))
    seen: list[Any] = []
    a.register_hook(lambda g: g * 2)
    a.register_hook(lambda g: seen.append(g.clone()))
    b.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    c = a * b
    c.register_hook(lambda g: g + 1)
    c.retain_grad()
    d = c.exp()
    d.grad_fn.register_prehook(lambda gs: (gs[0] * 3,))
    d.grad_fn.register_hook(lambda made, given: (made[0] + given[0],))
    removed = c.register_hook(lambda g: g * 100)
    removed.remove()
    d.sum().backward()
    return [a.grad, b.grad, c.grad, *seen]


def module_hooks() -> list[Any]:
    (x,) = _leaves((2, 3))
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    seen: list[Any] = []
    net[0].register_full_backward_hook(lambda _m, made, given: seen.extend((*made, *given)))
    net[2].register_full_backward_pre_hook(lambda _m, given: (given[0] * 2,))
    net(x).sum().backward()
    return [x.grad, *(p.grad for p in net.parameters()), *seen]


def custom_functions() -> list[Any]:
    x, other, y = _leaves((3,), (3,), (3,))
    first, second = Doubled.apply(x, 2.0, other.detach(), y)
    third, _ = WithoutZeros.apply(second)
    (first.sum() + third.sum()).backward()
    only, _unused = Doubled.apply(x, 3.0, other.detach(), y)
    only.sum().backward()
    return [x.grad, other.grad, y.grad]


def asked_inputs() -> list[Any]:
    a, b = _leaves((3,), (3,))
    c = a * b
    d = c.exp() + a
    e = d.sin()
    d.register_hook(lambda g: g * 2)
    some = torch.autograd.grad(e, (c, d, a), torch.ones(3) * 2, retain_graph=True)
    unused = torch.autograd.grad(d.sum(), (c, e), allow_unused=True, retain_graph=True)
    with pytest.raises(RuntimeError, match="used in the graph"):
        torch.autograd.grad(c.sum(), (e,), retain_graph=True)
    e.sum().backward(inputs=[b, c])
    return [*some, *unused, a.grad, b.grad, c.grad]


def second_order() -> list[Any]:
    a, b = _leaves((3,), (3,))
    y = (a.exp() * b).sum()
    (first,) = torch.autograd.grad(y, a, create_graph=True)
    (first * first).sum().backward()
    return [first, a.grad, b.grad]


def several_roots() -> list[Any]:
    a, b = _leaves((3,), (2, 3))
    c = a.exp()
    torch.autograd.backward([c, c * b, b], [torch.ones(3), torch.ones(2, 3) * 2, torch.ones(2, 3)])
    return [a.grad, b.grad]


def kept_graph() -> list[Any]:
    (a,) = _leaves((3,))
    y = a.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    return [a.grad]


def checkpoints() -> list[Any]:
    (x,) = _leaves((4, 3))
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    for reentrant in (True, False):
        checkpoint(net, checkpoint(net, x, use_reentrant=reentrant), use_reentrant=reentrant).sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


def multi_grad_hooks() -> list[Any]:
    a, b = _leaves((3,), (3,))
    c, d = a * 2, b * 3
    seen: list[Any] = []
    torch.autograd.graph.register_multi_grad_hook([c, d], seen.extend)
    (c * d).sum().backward()
    return [a.grad, b.grad, *seen]


def lstm() -> list[Any]:
    (x,) = _leaves((5, 2, 3))
    net = nn.LSTM(3, 4, 2)
    net(x)[0].square().sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


def attention() -> list[Any]:
    (x,) = _leaves((2, 6, 8))
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net(x).square().sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


PROGRAMS = (
    *(fan_in, same_gradient_twice, not_contiguous, other_dtypes, hooks, module_hooks, custom_functions),
    *(asked_inputs, second_order, several_roots, kept_graph, checkpoints, multi_grad_hooks, lstm, attention),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gives_the_bits_of_the_engine(program: Callable[[], list[Any]]) -> None:
    torch.manual_seed(1)
    expected = program()
    torch.manual_seed(1)
    with in_python():
        found = program()
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other) if isinstance(other, Tensor) else one == other


def _bits(spec: str) -> list[Tensor]:
    step, batch = zoo.factory(spec)()
    losses = [step(batch), step(batch)]
    optimizer = next(
        c.cell_contents for c in step.__closure__ if isinstance(c.cell_contents, torch.optim.Optimizer)
    )
    return [*losses, *(p.detach() for group in optimizer.param_groups for p in group["params"])]


def _check_zoo(name: str) -> None:
    spec = f"{name}@tiny"
    expected = _bits(spec)
    with in_python():
        found = _bits(spec)
    assert all(map(torch.equal, found, expected))


QUICK = ("mlp", "gpt2", "llama", "bert", "vit", "unet", "lstm", "btlm")


@pytest.mark.parametrize("name", QUICK)
def test_trains_a_model_to_the_same_bits(name: str) -> None:
    _check_zoo(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(zoo.names()) - set(QUICK)))
def test_trains_every_model_to_the_same_bits(name: str) -> None:
    _check_zoo(name)


@pytest.mark.parametrize("spec", ["mlp@tiny", "gpt2@tiny,layers=1,dropout=0.1,precision=bf16"])
def test_records_the_operations_of_the_engine(spec: str) -> None:
    _check_operations(spec)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["gpt2@tiny,dropout=0.1,precision=bf16", "unet@tiny"])
def test_records_the_operations_of_the_engine_in_larger_models(spec: str) -> None:
    _check_operations(spec)


def _check_operations(spec: str) -> None:
    step, batch = zoo.factory(spec)()
    expected = capture_step(step, (batch,)).steady.graph
    with in_python():
        found = capture_step(step, (batch,)).steady.graph
    assert [node.op for node in found.nodes] == [node.op for node in expected.nodes]


@pytest.mark.parametrize("keeps", [False, True])
def test_what_a_kernel_reserved_is_copied_where_the_graph_is_kept(keeps: bool) -> None:
    """By its formula, which cannot know in Python whether it is."""
    weight, bias = _leaves((4,), (4,))
    statistics = torch.zeros(4), torch.ones(4)

    def step(images: Tensor) -> list[Any]:
        given = (images, weight, bias, *statistics, 0.1, 1e-5)
        loss = torch.ops.aten._batch_norm_with_update.default(*given)[0].square().sum()
        loss.backward(retain_graph=keeps)
        made = [weight.grad, bias.grad]
        weight.grad = bias.grad = None
        return made

    def operations() -> list[str]:
        return [node.op for node in capture_step(step, (torch.ones(2, 4, 3, 3),)).steady.graph.nodes]

    expected = operations()
    with in_python():
        assert operations() == expected
    assert ("aten.clone.default" in expected) == keeps
