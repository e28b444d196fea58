"""Models that compute gradients: the lecture's trace, names, pins, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from autodiff.gradient_play import run
from neaptide.autodiff.errors import GradientError
from neaptide.autodiff.gradient import grad
from neaptide.errors import UsageError
from support.together import together

TRACE = """<ir_version: 10, opset_import: ["": 20]>
trace (float[1] x1, float[1] x2) => (float[1] y) {
  v3 = Log(x1) v4 = Mul(x1, x2) v5 = Sin(x2) v6 = Add(v3, v4) y = Sub(v6, v5)
}"""
POINT = {"x1": np.asarray([2], np.float32), "x2": np.asarray([5], np.float32)}


def _model(text: str) -> ir.Model:
    return ir.from_proto(parser.parse_model(text))


def test_the_trace_of_the_lecture_has_its_adjoints() -> None:
    names = ["x1", "x2", "v3", "v4", "v5", "v6"]
    given = run(ir.to_proto(grad(_model(TRACE), "y", names)), POINT)
    wanted = {
        "y": 11.6521,
        "x1_grad": 5.5,
        "x2_grad": 1.7163,
        "v3_grad": 1,
        "v4_grad": 1,
        "v5_grad": -1,
        "v6_grad": 1,
    }
    assert given == {name: pytest.approx([value], abs=5e-5) for name, value in wanted.items()}


def test_a_gradient_that_is_differentiated_again_gives_the_hessian() -> None:
    once = grad(_model(TRACE), "y", ["x1", "x2"])
    rows = [run(ir.to_proto(grad(once, f"{name}_grad", ["x1", "x2"])), POINT) for name in ("x1", "x2")]
    hessian = [float(row[f"{name}_grad_grad"][0]) for row in rows for name in ("x1", "x2")]
    assert hessian == pytest.approx([-0.25, 1, 1, -0.9589], abs=5e-5)


def test_an_adjoint_that_passes_unchanged_is_an_identity_node() -> None:
    nodes = {node.outputs[0].name: node for node in grad(_model(TRACE), "y", ["v3", "v6"]).graph}
    assert nodes["v3_grad"].op_type == "Identity"
    assert nodes["v3_grad"].inputs[0] is nodes["v6_grad"].outputs[0]


TWO_NORMS = """<ir_version: 10, opset_import: ["": 20]>
norms (float[2, 4] x) => (float loss)
<float[4] first = {1, 1, 1, 1}, float[4] second = {1, 1, 1, 1}> {
  a = LayerNormalization(x, first)
  b = LayerNormalization(a, second)
  c = Mul(b, x)
  loss = ReduceSum<keepdims = 0>(c)
}"""


def test_equal_parameters_have_gradients_of_their_own_and_stay_inputs() -> None:
    made = ir.to_proto(grad(_model(TWO_NORMS), "loss", ["first", "second"]))
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    given = run(made, {"x": x})
    assert {value.name for value in made.graph.input} == {"x", "first", "second"}
    assert np.abs(given["first_grad"] - given["second_grad"]).max() > 1e-3
    step = np.asarray([1e-2, 0, 0, 0], np.float32)
    for name in ("first", "second"):
        ends = [run(made, {"x": x, name: np.ones(4, np.float32) + sign * step})["loss"] for sign in (1, -1)]
        assert given[f"{name}_grad"][0] == pytest.approx((ends[0] - ends[1]) / 2e-2, abs=2e-3)


def test_updates_are_the_only_new_outputs_of_a_model_with_a_rate() -> None:
    once = ir.to_proto(grad(_model(TWO_NORMS), "loss", ["first"]))
    made = ir.to_proto(grad(_model(TWO_NORMS), "loss", ["first"], sgd=0.5))
    x = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    given = run(made, {"x": x})
    assert list(given) == ["loss", "first_new"]
    np.testing.assert_allclose(given["first_new"], 1 - 0.5 * run(once, {"x": x})["first_grad"], rtol=1e-5)


def test_the_model_that_is_given_stays_as_it_is() -> None:
    model = _model(TWO_NORMS)
    before = ir.to_proto(model).SerializeToString()
    grad(model, "loss", ["first"], sgd=0.1)
    assert ir.to_proto(model).SerializeToString() == before


def test_a_value_on_which_the_loss_does_not_depend_has_zeros() -> None:
    text = TRACE.replace("y = Sub(v6, v5)", "y = Identity(v3)")
    given = run(ir.to_proto(grad(_model(text), "y", ["x1", "x2", "y"])), POINT)
    assert [float(given[f"{name}_grad"][0]) for name in ("x1", "x2", "y")] == [0.5, 0.0, 1.0]


def test_an_old_opset_is_converted() -> None:
    text = """<ir_version: 3, opset_import: ["": 9]>
    old (float[2, 3] x, float[3] w, float[3] v) => (float y) <float[3] w = {1, 2, 3}, float[3] v = {0, 0, 0}> {
      s = Add(x, v)
      a = Mul(s, w)
      b = ReduceSum<axes = [1], keepdims = 0>(a)
      y = ReduceSum<keepdims = 0>(b)
    }"""
    made = ir.to_proto(grad(_model(text), "y", ["w"]))
    onnx.checker.check_model(made, full_check=True)
    assert {value.name for value in made.graph.input} == {"x", "w"}
    assert run(made, {"x": np.ones((2, 3), np.float32)})["w_grad"].tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("loss", "wrt", "error", "words"),
    [
        ("y", ["z"], UsageError, "no value 'z'"),
        ("w", ["x"], UsageError, "no loss"),
        ("y", [], UsageError, "none"),
        ("y", ["x", "x"], UsageError, "twice"),
        ("y", ["x"], GradientError, "Hardmax has no derivative rule"),
        ("y", ["h"], UsageError, "cannot be updated"),
    ],
)
def test_a_wrong_request_is_refused(loss: str, wrt: list[str], error: type[Exception], words: str) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    refused (float[2] x) => (float y) <float[2] w = {1, 2}> { h = Hardmax(x) a = Mul(h, w) y = ReduceSum<keepdims = 0>(a) }"""
    with pytest.raises(error, match=words):
        grad(_model(text), loss, wrt, sgd=0.1)


def test_a_value_that_a_body_captures_is_refused() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    branch (bool c, float[1] x) => (float[1] y) {
      y = If(c) <then_branch = yes () => (float[1] a) { a = Mul(x, x) }, else_branch = no () => (float[1] b) { b = Neg(x) }>
    }"""
    with pytest.raises(GradientError, match="If has no derivative rule"):
        grad(_model(text), "y", ["x"])


def test_the_checker_accepts_what_is_written() -> None:
    onnx.checker.check_model(
        ir.to_proto(grad(_model(TWO_NORMS), "loss", ["x", "first"], sgd=0.1)), full_check=True
    )


KEEPS_NO_INPUT = (
    *(
        "Relu",
        "LeakyRelu",
        "HardSigmoid",
        "Elu",
        "Selu",
        "Softplus",
        "Tanh",
        "Sigmoid",
        "Exp",
        "Sqrt",
        "Reciprocal",
        "Tan",
    ),
    *(
        "Neg",
        "Softmax",
        "LogSoftmax",
        "ReduceSum",
        "ReduceMean",
        "Transpose",
        "Identity",
        "GlobalAveragePool",
    ),
    *("MaxPool<kernel_shape = [2, 2], strides = [2, 2]>", "MaxPool<kernel_shape = [4, 4], strides = [4, 4]>"),
    *("MaxPool<kernel_shape = [3, 3], strides = [2, 2]>", "AveragePool<kernel_shape = [2, 2]>"),
)


@together("call", KEEPS_NO_INPUT)
def test_a_rule_keeps_the_result_or_less_not_the_input(call: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 20]>
    saved (float[1, 2, 8, 8] x) => (float loss) {{
      h = Abs(x) y = {call}(h) z = Exp(y) loss = ReduceSum<keepdims = 0>(z)
    }}"""
    nodes = list(grad(_model(text), "loss", ["x"]).graph)
    end = next(place for place, node in enumerate(nodes) if node.outputs[0].name == "loss")
    late = [
        node.op_type
        for node in nodes[end:]
        for value in node.inputs
        if value is not None and value.name == "h"
    ]
    assert late == []


def test_a_max_pool_keeps_a_byte_for_each_of_its_windows() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    pool (float[1, 2, 9, 9] x) => (float loss) {
      y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x) z = Mul(y, y) loss = ReduceSum<keepdims = 0>(z)
    }"""
    graph = grad(_model(text), "loss", ["x"]).graph
    kept = [
        node for node in graph if node.op_type == "Cast" and node.attributes["to"].value == ir.DataType.UINT8
    ]
    assert len(kept) == 1
