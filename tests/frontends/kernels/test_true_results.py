"""Fake kernels that give other dtypes, strides or bytes than real ones are put right."""

from itertools import permutations, product, starmap

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from frontends.kernels.kernel_support import has_mixed_squares
from neaptide.errors import CaptureError
from neaptide.frontends.kernels import trial_operands, true_results
from neaptide.frontends.kernels.true_results import with_true_results
from programs.program import descending
from support.step_checks import assert_same_bits, joined
from support.together import together

aten = torch.ops.aten
SHAPE = (3, 4, 5)


def laid_out(order, *, gap=1):
    """Random numbers whose axes lie in memory in that order, with a gap after each row."""
    shape = [SHAPE[axis] for axis in order]
    shape[-1] *= gap
    tensor = torch.randn(shape)[..., ::gap]
    return tensor.permute([order.index(axis) for axis in range(len(SHAPE))])


ELEMENTWISE = {
    "elu_backward": lambda g, x: (aten.elu_backward.default, (g, 1.0, 1.0, 1.0, False, x)),
    "leaky_relu_backward": lambda g, x: (aten.leaky_relu_backward.default, (g, x, 0.1, False)),
    "hardtanh_backward": lambda g, x: (aten.hardtanh_backward.default, (g, x, -1.0, 1.0)),
    "silu_backward": lambda g, x: (aten.silu_backward.default, (g, x)),
    "gelu_backward": lambda g, x: (aten.gelu_backward.default, (g, x)),
    "sigmoid_backward": lambda g, x: (aten.sigmoid_backward.default, (g, x)),
    "softplus_backward": lambda g, x: (aten.softplus_backward.default, (g, x, 1.0, 20.0)),
    "threshold_backward": lambda g, x: (aten.threshold_backward.default, (g, x, 0.0)),
    "mse_loss_backward": lambda g, x: (aten.mse_loss_backward.default, (torch.ones(()), g, x, 1)),
    "softmax_backward": lambda g, x: (aten._softmax_backward_data.default, (g, x, 1, torch.float32)),
    "where": lambda g, x: (aten.where.self, (g > 0, x, g)),
    "lerp": lambda g, x: (aten.lerp.Tensor, (g, x, x)),
}


ORDERS = list(permutations(range(3)))


@together("name", ELEMENTWISE)
def test_strides_are_those_of_the_kernel_that_runs(name):
    check_strides(name, ORDERS[3:5])


@pytest.mark.slow
@together("name", ELEMENTWISE)
def test_strides_are_those_of_the_kernel_in_every_order(name):
    check_strides(name, ORDERS)


def check_strides(name, orders):
    for order, gap in product(orders, (1, 2)):
        check_strides_of(name, order, gap)


def check_strides_of(name, order, gap):
    for operands in (
        (laid_out((0, 1, 2)), laid_out(order, gap=gap)),
        (laid_out(order, gap=gap), laid_out((0, 2, 1))),
    ):
        func, args = ELEMENTWISE[name](*operands)
        assert strides_traced(func, args) == func(*args).stride()


@together("order", list(permutations(range(3))))
def test_norms_allocate_contiguous_results(order):
    x, weight = laid_out(order), torch.ones(4)
    batch_norm = (x, weight, weight, None, None, True, 0.1, 1e-5)
    normed, mean, rstd = aten.native_batch_norm.default(*batch_norm)
    assert strides_traced(aten.native_batch_norm.default, batch_norm) == normed.stride()
    backward = (x, x, weight, None, None, mean, rstd, True, 1e-5, [True, True, True])
    expected = aten.native_batch_norm_backward.default(*backward)[0].stride()
    assert strides_traced(aten.native_batch_norm_backward.default, backward) == expected

    weight = torch.ones(5)
    _, mean, rstd = aten.native_layer_norm.default(x, [5], weight, weight, 1e-5)
    backward = (x, x, [5], mean, rstd, weight, weight, [True, True, True])
    expected = aten.native_layer_norm_backward.default(*backward)[0].stride()
    assert strides_traced(aten.native_layer_norm_backward.default, backward) == expected


def traced(func, args):
    mode = FakeTensorMode()
    fakes = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, args)
    with mode:
        return with_true_results(func(*fakes), func, fakes, {})


def strides_traced(func, args):
    found = traced(func, args)
    return (found[0] if isinstance(found, (tuple, list)) else found).stride()


def group_norm(x, weight):
    return aten.native_group_norm.default, (x, weight, weight, x.shape[0], 4, x.shape[2], 2, 1e-5)


def group_norm_backward(x, weight):
    func, args = group_norm(x, weight)
    _, mean, rstd = func(*args)
    return aten.native_group_norm_backward.default, (x, x, mean, rstd, weight, *args[3:7], [True, True, True])


def batch_norm(x, weight):
    return aten.native_batch_norm.default, (x, weight, weight, None, None, True, 0.1, 1e-5)


def layer_norm(x, weight):
    return aten.native_layer_norm.default, (x.mT.contiguous(), [4], weight, weight, 1e-5)


def errors_squared(x, weight):
    target = x.float() if x.dtype is torch.bfloat16 else x.bfloat16()
    return aten.mse_loss_backward.default, (torch.ones((), dtype=x.dtype), x, target, 1)


def weight_norm(x, weight):
    return aten._weight_norm_interface.default, (x, torch.ones(x.shape[0], 1, 1, dtype=x.dtype))


MIXED = (
    *(group_norm, group_norm_backward, batch_norm, layer_norm, weight_norm),
    *((errors_squared,) if has_mixed_squares() else ()),
)


@together("call", MIXED, ids=[call.__name__ for call in MIXED])
@together("batch", [1, 700])
@together("dtype", [torch.bfloat16, torch.float16])
def test_dtypes_are_those_of_the_kernel_that_runs(call, batch, dtype):
    func, args = call(torch.randn(batch, 4, 5).to(dtype), torch.ones(4))
    real = func(*args)
    for found, expected in zip(
        *map(torch.utils._pytree.tree_leaves, (traced(func, args), real)), strict=True
    ):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)


def test_a_result_that_has_bytes_of_its_own_is_no_alias():
    x = torch.randn(3, 4)
    mode = FakeTensorMode()
    fake = mode.from_tensor(x)
    func = aten.native_dropout.default
    with mode:
        found, _ = with_true_results(func(fake, 0.3, False), func, (fake, 0.3, False), {})
    assert found.untyped_storage()._cdata != fake.untyped_storage()._cdata


def test_a_gradient_that_nobody_asks_for_is_not_made():
    x, weight = torch.randn(3, 4, 5), torch.ones(4)
    _, mean, rstd = aten.native_batch_norm.default(x, weight, weight, None, None, True, 0.1, 1e-5)
    args = (x, x, weight, None, None, mean, rstd, True, 1e-5, [False, True, True])
    assert aten.native_batch_norm_backward.default(*args)[0] is None
    assert traced(aten.native_batch_norm_backward.default, args)[0] is None


def test_a_size_that_only_a_library_knows_is_the_real_one_for_each_size_of_the_call(monkeypatch):
    """What is reserved for a backward pass: the fake kernel's guess counts only where nothing can be tried."""
    func = aten._softmax.default
    monkeypatch.setattr(true_results, "_SIZED_BY_LIBRARY", {func})
    monkeypatch.setattr(true_results, "_known", {})
    mode = FakeTensorMode()
    for rows in (3, 5):
        fake = mode.from_tensor(torch.randn(rows, 4))
        with mode:
            guessed = torch.empty(rows + 1, 4)
            found = with_true_results(guessed, func, (fake, 1, False), {})
        assert found.shape == (rows, 4)
        assert found.stride() == (4, 1)
        with mode, true_results.no_trials_on("cpu"):
            assert with_true_results(guessed, func, (fake, 1, False), {}).shape == (rows + 1, 4)


def test_what_is_known_of_a_kind_is_asked_of_the_kernel_once(monkeypatch):
    tried = []
    original = trial_operands.trial_operands
    monkeypatch.setattr(
        true_results,
        "trial_operands",
        lambda *args, **named: tried.append(args[0]) or original(*args, **named),
    )
    for batch in (30, 300, 3000):
        func, args = group_norm(torch.randn(batch, 4, 7).bfloat16(), torch.full((4,), 2.0))
        assert traced(func, args)[1].dtype is torch.float32
    assert len(tried) <= 1


def test_modes_of_the_user_do_not_see_the_trial(monkeypatch):
    seen = []

    class Seeing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, _types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(true_results, "_known", {})
    func, args = group_norm(torch.randn(30, 4, 7).bfloat16(), torch.full((4,), 2.0))
    mode = FakeTensorMode()
    fakes = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, args)
    with mode:
        found = func(*fakes)
        with Seeing():
            with_true_results(found, func, fakes, {})
    assert func not in seen


def test_numbers_that_are_drawn_in_a_trial_are_not_drawn_from_the_users_stream():
    before = torch.get_rng_state()
    traced(aten.normal.Tensor_Tensor, (torch.zeros(7, 3), torch.ones(7, 3)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_kernel_that_gives_an_operands_bytes_where_its_fake_does_not_is_refused(monkeypatch):
    func = aten.silu.default
    mode = FakeTensorMode()
    fake = mode.from_tensor(torch.randn(3, 4))
    seen = (true_results._Result(torch.float32, (4, 1), 0),)
    monkeypatch.setattr(true_results, "_try", lambda *_: seen)
    monkeypatch.setattr(true_results, "_known", {})
    with mode, pytest.raises(CaptureError, match="bytes of an operand") as refused:
        with_true_results(func(fake), func, (fake,), {})
    assert refused.value.next_step


def test_a_reshape_behind_such_a_kernel_runs():
    def factory():
        norm, mix, head = nn.LayerNorm(6), nn.Linear(5, 5), nn.Linear(6, 6)
        parameters = [*norm.parameters(), *mix.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1)

        def loss_of(x):
            h = head(x)
            h = h + mix(norm(h).mT).mT
            h = h + nn.functional.elu(mix(h.mT).mT)
            return nn.functional.mse_loss(h.flatten(1), x.flatten(1))

        return descending(optimizer, loss_of), torch.randn(4, 5, 6)

    assert_same_bits(factory)


def with_norms(norm, dtype):
    def factory():
        convolutions = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        norms = nn.ModuleList(norm() for _ in range(2))
        optimizer = torch.optim.SGD([*convolutions.parameters(), *norms.parameters()], lr=0.1)

        def loss_of(x):
            with torch.autocast("cpu", dtype):
                for convolution, normalise in zip(convolutions, norms, strict=True):
                    x = nn.functional.silu(normalise(convolution(x)))
                return x.float().square().mean()

        return descending(optimizer, loss_of), torch.randn(4, 8, 6, 6)

    return factory


def test_norms_in_full_precision_under_autocast_give_the_bits_of_eager():
    norms = (lambda: nn.GroupNorm(4, 8), lambda: nn.BatchNorm2d(8), lambda: nn.LayerNorm([8, 6, 6]))
    dtypes = (torch.bfloat16, torch.float16)
    assert_same_bits(joined(*starmap(with_norms, product(norms, dtypes))), steps=2)


def test_a_result_may_be_any_operand_of_the_storage_that_the_kernel_gives_back(monkeypatch):
    block = torch.randn(6)
    given = (block[:3], block[3:], torch.randn(3))
    monkeypatch.setattr(true_results, "_row_to_try", lambda _func: object())
    monkeypatch.setattr(true_results, "_known", {})
    for operand in (1, 2):
        told = (true_results._Result(torch.float32, (1,), operand, None),)
        monkeypatch.setattr(true_results, "_try", lambda *_given, told=told: told)
        for result in given:
            true_results._known.clear()
            if (result is given[2]) == (operand == 2):
                assert with_true_results(result, aten.addcmul.default, given, {}) is result
            else:
                with pytest.raises(CaptureError, match="bytes of an operand"):
                    with_true_results(result, aten.addcmul.default, given, {})
