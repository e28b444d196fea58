"""Fake kernels that give other strides than real ones are put right."""

from itertools import permutations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from neaptide.frontends.true_strides import with_true_strides
from step_checks import assert_same_bits

aten = torch.ops.aten
SHAPE = (3, 4, 5)


def laid_out(order, *, gap=1):
    """Random numbers whose axes lie in memory in that order, with a gap behind each row."""
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


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("gap", [1, 2])
def test_strides_are_those_of_the_kernel_that_runs(name, order, gap):
    for operands in (
        (laid_out((0, 1, 2)), laid_out(order, gap=gap)),
        (laid_out(order, gap=gap), laid_out((0, 2, 1))),
    ):
        func, args = ELEMENTWISE[name](*operands)
        assert strides_traced(func, args) == func(*args).stride()


@pytest.mark.parametrize("order", list(permutations(range(3))))
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


def strides_traced(func, args):
    mode = FakeTensorMode()
    fakes = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, args)
    with mode:
        found = with_true_strides(func(*fakes), func, fakes, {})
    return (found[0] if isinstance(found, (tuple, list)) else found).stride()


def test_a_reshape_behind_such_a_kernel_runs():
    def factory():
        norm, mix, head = nn.LayerNorm(6), nn.Linear(5, 5), nn.Linear(6, 6)
        parameters = [*norm.parameters(), *mix.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1)

        def step(x):
            h = head(x)
            h = h + mix(norm(h).mT).mT
            h = h + nn.functional.elu(mix(h.mT).mT)
            loss = nn.functional.mse_loss(h.flatten(1), x.flatten(1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step, torch.randn(4, 5, 6)

    assert_same_bits(factory)
