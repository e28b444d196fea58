"""Every pass: places that it finds, results that stay, and regions that it refuses."""

from pathlib import Path

import pytest

from neaptide.errors import RewriteError
from neaptide.frontends.onnx.model import OnnxModel
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ops.onnx import registry
from neaptide.ops.onnx.table import operator_of
from neaptide.schedule.order.of_model import model_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import Rewrite, apply_rewrite, apply_rule
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from support.onnx_cases import graph_of, largest_error, outputs_of

TOLERANCE = 1e-5


def after(model: OnnxModel, name: str) -> Graph:
    """The graph after a pass at all its places, or at the first of alternatives, whose results are those of the model."""
    rule = PASSES[name]
    if rule.are_alternatives:
        found = list(rule.find(model.graph, registry()))
        assert found
        graph = apply_rewrite(model.graph, registry(), found[0], PASSES).graph
    else:
        made = apply_rule(model.graph, registry(), rule)
        assert made.rewrites
        graph = made.edited.graph
    assert largest_error(outputs_of(model, model.graph), outputs_of(model, graph)) <= TOLERANCE
    return graph


def operators(graph: Graph) -> list[str | None]:
    """Of the nodes of a graph that are no arithmetic on weights."""
    from neaptide.analysis.folded import folded_values

    folded = folded_values(graph)
    return [operator_of(node.op) for node in graph.nodes if node.outputs[0] not in folded]


def peak(graph: Graph) -> int:
    return best_order(model_problem(graph, registry())).require().peak_bytes


BACK = ["QuantizeLinear", "DequantizeLinear"]
QUANTISED = """g (float[1,4,6,6] x, int8[5,4,3,3] w, float wvs, float wvx, float wvy, int8 wz, float[5] wb) => (float[1,5,2,2] y) {
  q = QuantizeLinear (x, wvx, wz)
  a = DequantizeLinear (q, wvx, wz)
  b = DequantizeLinear (w, wvs, wz)
  s = Mul (wvx, wvs)
  r = Div (wb, s)
  i = Round (r)
  bias = Mul (i, s)
  c = Conv (a, b, bias)
  d = Relu (c)
  e = QuantizeLinear (d, wvy, wz)
  f = DequantizeLinear (e, wvy, wz)
  m = MaxPool <kernel_shape = [3,3]> (f)
  n = QuantizeLinear (m, wvy, wz)
  y = DequantizeLinear (n, wvy, wz)
}"""

WHOLE_SUMS = """g (int8[3,4] x, int8[4,5] w, float wvs, float wvx, float wvy, int8 wz, int8 wzy) => (int8[15] y) {
  a = DequantizeLinear (x, wvx, wz)
  b = DequantizeLinear (w, wvs, wz)
  c = MatMul (a, b)
  d = QuantizeLinear (c, wvy, wzy)
  e = DequantizeLinear (d, wvy, wzy)
  f = QuantizeLinear (c2, wvy, wzy)
  g2 = DequantizeLinear (f, wvy, wzy)
  h = Add (e, g2)
  i = QuantizeLinear (h, wvs, wzy)
  j = DequantizeLinear (i, wvs, wzy)
  k = Flatten <axis = 0> (j)
  l = QuantizeLinear (k, wvs, wzy)
  s = Constant <value_ints = [15]> ()
  y = Reshape (l, s)
}""".replace("f = QuantizeLinear (c2", "c2 = MatMul (a, b)\n          f = QuantizeLinear (c2")

CASES = [
    (
        "conv_batch_norm",
        """g (float[1,4,6,6] x, float[6,4,3,3] w, float[6] wb, float[6] ws, float[6] wh, float[6] wm, float[6] wv) => (float[1,6,6,6] y) {
          c = Conv <pads = [1,1,1,1]> (x, w, wb)
          y = BatchNormalization (c, ws, wh, wm, wv)
        }""",
        ["Conv"],
    ),
    (
        "conv_batch_norm",
        """g (float[1,4,6,6] x, float[4,1,3,3] w, float[4] ws, float[4] wh, float[4] wm, float[4] wv) => (float[1,4,4,4] y) {
          c = Conv <group = 4> (x, w)
          n = BatchNormalization <epsilon = 0.01> (c, ws, wh, wm, wv)
          y = Relu (n)
        }""",
        ["Conv", "Relu"],
    ),
    (
        "conv_batch_norm",
        """g (float[1,4,6,6] x, float[4,2,2,2] w, float[2] ws, float[2] wh, float[2] wm, float[2] wv) => (float[1,2,12,12] y) {
          c = ConvTranspose <strides = [2,2]> (x, w)
          y = BatchNormalization (c, ws, wh, wm, wv)
        }""",
        ["ConvTranspose"],
    ),
    (
        "elementwise_before_concat",
        """g (float[1,4,6,6] x, float[6,4,1,1] w, float[10] ws, float[10] wh, float[10] wm, float[10] wv) => (float[1,10,6,6] y) {
          a = Conv (x, w)
          j = Concat <axis = 1> (x, a)
          n = BatchNormalization (j, ws, wh, wm, wv)
          y = Relu (n)
        }""",
        ["Conv", "BatchNormalization", "Relu", "BatchNormalization", "Relu", "Concat"],
    ),
    (
        "pool_before_concat",
        """g (float[1,4,6,6] x, float[6,4,1,1] w) => (float[1,10,1,1] y) {
          a = Conv (x, w)
          j = Concat <axis = -3> (a, x)
          y = GlobalAveragePool (j)
        }""",
        ["Conv", "GlobalAveragePool", "GlobalAveragePool", "Concat"],
    ),
    (
        "pool_before_concat",
        """g (float[1,4,6,6] x, float[6,4,1,1] w) => (float[1,10,6,6] y) {
          a = Conv (x, w)
          j = Concat <axis = 1> (a, x)
          p = GlobalAveragePool (j)
          y = Mul (j, p)
        }""",
        [
            "Conv",
            *("GlobalAveragePool", "GlobalAveragePool", "Concat"),
            *("Slice", "Mul", "Slice", "Mul", "Concat"),
        ],
    ),
    (
        "concat_before_convolution",
        """g (float[1,4,6,6] x, float[6,4,1,1] w, float[5,14,3,3] w1, float[5] wb, float[3,14,1,1] w2) => (float[1,5,6,6] y, float[1,3,6,6] z) {
          a = Conv (x, w)
          j = Concat <axis = 1> (x, a, x)
          y = Conv <pads = [1,1,1,1]> (j, w1, wb)
          z = Conv (j, w2)
        }""",
        ["Conv", "Conv", "Conv", "Add", "Conv", "Add", "Conv", "Conv", "Add", "Conv", "Add"],
    ),
    (
        "concat_before_convolution",
        """g (float[1,4,6,6] x, float[6,4,1,1] w, float[5,10,3,3] w1, float[3,10,1,1] w2) => (float[1,5,4,4] y, float[1,3,6,6] z) {
          a = Conv (x, w)
          j = Concat <axis = 1> (x, a)
          r = Relu (j)
          y = Conv (r, w1)
          z = Conv (r, w2)
        }""",
        ["Conv", "Relu", "Conv", "Relu", "Conv", "Add", "Relu", "Conv", "Relu", "Conv", "Add"],
    ),
    (
        "conv_pool_swap",
        """g (float[1,8,6,6] x, float[4,8,1,1] w, float[4] wb) => (float[1,4,3,3] y) {
          a = Conv (x, w, wb)
          y = AveragePool <kernel_shape = [2,2], strides = [2,2]> (a)
        }""",
        ["AveragePool", "Conv"],
    ),
    (
        "relu_pool_swap",
        """g (float[1,8,6,6] x) => (float[1,8,3,3] y) {
          a = Relu (x)
          y = MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (a)
        }""",
        ["MaxPool", "Relu"],
    ),
    (
        "merge_convolutions",
        """g (float[1,4,6,6] x, float[6,4,1,1] w1, float[2,4,1,1] w2) => (float[1,6,6,6] y, float[1,2,6,6] z) {
          y = Conv (x, w1)
          a = Conv (x, w2)
          z = Relu (a)
        }""",
        ["Conv", "Split", "Relu"],
    ),
    (
        "merge_matmuls",
        """g (float[5,4] x, float[4,6] w1, float[4,2] w2) => (float[5,6] y, float[5,2] z) {
          y = MatMul (x, w1)
          z = MatMul (x, w2)
        }""",
        ["MatMul", "Split"],
    ),
    (
        "merge_matmuls",
        """g (float[5,4] x, float[6,4] w1, float[6] wb1, float[2,4] w2, float[2] wb2) => (float[5,6] y, float[5,2] z) {
          y = Gemm <transB = 1> (x, w1, wb1)
          z = Gemm <transB = 1> (x, w2, wb2)
        }""",
        ["Gemm", "Split"],
    ),
    (
        "remove_split",
        """g (float[1,4,6,6] x, float[8,4,1,1] w, float[8] wb) => (float[1,2,6,6] y, float[1,6,6,6] z) {
          c = Conv (x, w, wb)
          r = Relu (c)
          s = Constant <value_ints = [2, 6]> ()
          a, b = Split <axis = 1> (r, s)
          y = Sigmoid (a)
          z = Tanh (b)
        }""",
        ["Conv", "Relu", "Conv", "Relu", "Sigmoid", "Tanh"],
    ),
]
CASES += [
    (
        "merge_matmuls",
        """g (float[2,3,6] x, float[2,6,6] w1, float[2,6,4] w2) => (float[2,3,10] y) {
          a = MatMul (x, w1)
          b = MatMul (x, w2)
          y = Concat <axis = 2> (a, b)
        }""",
        ["MatMul", "Split", "Concat"],
    ),
]
CASES += [
    (
        "common_subexpressions",
        """g (float[1,4,6,6] x, float[4,4,1,1] w) => (float[1,4,6,6] y) {
          a = Conv (x, w)
          b = Conv (x, w)
          c = Relu (a)
          y = Mul (c, b)
        }""",
        ["Conv", "Relu", "Mul"],
    ),
    (
        "cancel_transposes",
        """g (float[1,4,6,6] x, float w) => (float[1,6,6,4] y, float[1,4,6,6] z) {
          a = Transpose <perm = [0,2,3,1]> (x)
          b = Mul (a, w)
          c = Relu (b)
          d = Transpose <perm = [0,3,1,2]> (c)
          z = Relu (d)
          e = Transpose <perm = [0,3,2,1]> (x)
          f = Relu (e)
          y = Transpose <perm = [0,2,1,3]> (f)
        }""",
        ["Mul", "Relu", "Relu", "Relu", "Transpose"],
    ),
    (
        "remove_identities",
        """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
          a = Identity (x)
          b = Dropout (a)
          c = Transpose <perm = [0,1,2,3]> (b)
          d = Concat <axis = 1> (c)
          e = Cast <to = 1> (d)
          y = Relu (e)
        }""",
        ["Relu"],
    ),
    (
        "move_casts",
        """g (float16[1,4,6,6] x) => (float[1,6,6,4] y, float16[1,6,6,4] z) {
          a = Cast <to = 1> (x)
          b = Transpose <perm = [0,2,3,1]> (a)
          y = Relu (b)
          c = Cast <to = 1> (x)
          d = Cast <to = 11> (c)
          e = Exp (d)
          f = Transpose <perm = [0,2,3,1]> (e)
          z = Cast <to = 10> (f)
        }""",
        ["Transpose", "Cast", "Relu", "Cast", "Exp", "Cast", "Transpose"],
    ),
    (
        "integer_operators",
        QUANTISED,
        ["QuantizeLinear", "QLinearConv", "Clip", "DequantizeLinear", "MaxPool", *BACK],
    ),
    (
        "integer_moves",
        QUANTISED,
        [
            "QuantizeLinear",
            "DequantizeLinear",
            "Conv",
            "Relu",
            "QuantizeLinear",
            "MaxPool",
            "DequantizeLinear",
        ],
    ),
    (
        "integer_operators",
        WHOLE_SUMS,
        ["QLinearMatMul", "QLinearMatMul", None, "DequantizeLinear", "Flatten", "QuantizeLinear", "Reshape"],
    ),
    (
        "integer_moves",
        WHOLE_SUMS,
        ["DequantizeLinear", *("MatMul", *BACK) * 2, "Add", "QuantizeLinear", "Flatten", "Reshape"],
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_a_pass_keeps_what_a_model_makes(name: str, text: str, expected: list[str]) -> None:
    model = graph_of(text)
    graph = after(model, name)
    assert operators(graph) == expected


BLOCK = """g (float[1,4,8,8] x, float[24,4,1,1] w1, float[24] wb1, float[24,1,3,3] w2, float[6,24,1,1] w3, float[6] wb3) => (float[1,6,4,4] y) {
  a = Conv (x, w1, wb1)
  b = Clip (a, z, s)
  c = Conv <group = 24, pads = [1,1,1,1], strides = [2,2]> (b, w2)
  d = Relu (c)
  y = Conv (d, w3, wb3)
}""".replace("float[6] wb3)", "float[6] wb3, float wz, float wvs)").replace("(a, z, s)", "(a, wz, wvs)")

POOLED = """g (float[1,2,20,12] x, float[8,2,3,3] w, float[8] wb, float[5,320] w1, float[5] wb1) => (float[1,5] y) {
  a = Conv <auto_pad = "SAME_UPPER", strides = [1,1]> (x, w, wb)
  b = Relu (a)
  c = MaxPool <kernel_shape = [4,2], strides = [2,3]> (b)
  d = Flatten (c)
  y = Gemm <transB = 1> (d, w1, wb1)
}""".replace("[5,320]", "[5,288]")

JOINED = """g (float[1,2,20,12] x, float[8,2,3,3] w, float[8] wb) => (float[1,8,4,3] y) {
  a = Conv <pads = [1,1,1,1], strides = [1,1]> (x, w, wb)
  b = Relu (a)
  y = MaxPool <kernel_shape = [4,4], strides = [5,4]> (b)
}"""

MLP = """g (float[3,8] x, float[8,32] w1, float[32] wb1, float[32,6] w2) => (float[3,6] y) {
  a = MatMul (x, w1)
  b = Add (a, wb1)
  e = Sigmoid (b)
  h = Mul (b, e)
  y = MatMul (h, w2)
}"""

RESIDUAL = """g (float[1,4,16,16] x, float[24,4,3,3] w1, float[4,24,5,5] w2) => (float[1,4,8,8] y) {
  a = Conv <pads = [1,1,1,1]> (x, w1)
  b = Relu (a)
  c = Conv <pads = [2,2,2,2]> (b, w2)
  d = Add (c, x)
  y = AveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1], count_include_pad = 1> (d)
}"""


POSITIONS = """g (float[1,32,8] x, float[8] s, float[8,64] w1, float[64,8] w2) => (float[1,32,8] y) {
  a = LayerNormalization (x, s)
  b = MatMul (a, w1)
  c = Relu (b)
  d = MatMul (c, w2)
  y = Add (d, x)
}"""

SIGNAL = """g (float[1,4,64] x, float[24,4,3] w1, float[4,24,5] w2) => (float[1,4,64] y) {
  a = Conv <pads = [1,1]> (x, w1)
  b = Relu (a)
  y = Conv <pads = [2,2]> (b, w2)
}"""

SHUFFLED = """g (float[1,4,32,8] x, float[16,4,3,3] wa, float[8,8,1,1] wb) => (float[1,16,16,8] y) {
  a = Conv <pads = [1,1,1,1]> (x, wa)
  b, c = Split <axis = 1> (a)
  d = Conv (b, wb)
  e = Concat <axis = 1> (c, d)
  f = Transpose <perm = [0,1,3,2]> (e)
  h = Transpose <perm = [0,1,3,2]> (f)
  y = MaxPool <kernel_shape = [2,1], strides = [2,1]> (h)
}"""

HEADS = """g (float[1,8,24,4] q, float[1,8,4,24] k, float[1,8,24,4] v) => (float[1,8,24,4] y) {
  a = MatMul (q, k)
  b = Softmax (a)
  y = MatMul (b, v)
}"""


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("channel_fission_2", BLOCK, "Add"),
        ("channel_fission_4", BLOCK, "Add"),
        ("channel_fission_all", BLOCK, "Add"),
        ("channel_fission_8", POOLED, "Add"),
        ("channel_fission_8", JOINED, "Concat"),
        ("mlp_fission_4", MLP, "Add"),
        ("windows_2", POOLED, "Concat"),
        ("windows_2", RESIDUAL, "Concat"),
        ("windows_4", RESIDUAL, "Concat"),
        ("windows_4", BLOCK, "Concat"),
        ("windows_4", POSITIONS, "Concat"),
        ("windows_2", SIGNAL, "Concat"),
        ("windows_4", HEADS, "Concat"),
        ("windows_2", SHUFFLED, "Split"),
    ],
)
def test_a_region_in_parts_makes_what_it_made_whole_and_takes_less(name: str, text: str, kind: str) -> None:
    model = graph_of(text)
    graph = after(model, name)
    assert kind in operators(graph)
    assert peak(graph) < peak(model.graph)


def test_loops_are_refused_where_parts_are_unrolled() -> None:
    model = graph_of(MLP)
    where = {model.graph.nodes[0].inputs[0]: Along(0)}
    rewrite = fission(model.graph, [0, 1, 2, 3, 4], length=3, parts=3, inputs=where)
    with pytest.raises(RewriteError, match="without a loop"):
        apply_rewrite(model.graph, registry(), rewrite, RULES)


def test_fission_refuses_what_is_no_region() -> None:
    model = graph_of(BLOCK)
    for name, nodes, settings, reason in (
        ("channel_fission_2", (1, 2), (), "no region"),
        ("channel_fission_2", (0, 2), (), "no region"),
        ("channel_fission_2", (0,), (("parts", 2),), "no settings"),
        ("windows_2", (0, 2), (("dim", 2), ("value", 0)), "no region"),
        ("windows_2", (0, 1), (("dim", 2), ("value", 7)), "no operand 7"),
        ("windows_2", (0, 1), (("dim", 4), ("value", 0)), "no dim 4"),
        ("windows_2", (0, 1), (("value", 0),), "the settings dim and value"),
    ):
        rewrite = Rewrite(name, nodes, settings, keeps_bits=False)
        with pytest.raises(RewriteError, match=reason):
            apply_rewrite(model.graph, registry(), rewrite, PASSES)


def test_the_page_of_passes_names_each_of_them() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/passes.md").read_text(encoding="utf-8")
    for name in PASSES:
        stem, _, parts = name.rpartition("_")
        assert f"`{name}`" in page or (f"`{stem}_2`" in page and f"`_{parts}`" in page)
