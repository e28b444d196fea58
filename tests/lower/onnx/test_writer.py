from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontends.onnx.onnx_files import LIGHT, model, node, numbers, tensor, two_branches, weight
from neaptide.errors import LoweringError, UnreadableFile
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.edits.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Ref
from neaptide.lower.onnx.session import session_options
from neaptide.lower.onnx.writer import save_model, write_model
from neaptide.ops.onnx import registry
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.of_model import model_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import apply_rewrite
from support.together import together


def outputs(made, options=None, **feeds):
    unoptimised = onnxruntime.SessionOptions()
    unoptimised.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options or unoptimised)
    return session.run(None, feeds)


def feeds_of(made, seed=0):
    rng = np.random.default_rng(seed)
    weights = {w.name for w in made.graph.initializer}
    return {
        value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in made.graph.input
        if value.name not in weights
    }  # fmt: skip


def footprint(made):
    problem = model_problem(read_model(made).graph, registry())
    return evaluate_order(problem, range(problem.op_count)).peak_bytes


def conditional():
    def branch(name, line):
        made = node(line)
        return helper.make_graph([made], name, [], [tensor(made.output[0], 2, 3)])

    return model(
        [
            "a = Exp(x)",
            "s = ReduceMax(a)",
            "c = Greater(s, two)",
            node("y = If(c)", then_branch=branch("then", "t = Neg(a)"), else_branch=branch("else", "e = Sqrt(a)")),
        ],
        [tensor("x", 2, 3)], [tensor("y", 2, 3)],
        [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "two")],
    )  # fmt: skip


MODELS = {
    "two branches": two_branches,
    "condition": conditional,
    "light shufflenet": lambda: onnx.load(LIGHT / "light_shufflenet.onnx"),
    "light squeezenet": lambda: onnx.load(LIGHT / "light_squeezenet.onnx"),
}


@together("name", MODELS)
def test_another_order_gives_the_same_bits_and_the_planned_footprint(name):
    made = MODELS[name]()
    read = read_model(made)
    best = best_order(model_problem(read.graph, registry())).require()
    written = write_model(read, order=best.order)
    onnx.checker.check_model(written, full_check=True)
    feeds = feeds_of(made)
    for found, expected in zip(
        outputs(written, session_options(), **feeds), outputs(made, **feeds), strict=True
    ):
        assert np.array_equal(found, expected)
    assert footprint(written) == best.peak_bytes


def test_names_of_inputs_and_outputs_are_kept():
    made = two_branches()
    helper.set_model_props(made, {"license": "free"})
    written = write_model(read_model(made))
    assert [(entry.key, entry.value) for entry in written.metadata_props] == [("license", "free")]
    assert [v.name for v in written.graph.input] == ["x"]
    assert [v.name for v in written.graph.output] == ["y"]
    assert [n.name for n in written.graph.node] == [n.name for n in made.graph.node]
    assert {w.name for w in written.graph.initializer} == {w.name for w in made.graph.initializer}


def test_an_output_that_is_also_an_input_or_another_output_is_copied():
    made = model(["a = Relu(x)"], [tensor("x", 2)], [tensor("a", 2), tensor("x", 2)])
    written = write_model(read_model(made))
    x = np.array([-1, 1], dtype=np.float32)
    assert [v.name for v in written.graph.output] == ["a", "x"]
    assert [list(found) for found in outputs(written, x=x)] == [[0, 1], [-1, 1]]


def test_weights_made_of_weights_become_initializers():
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.5])
    made = model(
        [node("w = ConstantOfShape(s)", value=value), "wt = Transpose(w)", "y = MatMul(x, wt)", "z = Mul(y, b)"],
        [tensor("x", 2, 3)], [tensor("z", 2, 4)], [numbers("s", 4, 3), weight("b", 4)],
    )  # fmt: skip
    written = write_model(read_model(made))
    assert [n.op_type for n in written.graph.node] == ["MatMul", "Mul"]
    assert {w.name: list(w.dims) for w in written.graph.initializer} == {"wt": [3, 4], "b": [4]}
    feeds = feeds_of(made)
    assert np.allclose(outputs(written, **feeds)[0], outputs(made, **feeds)[0])


def test_absent_operands_and_results_keep_their_places():
    made = model(
        [node(", h = LSTM(x, w, r, , , h0)", hidden_size=2), node("y = Clip(h, , top)")],
        [tensor("x", 3, 1, 4)], [tensor("y", 1, 1, 2)],
        [weight("w", 1, 8, 4), weight("r", 1, 8, 2, seed=1), weight("h0", 1, 1, 2, seed=2),
         numpy_helper.from_array(np.float32(0.1), "top")],
    )  # fmt: skip
    written = write_model(read_model(made))
    feeds = feeds_of(made)
    assert list(written.graph.node[0].output) == ["", "h"]
    assert np.array_equal(outputs(written, **feeds)[0], outputs(made, **feeds)[0])


def test_dims_without_a_size_stay_dims():
    made = model(["y = Relu(x)"], [tensor("x", "batch size", 3)], [tensor("y", "batch size", 3)])
    shape = write_model(read_model(made)).graph.input[0].type.tensor_type.shape
    assert [dim.dim_param or dim.dim_value for dim in shape.dim] == ["batch size", 3]


def inserted(read, op, kwargs):
    """The graph with another operation in the place of its first node."""
    edit = GraphEdit(read.graph)
    first = read.graph.nodes[0]
    edit.replace_node(0, NodeDraft(op, first.inputs[:1], first.outputs, (Ref(0),), kwargs))
    return edit.finish().graph


def test_a_changed_graph_is_written_and_an_operator_of_no_opset_is_refused():
    read = read_model(model(["a = Relu(x)", "y = Neg(a)"], [tensor("x", 2)], [tensor("y", 2)]))
    written = write_model(read, inserted(read, "onnx.LeakyRelu.16", (("alpha", 0.5),)))
    found = outputs(written, x=np.array([-2, 2], dtype=np.float32))[0]
    assert list(found) == [1, -2]
    with pytest.raises(LoweringError, match="no operator Nothing"):
        write_model(read, inserted(read, "onnx.Nothing.1", ()))
    with pytest.raises(LoweringError, match=r"onnx\.Squeeze\.11 is not written"):
        write_model(read, inserted(read, "onnx.Squeeze.11", (("axes", (0,)),)))


def test_weights_in_another_file_are_sized_when_read_and_read_when_written(tmp_path):
    made = two_branches()
    path = tmp_path / "model.onnx"
    onnx.save_model(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    read = read_model(path)
    assert read.weights["w1"].external.nbytes == 16 * 4 * 9 * 4
    written = write_model(read)
    feeds = feeds_of(two_branches())
    assert np.array_equal(outputs(written, **feeds)[0], outputs(two_branches(), **feeds)[0])
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(UnreadableFile, match="cannot be read"):
        write_model(read)


def test_a_model_is_saved_whole(tmp_path):
    path = tmp_path / "out.onnx"
    save_model(write_model(read_model(two_branches())), path)
    assert footprint(onnx.load(path)) == footprint(two_branches())


def test_nodes_that_passes_make_of_one_have_names_of_their_own():
    made = two_branches(channels=8, size=16)
    read = read_model(made)
    rule = PASSES["channel_fission_4"]
    place = next(iter(rule.find(read.graph, registry())))
    graph = apply_rewrite(read.graph, registry(), place, {rule.name: rule}).graph
    written = write_model(read, graph)
    names = [node.name for node in written.graph.node if node.name]
    assert len(names) > len(made.graph.node)
    assert len(names) == len(set(names))
    feeds = feeds_of(made)
    for found, expected in zip(outputs(written, **feeds), outputs(made, **feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
