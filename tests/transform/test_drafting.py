"""What rules insert, in both dialects: the same edit of a step and of a model computes the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime")

from neaptide import ops
from neaptide.errors import RewriteError
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import onnx
from neaptide.ops.dialect import Inserted, dialect_of
from neaptide.transform.drafting import Drafting
from neaptide.transform.passes import PASSES
from neaptide.transform.rules import RULES
from support.onnx_cases import graph_of, outputs_of
from support.torch_programs import Recorder
from transform.fission_play import run_measured


def of_aten():
    """A graph of one operation on (3, 2, 4), its registry, and what runs it."""
    recorder = Recorder()
    x = recorder.input(torch.randn(3, 2, 4), "x")
    graph = recorder.finish([recorder.call("aten.exp.default", x)])
    inputs = [torch.linspace(-1, 1, 24).reshape(3, 2, 4)]
    return graph, ops.registry(), lambda changed: run_measured(changed, inputs)[0].numpy()


def of_onnx():
    model = graph_of("g (float[3,2,4] x) => (float[3,2,4] y) { y = Exp (x) }")
    return model.graph, onnx.registry(), lambda changed: outputs_of(model, changed)[0]


DIALECTS = pytest.mark.parametrize("made", [of_aten, of_onnx])


@DIALECTS
def test_pieces_of_what_is_turned_there_and_back_join_to_the_whole(made):
    graph, registry, run = made()
    drafting, (node,) = Drafting(graph, registry), graph.nodes
    there = drafting.turned(node.id, node.inputs[0], (2, 0, 1))
    back = drafting.turned(node.id, there, (1, 2, 0))
    assert drafting.shape(back) == graph.values[node.inputs[0]].shape
    pieces = [drafting.cut(node.id, back, 0, *ends) for ends in ((0, 1), (1, 3))]
    exp = Inserted.again(node)
    parts = [drafting.insert(node.id, exp, (piece,), drafting.shape(piece)) for piece in pieces]
    drafting.merge(node.id, 0, len(parts), parts)
    assert np.allclose(run(drafting.edit.finish().graph), run(graph), rtol=1e-6)


@DIALECTS
@pytest.mark.parametrize("count", [2, 4])
def test_terms_are_added_one_after_another(made, count):
    graph, registry, run = made()
    drafting, (node,) = Drafting(graph, registry), graph.nodes
    shape, given = drafting.shape(node.outputs[0]), node.inputs
    terms = (drafting.insert(node.id, Inserted.again(node), given, shape) for _ in range(count))
    drafting.merge(node.id, None, count, terms)
    changed = drafting.edit.finish().graph
    assert np.allclose(run(changed), count * run(graph), rtol=1e-6)
    assert [node.op for node in changed.nodes].count(dialect_of(graph).add.op) == count - 1


def test_what_is_whole_or_in_order_is_not_cut_or_turned():
    graph, registry, _ = of_onnx()
    drafting = Drafting(graph, registry)
    assert drafting.cut(0, graph.inputs[0], 1, 0, 2) == graph.inputs[0]
    assert drafting.turned(0, graph.inputs[0], (0, 1, 2)) == graph.inputs[0]


def test_steps_and_models_share_rules():
    assert {name for name in PASSES if PASSES[name] is RULES.get(name)} == {
        "common_subexpressions",
        "concat_before_convolution",
    }


def test_nothing_is_inserted_among_operators_of_tensorflow_lite():
    from neaptide.ops.tflite import tflite_registry

    builder = GraphBuilder(tflite_registry(["tflite.RELU.1"]))
    builder.output(*builder.node("tflite.RELU.1", builder.input("x", (2,)), outputs=["y: f32[2]"]))
    with pytest.raises(RewriteError, match="TensorFlow Lite"):
        dialect_of(builder.finish())
