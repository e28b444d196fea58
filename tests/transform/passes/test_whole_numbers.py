"""Operators on whole numbers are exact at extreme values, whatever instructions the processor has."""

import numpy as np
import onnxruntime

import neaptide.onnx
from frontends.onnx.onnx_files import model, node, numbers, tensor
from support.together import together

UINT8 = 2
RNG = np.random.default_rng(0)


def extremes(dtype, *shape):
    """Mostly the greatest number of a type, else the least."""
    info = np.iinfo(dtype)
    return np.where(RNG.random(shape) < 0.9, info.max, info.min).astype(dtype)


def between(line, x, w, y_shape, ratio, **attributes):
    """A product of bytes between dequantisations and a quantisation; all zero points but that of the weights are 0."""
    scalars = [
        numbers("one", 1, dtype=np.float32),
        numbers("ratio", ratio, dtype=np.float32),
        numbers("zero", 0, dtype=np.uint8),
        numbers("least", 3, dtype=w.dtype),
    ]
    for scalar in scalars:
        scalar.ClearField("dims")
    filters = numbers("w", dtype=w.dtype)
    filters.CopyFrom(_of(w))
    return model(
        [
            "a = DequantizeLinear(x, one, zero)",
            "b = DequantizeLinear(w, one, least)",
            node(line, **attributes),
            "y = QuantizeLinear(c, ratio, zero)",
        ],
        [tensor("x", *x.shape, kind=UINT8)],
        [tensor("y", *y_shape, kind=UINT8)],
        [*scalars, filters],
        opset=13,
    )


def _of(array):
    from onnx import numpy_helper

    return numpy_helper.from_array(array, "w")


def patches(x, size):
    """(N, C, H, W) to the rows of windows: (N, places, C * size * size)."""
    views = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    n, c, h, w = views.shape[:4]
    return views.transpose(0, 2, 3, 1, 4, 5).reshape(n, h * w, c * size * size)


def product():
    x, w = extremes(np.uint8, 4, 64), extremes(np.int8, 64, 16)
    sums = x.astype(np.int32) @ (w.astype(np.int32) - 3)
    return between("c = MatMul(a, b)", x, w, (4, 16), 8000), x, sums, 8000


def convolution(size):
    x, w = extremes(np.uint8, 1, 16, 8, 8), extremes(np.int8, 8, 16, size, size)
    flat = w.astype(np.int32).reshape(8, -1) - 3
    sums = (patches(x.astype(np.int32), size) @ flat.T).transpose(0, 2, 1)
    shape = (1, 8, 9 - size, 9 - size)
    ratio = 20000 if size > 1 else 4000
    return between("c = Conv(a, b)", x, w, shape, ratio), x, sums.reshape(shape), ratio


@together("case", {"MatMul": product(), "Conv": convolution(3), "Conv of one": convolution(1)}.values())
def test_sums_of_products_do_not_saturate(case):
    made, x, sums, ratio = case
    plan = neaptide.onnx.plan(made, passes=("integer_operators",))
    planned = plan.to_model()
    assert planned.graph.node[0].op_type.startswith("QLinear")
    session = onnxruntime.InferenceSession(planned.SerializeToString(), plan.session_options())
    (found,) = session.run(None, {"x": x})
    wanted = np.clip(np.rint(sums.astype(np.float32) / np.float32(ratio)), 0, 255)
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted)) > 4
