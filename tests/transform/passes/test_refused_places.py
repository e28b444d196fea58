"""Places that passes leave as they are, and why."""

import pytest

from neaptide.errors import RewriteError
from neaptide.ops.onnx import registry
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from support.onnx_cases import graph_of

REFUSED = [
    (
        "conv_batch_norm",
        "y = Relu (c)\n n = BatchNormalization (c, ws, wh, wm, wv)\n z = Add (n, y)",
        2,
        "others use",
    ),
    (
        "conv_batch_norm",
        "n = BatchNormalization (x, ws, wh, wm, wv)\n y = Add (n, c)\n z = Relu (y)",
        1,
        "no convolution",
    ),
    ("relu_pool_swap", "y = Neg (c)\n z = MaxPool <kernel_shape = [1,1]> (y)", 2, "monotone"),
    (
        "relu_pool_swap",
        "y = HardSigmoid <alpha = -0.3> (c)\n z = MaxPool <kernel_shape = [2,2]> (y)",
        2,
        "falls",
    ),
    ("remove_identities", "y, m = Dropout (c)\n q = Relu (y)\n z = Where (m, q, c)", 1, "mask"),
    (
        "conv_pool_swap",
        "z = AveragePool <kernel_shape = [1,1]> (c)",
        1,
        "not of single points",
    ),
    ("concat_before_convolution", "y = Concat <axis = 0> (x, c)\n z = Relu (y)", 1, "keeps its axis"),
    (
        "concat_before_convolution",
        "y = Concat <axis = 1> (x, c)\n z = MaxPool <kernel_shape = [1,1]> (y)",
        1,
        "MaxPool.12 uses it",
    ),
    (
        "elementwise_before_concat",
        "y = Concat <axis = 3> (x, c)\n z = Softmax (y)",
        1,
        "needs all of its axis",
    ),
    ("merge_convolutions", "y = Relu (c)\n z = Neg (y)", 0, "no other"),
    (
        "remove_split",
        "y, q = Split <axis = 1> (x)\n z = Concat <axis = 1> (y, q, c)",
        1,
        "no operation with filters",
    ),
]


@pytest.mark.parametrize(("name", "body", "node", "reason"), REFUSED)
def test_a_pass_says_why_it_may_not_change_a_place(name: str, body: str, node: int, reason: str) -> None:
    weights = "float[4,4,3,3] w, float[4] ws, float[4] wh, float[4] wm, float[4] wv"
    model = graph_of(
        f"g (float[1,4,6,6] x, {weights}) => (z) {{ c = Conv <pads = [1,1,1,1]> (x, w)\n {body} }}"
    )
    assert not [place for place in PASSES[name].find(model.graph, registry()) if node in place.nodes]
    rewrite = Rewrite(name, (node,), keeps_bits=PASSES[name].keeps_bits)
    with pytest.raises(RewriteError, match=reason):
        apply_rewrite(model.graph, registry(), rewrite, PASSES)


def test_a_dropout_whose_mask_is_handed_back_stays() -> None:
    model = graph_of("g (float[3,4] x) => (float[3,4] y, bool[3,4] m) { a, m = Dropout (x)\n y = Relu (a) }")
    assert not list(PASSES["remove_identities"].find(model.graph, registry()))


def test_whole_numbers_of_signs_that_no_kernel_takes_together_stay() -> None:
    text = """g (int8[3,4] x, uint8[4,5] w, float wvs, int8 wz, uint8 wzw) => (int8[3,5] y) {
      a = DequantizeLinear (x, wvs, wz)
      b = DequantizeLinear (w, wvs, wzw)
      c = MatMul (a, b)
      y = QuantizeLinear (c, wvs, wz)
    }"""
    assert not list(PASSES["integer_operators"].find(graph_of(text).graph, registry()))
