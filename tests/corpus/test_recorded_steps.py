"""Recorded steps become graphs: what is given, what is computed, what follows which dim; damaged files are refused."""

import json

import numpy as np
import pytest

from neaptide.analysis.axes.follow import follow
from neaptide.errors import UsageError
from neaptide.ir.axes import Along
from neaptide.ir.values import Kind
from neaptide.ir.verify import verify
from neaptide_corpus.recorded_steps import from_json
from peers.magis.recorded_play import computed, perceptron


def step_of(form, **options):
    return from_json(json.dumps(form), **options)


def test_weights_and_data_are_inputs_and_updates_write_in_place():
    graph = step_of(perceptron(layers=3)).graph
    verify(graph)
    kinds = [graph.storages[graph.values[v].storage].kind for v in graph.inputs]
    assert kinds.count(Kind.PARAMETER) == 3
    assert kinds.count(Kind.INPUT) == 3
    updates = [node for node in graph.nodes if node.effects.writes]
    assert len(updates) == 3
    assert {node.source.phase for node in updates} == {"optimizer"}
    assert all(not graph.created_storages(node) for node in updates)


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_parts_along_the_batch_compute_what_the_whole_does(parts):
    form = perceptron(batch=8)
    draw = np.random.default_rng(0)
    given = {n["id"]: draw.standard_normal(n["out_shape"]) for n in form if n["tag"] == "placeholder"}
    whole = computed(form, given)
    made = step_of(form)
    graph = made.graph
    ids = dict(
        zip(
            graph.inputs,
            [n["id"] for n in form if n["tag"] == "placeholder"],
            strict=True,
        )
    )
    computed_ids = [n["id"] for n in form if n["tag"] != "placeholder"]
    seed = next(v for v in graph.inputs if graph.values[v].name == "x")
    inside = [n.id for n in graph.nodes if n.source.phase != "optimizer"]
    carried = follow(graph, made.registry, {seed: Along(0)}, 8, inside)
    assert set(carried.members) == set(inside)
    step = -(-8 // parts)
    pieces = []
    for begin in range(0, 8, step):
        cut = {
            ids[v]: given[ids[v]][begin : begin + step] if v in carried.axes else given[ids[v]]
            for v in graph.inputs
        }
        pieces.append(computed(form, cut))
    for node in inside:
        value, number = graph.nodes[node].outputs[0], computed_ids[node]
        merged = (
            np.concatenate([piece[number] for piece in pieces])
            if value in carried.axes
            else sum(piece[number] for piece in pieces)
        )
        assert (value in carried.axes) != (value in carried.sums)
        np.testing.assert_allclose(merged, whole[number], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda form: form[-1].update(id=0), "two nodes have the id 0"),
        (lambda form: form[-1].update(args=[10_000, 0]), "in front of it"),
        (lambda form: form[-1].update(in_shapes=[[1], [1]]), "shapes of the operands"),
        (lambda form: form[-1].update(out_elems=0), "makes nothing"),
        (lambda form: form[-1].update(latency_ms=-1.0), "not negative"),
        (lambda form: form[-1].update(dim_links=[[[7, 0]]]), "dim link"),
        (lambda form: form.clear(), "no operations"),
        (lambda form: form[-1].pop("tag"), "cannot be read"),
    ],
)
def test_damaged_files_are_refused_with_the_node(damage, said):
    form = perceptron()
    damage(form)
    with pytest.raises(UsageError) as caught:
        step_of(form)
    assert said in f"{caught.value.what} {caught.value.why}"
