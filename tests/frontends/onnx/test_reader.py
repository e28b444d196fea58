from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontends.onnx.onnx_files import LIGHT, model, node, numbers, tensor, two_branches, weight
from neaptide.analysis.folded import folded_storages, folded_values
from neaptide.errors import UnsupportedModel, UsageError
from neaptide.frontends.onnx.model import KEPT
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.values import Kind
from neaptide.ops.onnx import registry
from neaptide.ops.onnx.movement import BODY_BYTES
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.of_model import model_problem
from support.together import together

KIB = 1024


def footprint(read, order=None):
    """Bytes at the peak of an order, file order by default."""
    problem = model_problem(read.graph, registry())
    return evaluate_order(problem, range(problem.op_count) if order is None else order).peak_bytes


def shape_of(read, name):
    found = next(v for v in read.graph.values if read.file_name(v.id) == name)
    return tuple(extent.constant_value() for extent in found.shape)


# Of the file in its order, constants folded, results in place, views free; and of the best order.
LIGHT_KIB = {
    "bvlc_alexnet": (2187, 2187),
    "densenet121": (7056, 7056),
    "inception_v1": (4537.5, 4537.5),
    "inception_v2": (3920, 3920),
    "resnet50": (7056, 7056),
    "shufflenet": (3038, 2817.5),
    "squeezenet": (3836.5, 3836.5),
    "vgg19": (25088, 25088),
    "zfnet512": (8910.75, 8910.75),
}


@together("name", sorted(LIGHT_KIB))
def test_light_models_have_the_footprints_that_were_measured(name):
    from neaptide.schedule.order.portfolio import best_order

    read = read_model(LIGHT / f"light_{name}.onnx")
    problem = model_problem(read.graph, registry())
    in_file_order = evaluate_order(problem, range(problem.op_count)).peak_bytes
    best = best_order(problem).require()
    assert (in_file_order / KIB, best.peak_bytes / KIB) == LIGHT_KIB[name]
    assert best.certificate.is_optimal


def test_a_model_is_read_ordered_and_laid_out_without_torch():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from neaptide.__main__ import run\n"
        "sys.argv = ['neaptide', 'order', sys.argv[1], '--json']\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(LIGHT / "light_densenet121.onnx")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f'"arena_bytes": {7056 * KIB}' in done.stdout


def test_nodes_keep_operator_and_attributes_and_weights_their_numbers():
    made = two_branches()
    read = read_model(made)
    ops = [n.op for n in read.graph.nodes]
    assert ops[:3] == ["onnx.Conv.11", "onnx.Relu.14", "onnx.Conv.11"]
    assert read.graph.nodes[0].kwarg("pads") == (1, 1, 1, 1)
    assert [read.file_name(v) for v in read.graph.inputs] == ["x", "w0", "w1", "w2"]
    assert np.array_equal(read.weights["w1"].array(), numpy_helper.to_array(made.graph.initializer[1]))
    kinds = {read.graph.storages[read.graph.values[v].storage].kind for v in read.graph.inputs}
    assert kinds == {Kind.INPUT, Kind.PARAMETER}
    flat = next(n for n in read.graph.nodes if n.op.startswith("onnx.Flatten."))
    seen, shown = (read.graph.values[v].storage for v in (flat.inputs[0], flat.outputs[0]))
    assert seen == shown, "a view has the bytes of its operand"


def test_the_footprint_counts_inputs_until_they_die_and_results_in_place():
    # `r` lies on `a`, of 4*8*8 floats, and `wider` on `wide`, of 16*8*8; `x` is gone, and `short` has 16 floats.
    assert footprint(read_model(two_branches())) == ((4 + 16) * 64 + 16) * 4


def test_names_that_are_no_identifiers_are_kept():
    made = model(["/a/b.1 = Relu(in:0)"], [tensor("in:0", 2)], [tensor("/a/b.1", 2)])
    read = read_model(made)
    assert [read.file_name(v) for v in (*read.graph.inputs, *read.graph.outputs)] == ["in:0", "/a/b.1"]


def test_arithmetic_on_shapes_is_done_and_views_have_known_shapes():
    made = model(
        [
            "s = Shape(x)",
            "b = Gather(s, zero)",
            "b1 = Unsqueeze(b, axes)",
            node("target = Concat(b1, rest)", axis=0),
            "y = Reshape(x, target)",
            "n = Size(x)",
            node("f = Cast(n)", to=TensorProto.FLOAT),
            "z = Div(y, f)",
        ],
        [tensor("x", 2, 3, 4)],
        [tensor("z", 2, 12)],
        [numbers("zero", 0).__class__.FromString(helper.make_tensor("zero", 7, [], [0]).SerializeToString()),
         numbers("axes", 0), numbers("rest", -1)],
    )  # fmt: skip
    read = read_model(made)
    assert [n.op for n in read.graph.nodes] == ["onnx.Reshape.19", "onnx.Div.14"]
    assert shape_of(read, "y") == (2, 12)
    assert read.weights["f"].array() == 24.0


def test_a_fill_of_whole_numbers_belongs_to_a_shape():
    ones = helper.make_tensor("value", TensorProto.INT64, [1], [1])
    made = model(
        [node("o = ConstantOfShape(two)", value=ones), "m = Mul(o, minus)", "is = Equal(shape, m)",
         "target = Where(is, o, shape)", "y = Expand(x, target)"],
        [tensor("x", 1, 4)], [tensor("y", None)],
        [numbers("two", 2), numbers("minus", -1), numbers("shape", 3, -1)],
    )  # fmt: skip
    read = read_model(made)
    assert [n.op for n in read.graph.nodes] == ["onnx.Expand.13"]
    assert shape_of(read, "y") == (3, 4)


def test_two_users_of_one_constant_keep_it():
    made = model(
        ["a = Unsqueeze(x, axes)", "b = Squeeze(a, axes)", "y = Add(x, b)"],
        [tensor("x", 3)], [tensor("y", 3)], [numbers("axes", 0)],
    )  # fmt: skip
    read = read_model(made)
    assert [n.op for n in read.graph.nodes] == ["onnx.Unsqueeze.13", "onnx.Squeeze.13", "onnx.Add.14"]


def test_weights_made_of_weights_are_nodes_without_bytes():
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.5])
    made = model(
        [node("w = ConstantOfShape(s)", value=value), node("wt = Transpose(w)"), "y = MatMul(x, wt)"],
        [tensor("x", 2, 300)], [tensor("y", 2, 20)], [numbers("s", 20, 300)],
    )  # fmt: skip
    read = read_model(made)
    assert [n.op.split(".")[1] for n in read.graph.nodes] == ["ConstantOfShape", "Transpose", "MatMul"]
    assert read.graph.nodes[0].kwarg("value") == 0.5
    names = {read.file_name(v) for v in folded_values(read.graph)}
    assert names == {"s", "w", "wt"}
    assert set(folded_storages(read.graph).values()) == {0}
    assert footprint(read) == (2 * 300 + 2 * 20) * 4


def test_dims_are_named_or_bound():
    made = model(["y = Relu(x)", "z = Reshape(y, s)"], [tensor("x", "batch size", 4)], [tensor("z", None)],
                 [numbers("s", 0, 2, 2)])  # fmt: skip
    free = read_model(made)
    assert [(d.name, d.low) for d in free.graph.dims] == [("batch_size", 1)]
    assert dict(free.dims) == {"batch_size": "batch size"}
    assert str(free.graph.values[free.graph.outputs[0]].shape[0]) == "batch_size"
    bound = read_model(made, {"batch size": 3})
    assert not bound.graph.dims
    assert shape_of(bound, "z") == (3, 2, 2)
    with pytest.raises(UsageError, match="no input of the model has a dim 'N'"):
        read_model(made, {"N": 3})


def test_results_that_are_optional_and_unused_are_not_made():
    made = model(
        [node(", h = LSTM(x, w, r)", hidden_size=5), node("y, mask = Dropout(h)")],
        [tensor("x", 7, 1, 3)], [tensor("y", 1, 1, 5)], [weight("w", 1, 20, 3), weight("r", 1, 20, 5)],
    )  # fmt: skip
    read = read_model(made)
    lstm, dropout = read.graph.nodes
    assert len(lstm.outputs) == 1
    assert lstm.results is not None
    assert len(dropout.outputs) == 1
    assert read.graph.values[dropout.outputs[0]].storage == read.graph.values[lstm.outputs[0]].storage


def test_a_condition_is_one_node_with_the_peak_of_its_larger_branch():
    def branch(name, *lines):
        nodes = [node(line) for line in lines]
        return helper.make_graph(nodes, name, [], [tensor(nodes[-1].output[0], 4)])

    made = model(
        [
            "big = Relu(x)",
            node(
                "y = If(c)",
                then_branch=branch("then", "t1 = Exp(big)", "t2 = Neg(big)", "t3 = Add(t1, t2)"),
                else_branch=branch("else", "e = Neg(big)"),
            ),
        ],
        [tensor("x", 4), tensor("c", kind=TensorProto.BOOL)],
        [tensor("y", 4)],
    )
    read = read_model(made)
    condition = read.graph.nodes[-1]
    assert condition.kwarg(BODY_BYTES) == 3 * 16
    kept = read.kept[condition.kwarg(KEPT)]
    assert kept.captures == ("big",)
    assert [read.file_name(v) for v in condition.inputs] == ["c", "big"]
    assert footprint(read) == 1 + 16 + 16 + 48


def test_functions_of_the_model_are_inlined():
    made = model(["y = mine::Twice(x)"], [tensor("x", 3)], [tensor("y", 3)], domains=["mine"])
    body = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [node("b = Add(a, a)")], [helper.make_opsetid("", 20)]
    )
    made.functions.append(body)
    assert [n.op for n in read_model(made).graph.nodes] == ["onnx.Add.14"]


def test_an_operator_that_nobody_knows_is_left_where_it_is():
    made = model(
        ["a = strange::Bend(x)", "b = strange::Bend(a)", "y = Relu(b)"],
        [tensor("x", 3)], [tensor("y", 3)], domains=["strange"], value_info=[tensor("a", 3), tensor("b", 3)],
    )  # fmt: skip
    read = read_model(made)
    assert [n.op for n in read.graph.nodes] == ["strange.Bend.1", "strange.Bend.1", "onnx.Relu.14"]
    assert all(n.effects.host for n in read.graph.nodes[:2])
    unknown = model(["y = strange::Bend(x)"], [tensor("x", 3)], [tensor("y", None)], domains=["strange"])
    with pytest.raises(UnsupportedModel, match="the shape of 'y', which Bend 'Bend_y' makes, is not known"):
        read_model(unknown)


def test_packed_dtypes_are_rounded_up_for_each_tensor():
    made = model(
        ["f = DequantizeLinear(q, s)", "y = Add(x, f)"],
        [tensor("x", 5), tensor("q", 5, kind=TensorProto.INT4)], [tensor("y", 5)],
        [numbers("s", 0.5, dtype=np.float32)], opset=21,
    )  # fmt: skip
    made.graph.initializer[0].CopyFrom(helper.make_tensor("s", TensorProto.FLOAT, [], [0.5]))
    assert footprint(read_model(made)) == 3 + 20 + 20


@together(
    ("line", "attributes", "shapes"),
    [
        ("s = SplitToSequence(x, lengths)", {"axis": 1}, [(2, 1), (2, 3)]),
        ("s = SplitToSequence(x, three)", {"axis": -1}, [(2, 3), (2, 1)]),
        ("s = SplitToSequence(x)", {"axis": 0, "keepdims": 0}, [(4,), (4,)]),
    ],
)
@together("opset", [12, 20])
def test_parts_taken_out_of_a_sequence_at_known_places_are_those_of_a_split(line, attributes, shapes, opset):
    made = model(
        [node(line, **attributes), "a = SequenceAt(s, first)", "b = SequenceAt(s, last)", "y = Relu(a)", "z = Neg(b)"],
        [tensor("x", 2, 4)], [tensor("y", None), tensor("z", None)],
        [numbers("lengths", 1, 3), helper.make_tensor("three", 7, [], [3]), helper.make_tensor("first", 7, [], [0]),
         helper.make_tensor("last", 7, [], [-1])], opset=opset,
    )  # fmt: skip
    read = read_model(made)
    assert read.graph.nodes[0].op.startswith("onnx.Split.")
    assert [shape_of(read, name) for name in ("y", "z")] == shapes
    from neaptide.lower.onnx.writer import write_model

    write_model(read)


@together(
    ("line", "attributes", "kind", "shape"),
    [
        ("y = com.microsoft::FusedConv(x, w)", {"activation": "Relu"}, "float32", (2, 4, 6, 6)),
        ("y = com.microsoft::QLinearAdd(q, s, z, q, s, z, s, z)", {}, "uint8", (2, 3, 8, 8)),
        ("y = com.microsoft::QLinearConcat(s, z, q, s, z, q, s, z)", {"axis": 1}, "uint8", (2, 6, 8, 8)),
        ("y = com.microsoft::QGemm(a, s, z, b, s, z, , s, z)", {"transB": 1}, "uint8", (5, 7)),
        ("y = com.microsoft::QGemm(a, s, z, b, s, z)", {"transB": 1}, "float32", (5, 7)),
        ("y = com.microsoft::QLinearGlobalAveragePool(q, s, z, s, z)", {}, "uint8", (2, 3, 1, 1)),
        ("y = com.microsoft::QLinearSoftmax(a, s, z, s, z)", {"axis": 1}, "uint8", (5, 9)),
    ],
)
def test_operators_of_the_runtime_have_shapes(line, attributes, kind, shape):
    made = model(
        [node(line, **attributes)],
        [tensor("x", 2, 3, 8, 8), tensor("q", 2, 3, 8, 8, kind=TensorProto.UINT8),
         tensor("a", 5, 9, kind=TensorProto.UINT8)],
        [helper.make_tensor_value_info("y", 1 if kind == "float32" else TensorProto.UINT8, None)],
        [weight("w", 4, 3, 3, 3), weight("b", 7, 9, dtype=np.uint8), helper.make_tensor("s", 1, [], [0.5]),
         helper.make_tensor("z", 2, [], [0])], domains=["com.microsoft"],
    )  # fmt: skip
    read = read_model(made)
    assert shape_of(read, "y") == shape
    assert read.graph.values[read.graph.outputs[0]].dtype == kind
    assert registry().find(read.graph.nodes[0].op) is not None
