"""`.tflite` files as graphs: names, kinds, views, variables, scratch, and the bytes of what subgraphs need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from frontends.tflite.small_tflite import chain, filtered, nested, reduced, reshaped
from neaptide.errors import UnsupportedModel
from neaptide.frontends.tflite.reader import decode_tflite
from neaptide.frontends.tflite.to_graph import TfliteGraph, tflite_graph
from neaptide.ir.values import Kind
from neaptide.lower.tflite.plan import plan_tflm
from neaptide.ops.tflite import tflite_registry
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide_corpus.tflite_graphs import irregular_network
from neaptide_corpus.tflite_writer import TfliteFile


def graph_of(file: TfliteFile) -> TfliteGraph:
    return tflite_graph(decode_tflite(file.to_bytes(), name="model.tflite"))


def peak_of(source: TfliteGraph) -> int:
    problem = source.problem()
    return evaluate_order(problem, range(problem.op_count)).peak_bytes


def test_operators_keep_their_names_and_versions():
    graph = graph_of(irregular_network(0)).graph
    assert {node.op.split(".")[0] for node in graph.nodes} == {"tflite"}
    assert graph.nodes[0].op == "tflite.CONV_2D.1"
    registry = tflite_registry(node.op for node in graph.nodes)
    assert all(registry.require(node.op).name == node.op for node in graph.nodes)


def test_weights_are_parameters_and_count_no_bytes():
    source = graph_of(irregular_network(0))
    kinds = {storage.kind for storage in source.graph.storages}
    assert kinds == {Kind.PARAMETER, Kind.INPUT, Kind.ACTIVATION, Kind.OUTPUT}
    weights = [s.id for s in source.graph.storages if s.kind is Kind.PARAMETER]
    assert {source.storage_bytes[weight] for weight in weights} == {0}


def test_an_input_dies_after_its_last_use():
    # Two of three maps at a time: the input counts while it is read, and no longer.
    assert peak_of(graph_of(chain(3, (1, 256)))) == 2 * 1024


def test_a_reshape_shows_its_operand_and_one_of_a_weight_copies():
    source = graph_of(reshaped())
    size = 2 * 32 * 32 * 4
    storages = [source.storage_of[tensor] for tensor in (1, 3)]  # the result of RELU, and what RESHAPE shows
    assert storages[0] == storages[1]
    # While the sum runs: what RELU made, the copy of the weight, and the sum.
    assert peak_of(source) == 3 * size


def test_variables_are_kept_and_their_writers_stay_in_order():
    source = graph_of(filtered())
    buffers = [s for s in source.graph.storages if s.kind is Kind.BUFFER]
    assert len(buffers) == 2
    assert [len(node.effects.writes) for node in source.graph.nodes] == [1, 1]
    assert plan_tflm(source).variable_bytes == 2 * 40 * 4


def test_scratch_of_kernels_is_workspace():
    assert graph_of(reduced()).workspace == {0: 160 + 2 * 16}
    assert graph_of(filtered()).workspace == {0: 32, 1: 32}


def test_a_node_that_runs_subgraphs_has_the_peak_of_their_bodies_as_workspace():
    source = graph_of(nested(3))
    # Innermost: operand and result of RELU. Each of the two levels around it adds its own, and a flag.
    assert source.workspace == {0: 3 * 2 * 4096 + 2 * 16}
    assert plan_tflm(source).lower_bound_bytes == 4 * 2 * 4096 + 3 * 16


def test_more_calls_than_the_interpreter_can_go_through_are_refused():
    with pytest.raises(UnsupportedModel, match="more than 200000 operators in a call"):
        plan_tflm(graph_of(nested(20)))


def test_the_reader_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import neaptide.lower.tflite.files, neaptide.frontends.tflite.reader"
    subprocess.run([sys.executable, "-c", code], check=True)
