"""What training steps contain: every one of them runs as a captured program with the bits of eager."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional

from frontends.steps import batch, net, sgd, simple, update
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.values import Kind
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.symbolic.size_expr import SizeExpr
from support.step_checks import (
    as_variant,
    assert_like_eager,
    assert_same_bits,
    joined,
    planned,
    program_order,
    verify,
)
from support.together import together

# -- arguments and results


@together(
    "make_args",
    [
        lambda: (({"x": batch(), "y": [torch.randn(6, 3), 2.0]},), {}),
        lambda: ((batch(), torch.randn(6, 3)), {"scale": 0.5}),
        lambda: (
            ((batch(), (torch.randn(6, 3),)),),
            {"mask": torch.ones(6, 1, dtype=torch.bool), "name": "train"},
        ),
    ],
    ids=["dict", "several", "nested"],
    quick=("nested",),
)
def test_arguments_of_any_structure(make_args):
    def make():
        torch.manual_seed(0)
        model = net()
        optimizer = sgd(model, momentum=0.9)

        def step(*args, **kwargs):
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            tensors = [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]
            factor = sum(n for n in leaves if isinstance(n, float))
            return update((model(tensors[0]) - tensors[1]).square().mean() * (1 + factor), optimizer)

        return step

    args, kwargs = make_args()
    eager, twin = make(), make()
    captured = capture_step(twin, args, kwargs)
    assert sum(s.role == "batch" for s in captured.steady.inputs) >= 2
    run = PlannedStep(twin, None, as_variant(captured, program_order))
    for _ in range(3):
        assert torch.equal(run(*args, **kwargs), eager(*args, **kwargs))


RESULTS = (
    lambda loss, out: {"loss": loss.detach(), "out": (out.detach(), "text", None, 3)},
    lambda loss, out: (loss.detach(), [out.argmax(1)]),
    lambda loss, out: None,
    lambda loss, out: loss.item(),
    lambda loss, out: {"loss": loss.item() * 2 + 1, "kept": loss},
    lambda loss, out: loss,
)


def test_results_of_any_structure():
    def make():
        torch.manual_seed(0)
        model = net()
        optimizer = sgd(model)

        def step(x):
            out = model(x)
            loss = out.square().mean()
            update(loss, optimizer)
            return [result(loss, out) for result in RESULTS]

        return step

    x = batch()
    run, eager = planned(make(), x), make()
    for _ in range(2):
        ours, theirs = run(x), eager(x)
        ours, spec = torch.utils._pytree.tree_flatten(ours)
        theirs, expected = torch.utils._pytree.tree_flatten(theirs)
        assert spec == expected
        for a, b in zip(ours, theirs, strict=True):
            assert type(a) is type(b)
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


# -- modules


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 + 0 * x


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return Doubled.apply(self.layer(x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=True)

    def forward(self, x):
        return self.attention(x[None], x[None], x[None])[0]


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))

    def forward(self, x):
        return self.spectral(self.layer(x))


MODULES = (
    Custom,
    Attention,
    lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True),
    lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.PReLU()),
    lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.GroupNorm(3, 3), nn.Flatten()),
    Normed,
)


def of_module(make):
    def factory():
        model = make()
        return simple(model, sgd(model, momentum=0.9)), batch()

    return factory


def test_modules():
    assert_same_bits(joined(*map(of_module, MODULES)))


def under_autocast(inside):
    def factory():
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())

        def step(x):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(x).float().square().mean()
            return update(loss, optimizer)

        return step if inside else torch.autocast("cpu", torch.bfloat16)(step), batch()

    return factory


def literals_made_in_the_step():
    factors, model = [0.5, 1.5, 2.5], net()
    optimizer = sgd(model)

    def step(x):
        weights = torch.tensor(factors) + torch.arange(3) + torch.ones(3)
        return update((model(x) * weights).square().mean() + torch.tensor(1.0), optimizer)

    return step, batch()


def context_managers_in_the_step():
    model, target = net(), net().requires_grad_(False)
    optimizer = sgd(model)

    def step(x):
        with torch.no_grad():
            goal = target(x)
            for mine, theirs in zip(model.parameters(), target.parameters(), strict=True):
                theirs.lerp_(mine, 0.1)
        with contextlib.nullcontext(), torch.enable_grad():
            loss = (model(x) - goal).square().mean()
        return update(loss, optimizer)

    return step, batch()


def test_contexts_and_literals():
    autocast = [under_autocast(inside) for inside in (True, False)]
    assert_same_bits(joined(*autocast, literals_made_in_the_step, context_managers_in_the_step))
    for factory in autocast:
        step, x = factory()
        assert [n for n in capture_step(step, (x,)).steady.graph.nodes if "_to_copy" in n.op]


def test_autocast_around_the_call_is_guarded():
    model = net()
    run = planned(simple(model, sgd(model)), batch())
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        run(batch())
    assert run.counts.replans == 1
    assert "autocast on cpu" in next(iter(run.counts.mismatches))


@together("what", ["module", "function", "method"], quick=("method",))
def test_compiled_parts_are_traced_through(what):
    """The user's own `torch.compile` inside the step needs no compilation at the trace."""

    def factory(*, compiled=True):
        model = net()
        optimizer = sgd(model, momentum=0.9)
        forward = model
        if compiled and what == "module":
            forward = torch.compile(model, backend="eager")
        if compiled and what == "method":
            model.compile(backend="eager")

        def loss_of(x):
            return forward(x).square().mean()

        if compiled and what == "function":
            loss_of = torch.compile(loss_of, backend="eager")

        def step(x):
            return update(loss_of(x), optimizer)

        return step, batch()

    torch.manual_seed(0)
    step, x = factory()
    run = planned(step, x)
    torch.manual_seed(0)
    eager, _ = factory(compiled=False)
    for _ in range(3):
        assert torch.equal(run(x), eager(x))


# -- operations nobody knows


@torch.library.custom_op("neaptide_tests::blend", mutates_args=())
def blend(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 0.25 + y * 0.75


@blend.register_fake
def _(x, y):
    return torch.empty_like(x)


blend.register_autograd(lambda _ctx, g: (g * 0.25, g * 0.75))


@torch.library.custom_op("neaptide_tests::fade_", mutates_args=("x",))
def fade_(x: torch.Tensor) -> None:
    x.mul_(0.5)


def test_unknown_operations_run_where_they_are_and_are_named():
    def factory():
        model = net()
        seen = torch.ones(3)
        optimizer = sgd(model)

        def step(x):
            out = model(x)
            loss = blend(out, out.detach().roll(1)).square().mean()
            loss.backward()
            fade_(seen)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach() + seen.sum()

        return step, batch()

    assert_same_bits(factory)
    step, x = factory()
    program = capture_step(step, (x,)).steady
    assert set(program.unknown_ops) == {"neaptide_tests.blend.default", "neaptide_tests.fade_.default"}
    for node in program.graph.nodes:
        assert node.effects.host == (node.op in program.unknown_ops)
    fade = next(n for n in program.graph.nodes if "fade_" in n.op)
    assert [program.graph.storages[a.storage].name for a in fade.effects.writes] == ["seen"]


# -- numbers and literals


def test_parameters_only_meant_for_reading_have_their_kinds():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    step = simple(model, sgd(model, momentum=0.9))
    graph = capture_step(step, (batch(),)).steady.graph
    storages = {graph.values[v].name: graph.values[v].storage for v in graph.inputs}
    kinds = {name: graph.storages[storage].kind for name, storage in storages.items() if storage is not None}
    assert kinds["_0_weight"] is Kind.PARAMETER
    assert kinds["_1_running_mean"] is Kind.BUFFER
    assert kinds["optimizer_state_0_weight_momentum_buffer"] is Kind.OPTIMIZER_STATE
    assert kinds["batch_0"] is Kind.INPUT


@pytest.mark.parametrize("in_batch", [True, False])
def test_all_bytes_that_a_tensor_holds_are_counted(in_batch):
    model = net()
    optimizer = sgd(model)
    window = torch.hann_window(4)  # the first four of five numbers, and yet no view as autograd knows them
    assert window.untyped_storage().nbytes() > window.nbytes

    def step(x):
        return update(model(x if in_batch else batch() * window).square().mean(), optimizer)

    graph = capture_step(step, (window if in_batch else batch(),)).steady.graph
    found = graph.values[next(v for v in graph.inputs if graph.values[v].shape == (SizeExpr.const(4),))]
    assert graph.storages[found.storage].nbytes == SizeExpr.const(window.untyped_storage().nbytes())


def test_same_tensor_twice_in_the_batch_may_differ_later():
    """Language models get `labels = input_ids`; a later batch may shift them."""

    def make():
        model = net()
        optimizer = sgd(model)
        return (lambda given: update(functional.mse_loss(model(given["x"]), given["y"][:, :3]), optimizer),)

    x, y = batch(), batch()
    assert_like_eager(make, 3, batches=lambda call: {"x": x, "y": (x, y, x)[call]})


def test_model_without_bytes_is_captured_as_one_on_the_cpu():
    with torch.device("meta"):
        model = net()
        x = torch.empty(6, 4)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().mean()
        return update(loss, optimizer)

    program = capture_step(step, (x,)).steady
    assert {s.device for s in program.graph.storages} == {"cpu"}
    assert any(v.dtype == "bfloat16" for v in program.graph.values)
    assert all(p.device.type == "meta" for p in model.parameters())


def test_a_skeleton_without_bytes_is_no_input_of_a_step_whose_other_tensors_have_bytes():
    model, skeleton = net(), net().to("meta")
    optimizer = sgd(model)

    def step(x):
        parameters = dict(model.named_parameters())
        return update(torch.func.functional_call(skeleton, parameters, (x,)).square().mean(), optimizer)

    program = capture_step(step, (batch(),)).steady
    parameters = [slot for slot in program.inputs if slot.role == "parameter"]
    assert len(parameters) == len(list(model.parameters()))
    run, x = planned(step, batch(), on_mismatch="error"), batch()
    assert run(x) != run(x)


def test_no_difference_is_hidden():
    """A verify run of a step that does something else each time says so."""
    calls = []

    def factory():
        calls.append(1)
        model = net()
        return simple(model, sgd(model, lr=0.1 * len(calls))), batch()

    outcome = verify(factory)
    assert not outcome.bitwise_equal
    assert outcome.max_abs_diff["parameters"] > 0
