"""Equal operations run once: the same operation on the same bytes, whose results nobody writes into.

Autograd saves what each operation was given. Where three projections of one activation run under autocast, the
activation is cast three times and all three casts stay for the backward; one is enough. It is the elimination of common
subexpressions (Cocke, "Global common subexpression elimination", 1970), by versions of storages instead of names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from neaptide.analysis.alias import is_pure_view
from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited, GraphEdit
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.transform.node_rule import Uses
from neaptide.transform.rewrite import STATIC, Rewrite, Rule, Sizes, refused

_Key = tuple[object, ...]


_NAME: Final = "common_subexpressions"


def _found(graph: Graph, registry: OpRegistry) -> Iterator[Rewrite]:
    keys = _Keys(graph)
    groups: dict[_Key, list[int]] = defaultdict(list)
    for node in graph.nodes:
        if _is_repeatable(graph, registry, node):
            groups[keys.of(node)].append(node.id)
    storages = _Storages(graph)
    for nodes in groups.values():
        if len(nodes) > 1:
            yield from _places(storages, nodes)


def _applied(graph: Graph, registry: OpRegistry, rewrite: Rewrite, _: Sizes = STATIC) -> Edited:
    nodes = rewrite.nodes
    if len(nodes) < 2 or list(nodes) != sorted(set(nodes)) or rewrite.settings:
        raise RewriteError("it must name two or more nodes, ascending, and no settings")
    keys, kept = _Keys(graph), graph.nodes[nodes[0]]
    for number in nodes:
        node = graph.nodes[number]
        if not _is_repeatable(graph, registry, node) and not _is_known_view(graph, registry, node):
            raise refused(node, "may do more, or other, than make the same results again")
        if keys.of(node) != keys.of(kept):
            raise refused(node, f"does not compute what node {kept.id} does")
    if (reason := _Storages(graph).objection(nodes)) is not None:
        raise refused(kept, f"may not stand for others: {reason}")
    edit = GraphEdit(graph)
    for number in nodes[1:]:
        for old, new in zip(graph.nodes[number].outputs, kept.outputs, strict=True):
            edit.replace_uses(old, new)
        edit.remove(number)
    return edit.finish()


def _places(storages: _Storages, nodes: Sequence[int]) -> Iterator[Rewrite]:
    """What can be done about some equal nodes."""
    runs = [[nodes[0]]]
    for node in nodes[1:]:
        kept = runs[-1]
        if storages.objection((*kept, node)) or storages.is_longer(kept, node):
            runs.append([node])
        else:
            kept.append(node)
    return (Rewrite(_NAME, tuple(run)) for run in runs if len(run) > 1)


def _is_known_view(graph: Graph, registry: OpRegistry, node: Node) -> bool:
    return registry.find(node.op) is not None and is_pure_view(graph, node) and not node.regions


def _is_repeatable(graph: Graph, registry: OpRegistry, node: Node) -> bool:
    """Whether all it does is to make results in storages of its own, and the same operands give the same bits."""
    spec = registry.find(node.op)
    if spec is None or not spec.deterministic or not node.effects.is_pure or node.regions:
        return False
    made = set(graph.created_storages(node))
    return bool(made) and all(graph.values[v].storage in made for v in node.outputs)


class _Keys:
    """Keys that are equal for nodes that compute the same from the same bytes.

    Two values on one storage are told apart by the operations that view it, not by shape and strides: a conjugated
    view has those of its base. Views that are equal step by step are one.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._value: dict[int, int] = {}  # to the first value that is the same view
        views: dict[tuple[_Key, int], int] = {}
        for node in graph.nodes:
            if not is_pure_view(graph, node) or node.regions:
                continue
            key = self._call(node)
            for place, value in enumerate(node.outputs):
                self._value[value] = views.setdefault((key, place), value)

    def of(self, node: Node) -> _Key:
        """The key of a node that makes storages of its own, or of a view."""
        reads = tuple((access.storage, access.version) for access in node.effects.reads)
        made = {storage: place for place, storage in enumerate(self.graph.created_storages(node))}
        results = tuple(
            (made.get(v.storage), v.dtype, v.shape, v.strides, v.offset)
            for v in (self.graph.values[number] for number in node.outputs)
            if v.storage is not None
        )
        blocks = tuple((self.graph.storages[s].nbytes, self.graph.storages[s].device) for s in made)
        return (self._call(node), reads, results, blocks)

    def _call(self, node: Node) -> _Key:
        """The operation and what it is called with.

        Arguments are compared as text: 0, 0.0, -0.0 and False are equal as numbers, and give different results.
        """
        operands = tuple(self._value.get(value, value) for value in node.inputs)
        return (node.op, operands, repr((node.args, node.kwargs, node.results)))


class _Storages:
    """What becomes of the storages of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.uses, self.returned = graph, Uses(graph), set(graph.outputs)

    def objection(self, nodes: Sequence[int]) -> str | None:
        """Why equal nodes may not share their results; None where they may."""
        alike = self._alike(nodes)
        if any(self.uses.written.get(storage) for storages in alike for storage in storages):
            return "one of the results is written into later"
        values = zip(*(self.graph.nodes[node].outputs for node in nodes), strict=True)
        if any(len(self.returned.intersection(made)) > 1 for made in values) or any(
            len(self.uses.handed_back.intersection(storages)) > 1 for storages in alike
        ):
            return "two of the results are outputs, and the caller may write into one of them"
        return None

    def is_longer(self, kept: Sequence[int], node: int) -> bool:
        """Whether the results of some nodes are let go before another runs: holding them takes more bytes than it frees."""

        def lives_on(storage: int) -> bool:
            uses = self.uses
            return storage in uses.handed_back or any(user >= node for user in uses.needed[storage][-1:])

        return any(not any(map(lives_on, storages)) for storages in self._alike(kept))

    def _alike(self, nodes: Sequence[int]) -> list[tuple[int, ...]]:
        """For each result, the storages that equal nodes make for it."""
        made = [self.graph.created_storages(self.graph.nodes[node]) for node in nodes]
        return list(zip(*made, strict=True))


COMMON_SUBEXPRESSIONS: Final = Rule(
    name=_NAME, summary="common subexpressions run once", find=_found, apply=_applied
)
"""Keeps the first of some equal operations; what used the others uses its results.

The nodes of a rewrite are the one that is kept and, after it, those that go. It is found where the first result is still there
when the next would be made: program order then never takes more bytes. It is the inverse of `rematerialisation`, by a rewrite for
each node that was made again: the node and its copy. In that place it is not found, because there the first result is let go.
Views, which take no bytes and are not found either, may be named.
"""
