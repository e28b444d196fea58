"""Axes of ONNX operators: along each that a row states, parts of a call make what the whole call makes."""

import pytest

from neaptide.analysis.folded import folded_values
from neaptide.errors import RewriteError
from neaptide.ir.axes import Merge
from neaptide.ops.onnx import registry
from neaptide.transform.drafting import Drafting
from neaptide.transform.part_reading import AxisFinder
from neaptide.transform.passes.region import Region
from neaptide.transform.passes.unroll import unroll
from support.onnx_cases import graph_of, largest_error, outputs_of

X = "float[2,4,9,8] x"

# The call, its operands beside x, the shape of the result, how many axes its row has, opset.
CALLS = [
    ("Conv <pads = [1,0,1,2]> (x, w, wb)", "float[6,4,3,3] w, float[6] wb", (2, 6, 9, 8), 5),
    ("Conv <auto_pad = 'SAME_LOWER', strides = [2,3]> (x, w)", "float[6,4,3,2] w", (2, 6, 5, 3), 5),
    ("Conv <auto_pad = 'VALID', dilations = [2,1]> (x, w)", "float[6,4,3,2] w", (2, 6, 5, 7), 5),
    ("Conv <group = 4> (x, w, wb)", "float[4,1,3,3] w, float[4] wb", (2, 4, 7, 6), 4),
    ("Conv <group = 2> (x, w, wb)", "float[6,2,3,3] w, float[6] wb", (2, 6, 7, 6), 3),
    ("ConvTranspose <strides = [2,2]> (x, w, wb)", "float[4,6,2,2] w, float[6] wb", (2, 6, 18, 16), 5),
    ("ConvTranspose (x, w)", "float[4,6,2,2] w", (2, 6, 10, 9), 3),
    ("MaxPool <kernel_shape = [3,2], strides = [2,2], pads = [1,0,1,0]> (x)", "", (2, 4, 5, 4), 4),
    ("AveragePool <kernel_shape = [3,3], pads = [1,1,1,1]> (x)", "", (2, 4, 9, 8), 4),
    ("AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1> (x)", "", (2, 4, 9, 8), 4),
    ("MaxPool <kernel_shape = [2,2], strides = [2,2], ceil_mode = 1> (x)", "", (2, 4, 5, 4), 2),
    ("GlobalAveragePool (x)", "", (2, 4, 1, 1), 2),
    ("BatchNormalization (x, wa, wb, wc, wvd)", "float[4] wa, float[4] wb, float[4] wc, float[4] wvd", (2, 4, 9, 8), 4),
    ("InstanceNormalization (x, wa, wb)", "float[4] wa, float[4] wb", (2, 4, 9, 8), 2),
    ("LayerNormalization <axis = 2> (x, wa, wb)", "float[9,8] wa, float[9,8] wb", (2, 4, 9, 8), 2),
    ("Softmax <axis = 1> (x)", "", (2, 4, 9, 8), 3),
    ("ReduceMean <axes = [2,3]> (x)", "", (2, 4, 1, 1), 2),
    ("ReduceSum (x, axes)", "", (2, 4, 1, 1), 4),
    ("Concat <axis = 1> (x, x)", "", (2, 8, 9, 8), 3),
    ("Transpose <perm = [0,2,3,1]> (x)", "", (2, 9, 8, 4), 4),
    ("Flatten <axis = 2> (x)", "", (8, 72), 0),
    ("MatMul (x, w)", "float[8,5] w", (2, 4, 9, 5), 5),
    ("MatMul (x, w)", "float[4,8,5] w", (2, 4, 9, 5), 5),
    ("Mul (x, w)", "float[4,1,1] w", (2, 4, 9, 8), 4),
    ("PRelu (x, w)", "float[4,1,1] w", (2, 4, 9, 8), 4),
    ("Where (wc, x, w)", "bool[9,1] wc, float w", (2, 4, 9, 8), 4),
    ("Clip (x, wl, wvh)", "float wl, float wvh", (2, 4, 9, 8), 4),
    ("Resize <mode = 'nearest', coordinate_transformation_mode = 'asymmetric', nearest_mode = 'floor'> (x, , scales)", "", (2, 4, 18, 24), 4),
    ("Resize <mode = 'linear'> (x, , scales)", "", (2, 4, 18, 24), 2),
    ("QuantizeLinear (x, wv, wz)", "float wv, uint8 wz", (2, 4, 9, 8), 4),
    ("QuantizeLinear <axis = 1> (x, wv, wz)", "float[4] wv, uint8[4] wz", (2, 4, 9, 8), 4),
]  # fmt: skip


@pytest.mark.parametrize(("call", "weights", "shape", "count"), CALLS)
def test_parts_along_every_axis_make_the_whole(call, weights, shape, count):
    kind = "uint8" if call.startswith("Quantize") else "float"
    constants = (
        "axes = Constant <value_ints = [2,3]> ()\n scales = Constant <value_floats = [1.0,1.0,2.0,3.0]> ()"
    )
    head = f"g ({', '.join(filter(None, (X, weights)))}) => ({kind}[{','.join(map(str, shape))}] y)"
    model = graph_of(f"{head} {{ {constants}\n y = {call} }}".replace("'", '"'))
    (node,) = (n for n in model.graph.nodes if n.outputs[0] not in folded_values(model.graph))
    finder = AxisFinder(model.graph, registry())
    axes = finder.axes(node)
    assert len(axes) == count
    whole = outputs_of(model, model.graph)
    for axis in axes:
        assert largest_error(whole, outputs_of(model, in_parts(finder, node, axis))) <= 1e-5


def in_parts(finder, node, axis):
    dims = {node.inputs[slot]: dim for slot, dim in axis.operands.items()}
    if not isinstance(axis.results[0], Merge):
        dims[node.outputs[0]] = axis.results[0]
    drafting = Drafting(finder.graph, registry())
    unroll(drafting, Region({node.id: axis}, dims, node.outputs[0]), 2)
    return drafting.edit.finish().graph


def test_an_axis_shorter_than_its_parts_is_refused():
    model = graph_of("g (float[1,3] x, float[3,2] w) => (float[1,2] y) { y = MatMul (x, w) }")
    finder = AxisFinder(model.graph, registry())
    (node,) = model.graph.nodes
    axis = finder.find(node, {1: 1})
    region = Region({0: axis}, {node.inputs[1]: 1, node.outputs[0]: 1}, node.outputs[0])
    with pytest.raises(RewriteError, match="cannot be split into 3 parts"):
        unroll(Drafting(model.graph, registry()), region, 3)


def test_a_part_that_reads_nothing_but_padding_is_refused():
    model = graph_of(
        "g (float[1,1,2,2] x, float[1,1,1,1] w) => (float[1,1,8,2] y) { y = Conv <pads = [3,0,3,0]> (x, w) }"
    )
    finder = AxisFinder(model.graph, registry())
    (node,) = model.graph.nodes
    axis = finder.find(node, {0: 2})
    with pytest.raises(RewriteError, match="nothing but padding"):
        in_parts_of(finder, node, axis, 4)


def in_parts_of(finder, node, axis, parts):
    region = Region({node.id: axis}, {node.inputs[0]: 2, node.outputs[0]: 2}, node.outputs[0])
    unroll(Drafting(finder.graph, registry()), region, parts)
