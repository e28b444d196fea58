"""What a graph computes, as text: a reference that knows effects and views, and nothing of rules or edits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from neaptide.ir.edits.edit import Edited, GraphEdit
from neaptide.ir.graph import Graph


def played(graph: Graph) -> tuple[list[object], dict[int, object]]:
    """Contents of the outputs, and of the caller's storages at the end, after program order.

    A content is a hash of how it came about: operations, arguments and contents that were read. Two values on one
    storage differ by the views that lead to them.
    """
    block: dict[int, int] = {s: hash(("owned", s)) for s in graph.input_storages()}
    seen_as: dict[int, int] = {v: hash(("input", v)) for v in graph.inputs}
    drawn: dict[str, int] = {}
    for node in graph.nodes:
        reads = {access.storage for access in node.effects.reads}
        operands = []
        for value in node.inputs:
            storage = graph.values[value].storage
            operands.append((seen_as[value], block[storage] if storage in reads else None))
        stream = node.effects.rng
        if stream is not None:
            drawn[stream] = drawn.get(stream, 0) + 1
        what = (node.op, repr(node.args), repr(node.kwargs), tuple(operands), drawn.get(stream or ""))
        for access in node.effects.writes:
            block[access.storage] = hash(("written", what, block[access.storage]))
        created = graph.created_storages(node)
        for place, storage in enumerate(created):
            block[storage] = hash(("made", what, place))
        for place, value in enumerate(node.outputs):
            is_made = graph.values[value].storage in created
            seen_as[value] = hash(("result", place)) if is_made else hash(("view", what, place))
    outputs = [(seen_as[v], block.get(graph.values[v].storage)) for v in graph.outputs]
    return outputs, {s: block[s] for s in graph.input_storages()}


def doubled(draw: st.DrawFn, graph: Graph, *, keeps_numbers: bool = False) -> Edited:
    """The graph with copies of some of its nodes, which take over some of the uses.

    With `keeps_numbers` no node is copied whose result is overwritten later: some of the uses would miss that.
    """
    edit = GraphEdit(graph)
    written = {access.storage for node in graph.nodes for access in node.effects.writes}
    consumers = graph.consumers()
    for node in graph.nodes:
        made = graph.created_storages(node)
        is_plain = len(node.outputs) == 1 and len(made) == 1 and node.effects.is_pure
        if not is_plain or (keeps_numbers and made[0] in written) or not draw(st.booleans()):
            continue
        old = graph.values[node.outputs[0]]
        size = graph.storages[made[0]].nbytes
        draft = edit.draft(node.id)
        copy = edit.fresh(old.name, old.dtype, old.shape, strides=old.strides, nbytes=size)
        again = replace(draft, outputs=(copy,))
        edit.insert_after(node.id, again)
        users = [user for user in consumers[old.id] if draw(st.booleans())]
        edit.replace_uses(old.id, copy, nodes=users, outputs=False)
    return edit.finish()
