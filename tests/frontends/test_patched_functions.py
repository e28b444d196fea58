"""Functions of torch that the user or a library has wrapped run once, as in eager, whenever they were wrapped."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch._dynamo import eval_frame
from torch.nn import functional

from frontends.steps import update
from neaptide.errors import StepMismatch
from neaptide.frontends import _torch_private as private
from neaptide.frontends.torch_step import capture_step
from support.step_checks import planned
from support.together import together


class Network(nn.Module):
    """Calls a function of each kind: Python of torch.nn.functional, builtins, methods of tensors, a class method."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.norm = nn.GroupNorm(2, 6)

    def forward(self, x):
        x = self.norm(functional.gelu(self.inner(x)))
        x = functional.normalize(functional.softmax(x, -1) + x, dim=-1)
        heads = x.view(1, 1, *x.shape)
        x = functional.scaled_dot_product_attention(heads, heads, heads)[0, 0]
        halves = x.split(3, dim=-1)
        pairs = torch.cdist(halves[0], halves[1]) + torch.einsum("ij,kj->ik", x, x)
        return functional.huber_loss(torch.tanh(x), x.detach().clamp(-1, 1)) + pairs.mean()


MOMENTUM = functools.partial(torch.optim.SGD, momentum=0.9)


def make_step(kind=MOMENTUM):
    torch.manual_seed(0)
    model = Network()
    optimizer = kind(model.parameters(), lr=0.05)

    def step(x):
        return update(model(x).square(), optimizer)

    return step


def by_lambda(old):
    return lambda *args, **kwargs: old(*args, **kwargs) * 1.5


def by_wraps(old):
    @functools.wraps(old)
    def scaled(*args, **kwargs):
        return 0.5 * old(*args, **kwargs)

    return scaled


class Calls:
    def __init__(self, old):
        self.old = old
        functools.update_wrapper(self, old)

    def __call__(self, *args, **kwargs):
        return self.old(*args, **kwargs) + 0.25


class CallsAsMethod(Calls):
    def __get__(self, owner, _kind=None):
        return self if owner is None else functools.partial(self, owner)


def of_parts(old):
    return lambda *args, **kwargs: tuple(part * 2 for part in old(*args, **kwargs))


PATCHES = {
    "python function": (functional, "group_norm", by_lambda),
    "python function, softmax": (functional, "softmax", by_wraps),
    "python function, by an object": (functional, "normalize", Calls),
    "loss": (functional, "huber_loss", Calls),
    "builtin": (functional, "gelu", by_lambda),
    "attention": (functional, "scaled_dot_product_attention", by_wraps),
    "method in C": (torch.Tensor, "square", by_lambda),
    "method in C, by an object": (torch.Tensor, "clamp", CallsAsMethod),
    "method in Python": (torch.Tensor, "split", of_parts),
    "function of torch in C": (torch, "tanh", by_wraps),
    "function of torch in Python": (torch, "cdist", Calls),
    "einsum": (torch, "einsum", by_wraps),
}


def test_what_is_wrapped_before_the_capture_runs_once(monkeypatch):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    plain = make_step()(x)
    for owner, name, wrapper in PATCHES.values():
        with monkeypatch.context() as alone:
            alone.setattr(owner, name, wrapper(getattr(owner, name)))
            assert not torch.equal(make_step()(x), plain), name
    for owner, name, wrapper in PATCHES.values():
        monkeypatch.setattr(owner, name, wrapper(getattr(owner, name)))
    eager, step = make_step(), planned(make_step(), x)
    for _ in range(2):
        assert step(x) == eager(x)


@together("name", ["python function", "method in C", "loss"], quick=("method in C",))
def test_what_is_wrapped_between_two_calls_runs_once(name, monkeypatch):
    owner, attribute, wrapper = PATCHES[name]
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    eager, step = make_step(), planned(make_step(), x, on_mismatch="replan")
    assert step(x) == eager(x)
    monkeypatch.setattr(owner, attribute, wrapper(getattr(owner, attribute)))
    assert step(x) == eager(x)
    monkeypatch.undo()
    assert step(x) == eager(x)


@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.AdamW]
)  # the second inherits what Dynamo wraps
@pytest.mark.parametrize("old_first", [True, False])
def test_the_first_graph_that_dynamo_compiles_changes_no_step(old_first, kind, monkeypatch):
    """Dynamo wraps methods of modules and optimizers then."""
    wrapped = [(nn.Module, "__init__"), (nn.Module, "__setstate__"), (torch.optim.SGD, "_init_group")]
    methods = [private.unpatched(getattr(owner, name)) for owner, name in wrapped]
    for (owner, name), method in zip(wrapped, methods, strict=True):
        monkeypatch.setattr(owner, name, method)
    if "_init_group" in vars(torch.optim.AdamW):
        monkeypatch.delattr(torch.optim.AdamW, "_init_group")
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", True, raising=False)
    eval_frame.TorchPatcher.patch.cache_clear()
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    eager, step = make_step(kind), planned(make_step(kind), x, on_mismatch="error")
    if old_first:
        assert step(x) == eager(x)
    torch.compile(lambda y: y + 1, backend="eager")(x)
    assert "_init_group" in vars(torch.optim.AdamW)
    for (owner, name), method in zip(wrapped, methods, strict=True):
        assert getattr(owner, name) is not method
        assert private.unpatched(getattr(owner, name)) is method
    assert step(x) == eager(x)
    monkeypatch.setattr(nn.Module, "__init__", by_lambda(nn.Module.__init__))
    with pytest.raises(StepMismatch, match=r"Module\.__init__ is another object"):
        step(x)


class Scale(torch.autograd.Function):
    """Doubles; its `apply` is a class method."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_a_class_method_that_is_wrapped_runs_once(monkeypatch):
    old = Scale.apply
    monkeypatch.setattr(Scale, "apply", classmethod(lambda _cls, x: old(x) * 1.5))

    def make():
        torch.manual_seed(0)
        model = nn.Linear(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            return update(Scale.apply(model(x)).square().mean(), optimizer)

        return step

    x = torch.randn(4, 6)
    eager, step = make(), planned(make(), x)
    assert [step(x) for _ in range(2)] == [eager(x) for _ in range(2)]


def test_a_trace_is_no_function_mode():
    """Or torch's modules would leave their fast paths."""

    def step(x):
        if torch.overrides.has_torch_function((x,)):
            raise RuntimeError
        return (x * x).sum()

    capture_step(step, (torch.randn(3),))
