"""Random changes of graphs: insertions, removals, replacements, other uses, moves and loops."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st

from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.edits.edit import Edited, GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import LOOP_OP, MergeMap, Ref, SliceMap
from neaptide.symbolic.size_expr import SizeExpr


def edited_graphs(graph: Graph, most: int = 3) -> st.SearchStrategy[Edited]:
    """A few random changes of a graph, made in one edit or in several, one after another."""
    seeds = st.lists(st.integers(0, 2**32), min_size=1, max_size=most)
    return st.tuples(seeds, st.integers(1, 3)).map(lambda drawn: _changed(graph, *drawn))


def _changed(graph: Graph, seeds: list[int], changes: int) -> Edited:
    edited = Edited.unchanged(graph)
    for seed in seeds:
        rng = random.Random(seed)
        edit = GraphEdit(edited.graph)
        try:
            for _ in range(changes):
                if edited.graph.nodes:
                    rng.choice(_CHANGES)(edit, edited.graph, rng)
            edited = edited.then(edit.finish())
        except VerifyError:
            continue  # changes that do not go together; without them
    return edited


def _dense(graph: Graph, rng: random.Random) -> int:
    """A tensor among the values, rather a late one."""
    tensors = [v.id for v in graph.values if v.storage is not None and len(v.shape) > 0]
    return rng.choice(tensors[-10:] if rng.random() < 0.5 else tensors) if tensors else -1


def _node_that_makes(graph: Graph, value: int) -> int:
    producer = graph.producer(value)
    return -1 if producer is None else producer


def _insert_copy(edit: GraphEdit, graph: Graph, rng: random.Random) -> None:
    """A value goes through another op; all or some of its users take the result."""
    value = _dense(graph, rng)
    if value < 0:
        return
    was = graph.values[value]
    made = edit.fresh("made", was.dtype, was.shape)
    draft = NodeDraft("toy.mix", (value,), (made,), (Ref(0),), rng=rng.choice((None, None, "cpu")))
    producer = _node_that_makes(graph, value)
    edit.insert_before(0, draft) if producer < 0 else edit.insert_after(producer, draft)
    users = graph.consumers()[value]
    some = None if rng.random() < 0.5 else rng.sample(users, rng.randint(0, len(users)))
    edit.replace_uses(value, made, some, outputs=rng.random() < 0.5)


def _insert_in_place(edit: GraphEdit, graph: Graph, rng: random.Random) -> None:
    """An op overwrites a value that the program makes, at some moment after that."""
    value = _dense(graph, rng)
    if value < 0 or (producer := _node_that_makes(graph, value)) < 0:
        return
    was = graph.values[value]
    seen = edit.alias("seen", was.dtype, was.shape, was.strides, was.offset, of=value)
    anchor = rng.randrange(producer, len(graph.nodes))
    edit.insert_after(anchor, NodeDraft("toy.relu_", (value,), (seen,), (Ref(0),), writes=(value,)))


def _insert_view(edit: GraphEdit, graph: Graph, rng: random.Random) -> None:
    """Some users see a value through a view."""
    value = _dense(graph, rng)
    if value < 0:
        return
    was = graph.values[value]
    seen = edit.alias("view", was.dtype, was.shape, was.strides, was.offset, of=value)
    producer = _node_that_makes(graph, value)
    draft = NodeDraft("toy.view", (value,), (seen,), (Ref(0),), reads=())
    edit.insert_before(0, draft) if producer < 0 else edit.insert_after(producer, draft)
    users = graph.consumers()[value]
    edit.replace_uses(value, seen, rng.sample(users, rng.randint(0, len(users))), outputs=False)


def _replace(edit: GraphEdit, graph: Graph, rng: random.Random) -> None:
    """A pure node becomes another one with the same results, of one operand more."""
    node = rng.choice(graph.nodes)
    if not node.effects.is_pure or node.regions or any(graph.values[v].storage is None for v in node.outputs):
        return
    draft = edit.draft(node.id)
    other = rng.choice(graph.inputs) if graph.inputs else None
    inputs = draft.inputs if other is None or rng.random() < 0.5 else (*draft.inputs, other)
    reads = None if draft.reads is None else (*draft.reads, *inputs[len(draft.inputs) :])
    args = tuple(Ref(k) for k in range(len(inputs)))
    edit.replace_node(
        node.id, replace(draft, op="toy.gelu", inputs=inputs, reads=reads, args=args, kwargs=(), results=None)
    )


def _remove(edit: GraphEdit, graph: Graph, rng: random.Random) -> None:
    """A node goes; its users take an earlier value of the same shape."""
    node = rng.choice(graph.nodes)
    if len(node.outputs) != 1:
        return
    was = graph.values[node.outputs[0]]
    alike = [
        v.id
        for v in graph.values[: was.id]
        if (v.dtype, v.shape, v.storage is None) == (was.dtype, was.shape, was.storage is None)
    ]
    if alike:
        edit.replace_uses(was.id, rng.choice(alike))
    edit.remove(node.id)


def _move(edit: GraphEdit, graph: Graph, rng: random.Random) -> None:
    """A node goes elsewhere, not far."""
    node = rng.randrange(len(graph.nodes))
    anchor = min(max(node + rng.randint(-4, 4), 0), len(graph.nodes) - 1)
    edit.move_after(node, anchor)


def _insert_loop(edit: GraphEdit, graph: Graph, rng: random.Random) -> None:
    """A value goes through a loop over parts of its first axis, the last part shorter."""
    value = _dense(graph, rng)
    if value < 0:
        return
    was = graph.values[value]
    if not all(extent.is_constant for extent in was.shape) or was.shape[0].constant_value() < 2:
        return
    length = was.shape[0].constant_value()
    if was.dtype != "float32" or len(was.shape) > 1:
        return
    step = rng.randint(1, length)
    body = GraphBuilder("body")
    part = body.input("part", (SizeExpr.dim("part"),), was.dtype)
    (twice,) = body.node("toy.gelu", part, outputs=["twice: f32[{part}]"])
    (out,) = body.node("toy.mix", twice, outputs=["out: f32[{part}]"])
    body.output(out)
    around = GraphBuilder("around")
    around.output(
        *around.loop(
            body.finish(),
            -(-length // step),
            [around.input("whole", was.shape)],
            outputs=[f"joined: f32[{length}]"],
            slices=[SliceMap(0, 0, SizeExpr.const(step))],
            merges=[MergeMap(0, "concat", 0)],
        )
    )
    made = edit.fresh("joined", was.dtype, was.shape)
    regions = around.finish().nodes[-1].regions
    draft = NodeDraft(LOOP_OP, (value,), (made,), (Ref(0),), regions=regions)
    producer = _node_that_makes(graph, value)
    edit.insert_before(0, draft) if producer < 0 else edit.insert_after(producer, draft)
    edit.replace_uses(value, made, outputs=False)


_CHANGES = (
    *(_insert_copy, _insert_copy, _insert_in_place, _insert_view),
    *(_replace, _remove, _remove, _move, _move, _insert_loop),
)
