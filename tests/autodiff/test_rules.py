"""Every derivative rule against PyTorch, once and twice, and against differences in float64."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from autodiff.gradient_cases import CASES, Case
from autodiff.gradient_play import arguments, model_of, reference, run, torch_gradients
from neaptide import autodiff
from neaptide.autodiff.gradient import grad
from neaptide.autodiff.hessian import hessian_vector_product
from neaptide.autodiff.rules.table import FINAL, RULES
from support.together import together


def _draw(case: Case):
    inputs, constants = arguments(case)
    size = np.asarray(
        onnx.shape_inference.infer_shapes(
            model_of(case, inputs, constants, np.zeros((), np.float32)), data_prop=True
        )
        .graph.value_info[0]
        .type.tensor_type.shape.dim
    )
    weights = np.random.default_rng(3).uniform(0.5, 1.5, [d.dim_value for d in size]).astype(np.float32)
    directions = {
        k: np.random.default_rng(5).uniform(-1, 1, v.shape).astype(np.float32) for k, v in inputs.items()
    }
    return inputs, constants, weights, directions


@together("case", CASES, ids=lambda case: case.name)
def test_rules_give_the_derivatives_of_torch(case: Case) -> None:
    inputs, constants, weights, directions = _draw(case)
    model = ir.from_proto(model_of(case, inputs, constants, weights))
    twice = ir.to_proto(hessian_vector_product(model, "loss", list(inputs)))
    onnx.checker.check_model(twice, full_check=True)
    feeds = {**inputs, **{f"{k}_direction": v for k, v in directions.items()}}
    given = (
        run(twice, feeds)
        if case.opset < 23 and "training_mode" not in case.attributes
        else reference(twice, feeds)
    )
    first, second = torch_gradients(case, inputs, constants, weights, directions)
    for name in inputs:
        for suffix, wanted in (("grad", first), ("hvp", second)):
            np.testing.assert_allclose(
                given[f"{name}_{suffix}"], wanted[name], rtol=2e-4, atol=2e-5, err_msg=f"{name}_{suffix}"
            )


@together("case", [case for case in CASES if case.has_reference], ids=lambda case: case.name)
def test_gradients_are_those_of_differences_in_float64(case: Case) -> None:
    inputs, constants, weights, directions = _draw(case)
    model = model_of(case, inputs, constants, weights, np.float64)
    exact = {k: v.astype(np.float64) for k, v in inputs.items()}
    given = reference(ir.to_proto(grad(ir.from_proto(model), "loss", list(inputs))), exact)
    step = 1e-6
    ends = [
        reference(model, {k: v + sign * step * directions[k] for k, v in exact.items()})["loss"]
        for sign in (1, -1)
    ]
    slope = sum((given[f"{k}_grad"] * directions[k]).sum() for k in inputs)
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-7)


def test_every_rule_has_a_case() -> None:
    assert RULES.keys() - {case.op for case in CASES} == set()


def test_every_operator_that_a_rule_emits_has_a_rule_or_is_final() -> None:
    room = Path(autodiff.__file__).parent
    source = "\n".join(path.read_text() for path in room.rglob("*.py"))
    emitted = set(re.findall(r'(?:apply|emit|reduce)\(\s*"(\w+)"', source))
    assert {"ConvTranspose", "ScatterElements", "OneHot", "Where"} <= emitted
    assert emitted - RULES.keys() - FINAL == set()
    assert set() == RULES.keys() & FINAL
