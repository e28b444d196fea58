from __future__ import annotations

from neaptide.analysis.kinds import storage_kinds
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Source
from neaptide.ir.values import Kind
from neaptide_corpus.training_steps import toy_registry


def test_kinds_follow_phases_and_stated_kinds_are_kept():
    b = GraphBuilder("kinds", toy_registry())
    w = b.input("w", (1,), kind=Kind.PARAMETER)
    x = b.input("x", (1,), kind=Kind.TEMPORARY)
    forward, backward, optimizer = (Source(phase=p) for p in ("forward", "backward", "optimizer"))
    (a,) = b.node("toy.mix", x, w, outputs=["a: f32[1]"], source=forward)
    (t,) = b.node("toy.mix", a, outputs=["t: f32[1]"], source=forward)
    (loss,) = b.node("toy.mix", t, outputs=["loss: f32[1]"], source=forward)
    (g,) = b.node("toy.mix", a, outputs=["g: f32[1]"], source=backward)
    (v,) = b.node("toy.view", g, outputs=["v: f32[1] @g"], source=backward)
    b.node("toy.add_", w, v, outputs=["w2: f32[1] @w"], source=optimizer)
    b.output(loss)
    graph = b.finish()
    kinds = {
        graph.values[k].name: storage_kinds(graph)[graph.values[k].storage] for k in (w, x, a, t, loss, g)
    }
    assert kinds == {
        "w": Kind.PARAMETER,
        "x": Kind.INPUT,
        "a": Kind.ACTIVATION,
        "t": Kind.TEMPORARY,
        "loss": Kind.OUTPUT,
        "g": Kind.GRADIENT,
    }
