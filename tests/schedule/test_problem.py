from __future__ import annotations

import pytest

from neaptide.ir.builder import GraphBuilder
from neaptide.schedule.problem import Role, compile_problem
from neaptide_corpus.training_steps import toy_registry


@pytest.fixture
def small():
    b = GraphBuilder("small", toy_registry())
    w = b.input("w", (2,))
    (a,) = b.node("toy.mix", w, outputs=["a: f32[4]"])
    (v,) = b.node("toy.view", a, outputs=["v: f32[4] @a"])
    (r,) = b.node("toy.relu_", v, outputs=["r: f32[4] @a"])
    (d,) = b.node("toy.dropout", r, outputs=["d: f32[4]"])
    (e,) = b.node("toy.mix", d, outputs=["e: f32[4]"])
    b.node("toy.add_", w, e, outputs=["w2: f32[2] @w"])
    b.output(e)
    graph = b.finish()
    return graph, {name: graph.values[v].storage for name, v in (("w", w), ("a", a), ("d", d), ("e", e))}


def test_arrays_say_who_creates_writes_and_views(small):
    graph, storage = small
    step = compile_problem(graph, toy_registry(), workspace={4: 7}, seconds=[1, 2, 3, 4, 5, 6])
    assert step.creator[storage["w"]] == -1
    assert step.is_persistent[storage["w"]]
    assert (step.storage_bytes[storage["w"]], step.persistent_bytes) == (0, 8)
    assert (step.creator[storage["a"]], step.views[storage["a"]], step.writers[storage["a"]]) == (
        0,
        (1,),
        (2,),
    )
    assert step.roles[storage["a"]][2] == Role(needs=(2,), makes=(3,), creates=False)
    assert step.workspace == (0, 0, 0, 0, 7, 0)
    assert (step.baseline_seconds, step.sequence_seconds([0, 0, 5])) == (21.0, 8.0)
    assert step.writes_persistent(5)
    assert not step.writes_persistent(2)
    assert step.predecessors[2] == (0, 1)
    assert 2 in step.successors[0]


def test_other_devices_have_no_bytes_in_the_problem():
    b = GraphBuilder("devices", toy_registry())
    x = b.input("x", (100,), device="cuda:0")
    y = b.input("y", (1,))
    (a,) = b.node("toy.mix", y, outputs=["a: f32[4]"])
    b.output(a, x)
    graph = b.finish()
    step = compile_problem(graph, toy_registry(), workspace={0: 5})
    assert (step.device, step.persistent_bytes, sum(step.storage_bytes), step.workspace) == (
        "cuda:0",
        400,
        0,
        (0,),
    )
