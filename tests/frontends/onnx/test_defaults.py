"""Weights that the caller may replace, and weights of weights that nobody can work out before the model runs."""

import numpy as np
import onnxruntime
import pytest

import neaptide.onnx
from frontends.onnx.onnx_files import model, node, numbers, tensor, weight
from neaptide.analysis.folded import folded_values
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.values import Kind
from support.onnx_cases import model_of
from support.together import together

KIB = 1024
X = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)


def run(made, feeds, options=None):
    return onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, feeds)


def with_defaults():
    """Rows at places, and a shape, that the caller may replace; of the result of the first reshape the file states no shape."""
    return model(
        [
            "at = Add(places, one)",
            "r = Gather(x, at)",
            "sizes = Mul(shape, one)",
            "s = Reshape(r, sizes)",
            "t = Mul(other, one)",
            "y = Reshape(s, t)",
        ],
        [tensor("x", 8, 6), *(tensor(name, 2, kind=7) for name in ("places", "shape", "other"))],
        [tensor("y", 2, 6)],
        [numbers("places", 1, 2), numbers("shape", 3, 4), numbers("other", 2, 6), numbers("one", 1)],
    )


def test_whole_numbers_stay_inputs_with_a_default_unless_a_shape_needs_them():
    made = with_defaults()
    planned = neaptide.onnx.plan(made, passes="none").to_model()
    assert {value.name for value in planned.graph.input} == {"x", "places", "other"}
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    for feeds in ({"x": x}, {"x": x, "places": np.array([4, 0])}):
        np.testing.assert_array_equal(run(planned, feeds)[0], run(made, feeds)[0])


def test_before_version_4_of_the_format_weights_are_constants_as_in_the_runtime():
    made = with_defaults()
    made.ir_version = 3
    made.graph.input.append(tensor("one", 1, kind=7))
    assert all(storage.kind is not Kind.BUFFER for storage in read_model(made).graph.storages)
    with pytest.raises(Exception, match="places"):  # of the runtime
        run(made, {"x": np.zeros((8, 6), np.float32), "places": np.array([4, 0])})


AT_EACH_RUN = {
    "LRN": (13, "a = LRN<size=3>(w)"),
    "Pad of less than nothing": (13, "k = Constant<value_ints=[0,0,-1,0,0,0,1,0]>() a = Pad(w, k)"),
    "a group normalisation": (21, "a = GroupNormalization<num_groups=2>(w, wg, wg)"),
    "Upsample": (9, "k = Constant<value = float[4] {1, 1, 2, 2}>() a = Upsample<mode=\"linear\">(wh, k)"),
    "Loop": (
        17,
        ("n = Constant<value_int=3>() t = Constant<value = bool {1}>() a = Loop(n, t, w)<body = "
        "b (int64 i, bool c, float[1,4,8,8] v) => (bool d, float[1,4,8,8] u) { d = Identity(c) u = Add(v, w) }>"),
    ),
}  # fmt: skip


@together(("opset", "line"), AT_EACH_RUN.values(), AT_EACH_RUN)
def test_what_the_reference_cannot_work_out_of_weights_runs_with_the_model_and_counts(opset, line):
    made = model_of(
        f"""g (float[1,4,8,8] x, float[1,4,8,8] w, float[4] wg, float[1,4,4,4] wh) => (float[1,4,8,8] y)
        <float[1,4,8,8] a> {{ {line} b = Add(x, a) y = Relu(b) }}""",
        opset,
    )
    operator = next(one.op_type for one in made.graph.node if "a" in one.output)
    read = read_model(made)
    assert operator in {one.op.split(".")[1] for one in read.graph.nodes}
    plan = neaptide.onnx.plan(made, passes="none")
    assert plan.peak_bytes >= 2 * KIB, "the result of the operator, beside the input"
    written = plan.to_model()
    assert operator in {one.op_type for one in written.graph.node}
    for found, wanted in zip(
        run(written, {"x": X}, plan.session_options()), run(made, {"x": X}), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@together(
    ("opset", "call"),
    [(13, "MeanVarianceNormalization(x)"), (21, "GroupNormalization<num_groups=2>(x, w, w)")],
)
def test_operators_whose_shapes_onnx_does_not_work_out_are_planned(opset, call):
    text = f"g (float[1,4,8,8] x, float[4] w) => (float[1,4,8,8] y) {{ a = {call} y = Relu(a) }}"
    made = model_of(text, opset)
    plan = neaptide.onnx.plan(made, passes="none")
    found, wanted = run(plan.to_model(), {"x": X}, plan.session_options()), run(made, {"x": X})
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)


def test_other_weights_of_weights_count_nothing():
    made = model(
        [node("k = Conv(w, v)", pads=[1, 1, 1, 1]), "y = Add(x, k)"],
        [tensor("x", 1, 4, 8, 8)],
        [tensor("y", 1, 4, 8, 8)],
        [weight("w", 1, 4, 8, 8), weight("v", 4, 4, 3, 3)],
    )
    read = read_model(made)
    assert folded_values(read.graph).issuperset(read.graph.nodes[0].outputs)
    assert neaptide.onnx.plan(made, passes="none").peak_bytes == KIB
