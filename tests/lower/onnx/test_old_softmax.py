"""Weights that old operators make of weights are those of the runtime."""

import numpy as np
import pytest

from frontends.onnx.onnx_files import node
from neaptide.errors import UnsupportedModel
from neaptide.frontends.onnx.constants.evaluate import evaluate


@pytest.mark.parametrize(("operator", "axis"), [("Softmax", 1), ("LogSoftmax", 2), ("Hardmax", 0)])
def test_before_opset_13_all_axes_from_the_one_named_on_are_one(operator, axis):
    given = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    (made,) = evaluate(node(f"y = {operator}(x)", axis=axis), {"x": given}, {"": 11})
    over = tuple(range(axis, 3))
    shares = np.exp(given) / np.exp(given).sum(axis=over, keepdims=True)
    expected = {
        "Softmax": shares,
        "LogSoftmax": np.log(shares),
        "Hardmax": given == given.max(axis=over, keepdims=True),
    }
    assert np.allclose(made, expected[operator], atol=1e-6)


def test_what_the_reference_computes_wrong_is_refused():
    with pytest.raises(UnsupportedModel, match="computes it wrong"):
        evaluate(node("y = LRN(x)", size=3), {"x": np.ones((1, 4, 2, 2), np.float32)}, {"": 13})
