"""Gradients of exported models, by all of their parameters, are those of PyTorch; and products with Hessians."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import neaptide.onnx
from autodiff.gradient_play import run
from neaptide.autodiff.errors import GradientError
from neaptide.autodiff.hessian import hessian_vector_product
from neaptide_corpus.onnx_models.exported import CASES

FAST = ("two_convolutions",)
REFUSED = {"gru": "GRU", "shufflenet": "SequenceAt"}  # as the exporter writes them before it optimises
LONG = tuple(name for name in CASES if name not in {*FAST, *REFUSED})


class Loss(nn.Module):
    """The mean square of what a module gives."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        made = self.inner(*given)
        return sum(one.square().mean() for one in (made if isinstance(made, tuple) else (made,)))


def export(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> onnx.ModelProto:
    """As it is: an optimiser of models would share equal parameters."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        names = [f"x{i}" for i in range(len(inputs))]
        program = torch.onnx.export(
            module,
            inputs,
            dynamo=True,
            opset_version=20,
            optimize=False,
            verbose=False,
            input_names=names,
            output_names=["loss"],
        )
    return program.model_proto


def _parameters(module: nn.Module, model: onnx.ModelProto) -> dict[str, torch.Tensor]:
    held = {tensor.name for tensor in model.graph.initializer}
    return {name: p for name, p in module.named_parameters() if name in held}


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_gradients_of_a_model_are_those_of_torch(name: str) -> None:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    module, given = Loss(make()).eval(), inputs()
    model = export(module, given)
    wanted = _parameters(module, model)
    assert len(wanted) == len(list(module.parameters()))
    extended = neaptide.onnx.grad(model, loss="loss", wrt=list(wanted))
    found = run(extended, {f"x{i}": x.numpy() for i, x in enumerate(given)})
    gradients = torch.autograd.grad(module(*given), list(wanted.values()))
    largest = max(float(g.abs().max()) for g in gradients)
    for parameter, gradient in zip(wanted, gradients, strict=True):
        error = np.abs(found[f"{parameter}_grad"] - gradient.numpy()).max()
        assert error <= 1e-5 * max(largest, 1e-3), parameter


SMALL = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 2)),
        (3, 6),
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Softplus(),
            nn.Conv2d(4, 4, 3, 2, 1, groups=4),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 3),
        ),
        (2, 2, 16, 16),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_products_with_the_hessian_of_a_model_are_those_of_torch(name: str) -> None:
    import onnx_ir as ir

    make, shape = SMALL[name]
    torch.manual_seed(0)
    module, x = Loss(make()), torch.randn(shape)
    model = export(module, (x,))
    wanted = _parameters(module, model)
    twice = ir.to_proto(hessian_vector_product(ir.from_proto(model), "loss", list(wanted)))
    directions = {key: torch.randn(p.shape) for key, p in wanted.items()}
    found = run(twice, {"x0": x.numpy(), **{f"{key}_direction": v.numpy() for key, v in directions.items()}})
    first = torch.autograd.grad(module(x), list(wanted.values()), create_graph=True)
    total = sum((g * v).sum() for g, v in zip(first, directions.values(), strict=True))
    for key, product in zip(wanted, torch.autograd.grad(total, list(wanted.values())), strict=True):
        np.testing.assert_allclose(found[f"{key}_hvp"], product.numpy(), rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_model_with_an_operator_without_a_rule_is_refused_by_its_name(name: str) -> None:
    make, inputs = CASES[name]
    model = export(module := Loss(make()).eval(), inputs())
    with pytest.raises(GradientError, match=REFUSED[name]):
        neaptide.onnx.grad(model, loss="loss", wrt=list(_parameters(module, model)))
