"""The body of a loop from a graph that hands back its parts: each part is written to a destination when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import ADD_OP, PUT_OP, Access, Effects, MergeMap, Node, Ref
from neaptide.ir.values import Storage, Value


def with_destinations(
    part: Graph,
    merges: Sequence[MergeMap],
    results: Sequence[tuple[Value, Storage]],
    merge_of: Sequence[int] | None = None,
) -> Graph:
    """The graph with a destination as a further input for each merge, written right after the last change of an output.

    Values and storages keep their ids; it has no outputs. O(size).

    Args:
        results: what each merge makes, in the graph around the loop, with its storage.
        merge_of: by output of the part, the merge that it is a part of, or a term; each its own without it.
    """
    values, storages = list(part.values), list(part.storages)
    taken = {value.name for value in values}
    writes_at: dict[int, list[tuple[int, int, MergeMap]]] = {}
    inputs = list(part.inputs)
    sources: list[list[int]] = [[] for _ in merges]
    last_write: dict[int | None, int] = {
        access.storage: node.id for node in part.nodes for access in node.effects.writes
    }
    for source, position in zip(part.outputs, merge_of or range(len(merges)), strict=True):
        sources[position].append(source)
    for found, merge, (whole, block) in zip(sources, merges, results, strict=True):
        name = f"into_{whole.name}"
        while name in taken:
            name += "_"
        taken.add(name)
        shape = part.values[found[0]].shape if merge.how == "concat" else whole.shape
        storages.append(Storage(len(storages), block.nbytes, block.device, block.kind, name))
        inputs.append(len(values))
        for source in found:
            writes_at.setdefault(_last_change(part, source, last_write), []).append(
                (len(values), source, merge)
            )
        values.append(
            Value(len(values), name, whole.dtype, shape, whole.strides, whole.offset, len(storages) - 1)
        )
    version = [0] * len(storages)
    nodes: list[Node] = []
    for position in range(-1, len(part.nodes)):
        if position >= 0:
            node = part.nodes[position]
            for access in node.effects.writes:
                version[access.storage] = access.version
            nodes.append(replace(node, id=len(nodes)))
        for into, source, merge in writes_at.get(position, ()):
            seen = values[source].storage
            begin = Access(_storage(values[into]), version[_storage(values[into])])
            reads = () if seen is None else (Access(seen, version[seen]),)
            if merge.how == "sum":
                reads = (begin, *reads)
            nodes.append(
                Node(
                    len(nodes),
                    ADD_OP if merge.how == "sum" else PUT_OP,
                    (into, source),
                    (),
                    (Ref(0), Ref(1)),
                    effects=Effects(reads, (Access(begin.storage, begin.version + 1),)),
                    source=nodes[-1].source if nodes else Node(0, PUT_OP, (), ()).source,
                )
            )
            version[begin.storage] += 1
    return replace(
        part,
        nodes=tuple(nodes),
        values=tuple(values),
        storages=tuple(storages),
        inputs=tuple(inputs),
        outputs=(),
    )


def _last_change(part: Graph, value: int, last_write: Mapping[int | None, int]) -> int:
    """Position of the node that makes a value or last writes its storage; -1 for an input that nothing writes."""
    made = part.producer(value)
    return max(-1 if made is None else made, last_write.get(part.values[value].storage, -1))


def _storage(value: Value) -> int:
    assert value.storage is not None
    return value.storage
