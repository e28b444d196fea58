"""What passes insert is written as the opset of the model has it."""

import pytest

from neaptide.errors import LoweringError, RewriteError
from neaptide.lower.onnx.writable import writable
from neaptide.lower.onnx.writer import write_model
from neaptide.ops.onnx import registry
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import apply_rewrite, apply_rule
from support.onnx_cases import graph_of, largest_error, outputs_of

JOINED = """g (float[1,4,8,8] x, float[6,4,1,1] w, float[2,10,3,3] w2) => (float[1,2,6,6] y) {
  a = Conv (x, w)
  j = Concat <axis = 1> (x, a)
  y = Conv (j, w2)
}"""
PARALLEL = """g (float[1,4,8,8] x, float[6,4,1,1] w, float[2,4,1,1] w2) => (float[1,6,8,8] y, float[1,2,8,8] z) {
  y = Conv (x, w)
  z = Conv (x, w2)
}"""
NORM = """g (float[1,4,8,8] x, float[6,4,1,1] w, float[6] ws, float[6] wh, float[6] wm, float[6] wv) => (float[1,6,8,8] y) {
  a = Conv (x, w)
  y = BatchNormalization (a, ws, wh, wm, wv)
}"""


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 18, 21])
@pytest.mark.parametrize(
    ("name", "text"),
    [("concat_before_convolution", JOINED), ("merge_convolutions", PARALLEL), ("conv_batch_norm", NORM)],
)
def test_a_pass_is_written_at_every_opset(name, text, opset):
    model = graph_of(text, opset)
    made = apply_rule(model.graph, registry(), PASSES[name])
    assert made.rewrites
    assert largest_error(outputs_of(model, model.graph), outputs_of(model, made.edited.graph)) <= 1e-5


@pytest.mark.parametrize("opset", [9, 11, 17])
def test_windows_are_cut_from_the_input_at_every_opset(opset):
    text = """g (float[1,1,16,8] x, float[8,1,3,3] w) => (float[1,8,5,2] y) {
      a = Conv <pads = [1,1,1,1]> (x, w)
      y = MaxPool <kernel_shape = [4,4], strides = [3,4]> (a)
    }"""
    model = graph_of(text, opset)
    (place,) = PASSES["windows_2"].find(model.graph, registry())
    graph = apply_rewrite(model.graph, registry(), place, PASSES).graph
    assert [node.op_type for node in write_model(model, graph).graph.node].count("Slice") == 2
    assert largest_error(outputs_of(model, model.graph), outputs_of(model, graph)) <= 1e-5


def test_a_form_that_an_opset_lacks_is_refused():
    model = graph_of("g (int8[4] x, float wvs, float wvt, int8 wz) => (int8[4] y) { a = DequantizeLinear (x, wvs, wz)\n b = Relu (a)\n y = QuantizeLinear (b, wvs, wz) }", 10)  # fmt: skip
    assert not list(PASSES["integer_operators"].find(model.graph, registry()))
    text = """g (float[3,4] x, float[4,5] w, float wvs, int8 wz) => (float[3,5] y) {
      a = QuantizeLinear (x, wvs, wz)
      b = DequantizeLinear (a, wvs, wz)
      c = QuantizeLinear (w, wvs, wz)
      d = DequantizeLinear (c, wvs, wz)
      e = MatMul (b, d)
      f = Relu (e)
      g2 = QuantizeLinear (f, wvs, wz)
      y = DequantizeLinear (g2, wvs, wz)
    }"""
    model = graph_of(text, 10)
    made = apply_rule(model.graph, registry(), PASSES["integer_operators"])
    with pytest.raises(LoweringError, match="Clip"):
        write_model(model, made.edited.graph)
    with pytest.raises(RewriteError, match="Clip of opset 10 takes no int8"):
        apply_rewrite(model.graph, registry(), made.rewrites[0], writable(PASSES, 10))
    assert apply_rewrite(model.graph, registry(), made.rewrites[0], writable(PASSES, 12)).graph.nodes
