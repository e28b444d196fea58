"""Two kinds of rules: of single nodes, where a pattern says of each what is to be done, and of regions, of which prices choose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, cast

from neaptide.errors import RewriteError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.edits.edit import Edited, GraphEdit
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value, contiguous_strides
from neaptide.transform.drafting import Drafting
from neaptide.transform.rewrite import STATIC, Rewrite, Rule, Sizes, refused

Pattern = Callable[[Node], Any]
"""What is to be done at a node; a text that says why nothing may be; None where the rule is not about it."""


def node_rule(
    name: str,
    summary: str,
    pattern: Callable[[Graph, OpRegistry], Pattern],
    change: Callable[[Drafting, Node, Any], None],
    cannot: tuple[str, str],
    *,
    keeps_bits: bool = True,
    apart: bool = False,
) -> Rule:
    """A rule of one pattern. The nodes of a rewrite are those that change, ascending; there are no settings.

    Args:
        pattern: for a graph; O(size) to make.
        change: does at a node what the pattern says.
        cannot: what a node without a place may not do, in words, and why where the rule is not about it.
        apart: each place is a rewrite of its own; else all are one.
    """

    def find(graph: Graph, registry: OpRegistry) -> Iterator[Rewrite]:
        place_of = pattern(graph, registry)
        found = [node.id for node in graph.nodes if not isinstance(place_of(node), str | None)]
        if apart:
            yield from (Rewrite(name, (node,), (), keeps_bits) for node in found)
        elif found:
            yield Rewrite(name, tuple(found), (), keeps_bits)

    def apply(graph: Graph, registry: OpRegistry, rewrite: Rewrite, _: Sizes = STATIC) -> Edited:
        nodes = rewrite.nodes
        if not nodes or list(nodes) != sorted(set(nodes)) or rewrite.settings:
            raise RewriteError("it must name nodes, ascending, and no settings")
        if apart and len(nodes) > 1:
            raise RewriteError("it must name one node")
        place_of, drafting = pattern(graph, registry), Drafting(graph, registry)
        for node in (graph.nodes[number] for number in nodes):
            place = place_of(node)
            if place is None or isinstance(place, str):
                what, otherwise = cannot
                raise refused(node, f"may not {what}: {place or otherwise}")
            change(drafting, node, place)
        return drafting.edit.finish()

    return Rule(name=name, summary=summary, find=find, apply=apply, keeps_bits=keeps_bits, each_node=True)


def region_rule(
    name: str,
    summary: str,
    apply: Callable[[Graph, OpRegistry, Rewrite, Sizes], Edited],
    *,
    keeps_bits: bool = False,
) -> Rule:
    """A rule about regions, of which prices choose (`planner.variants`): it finds none by itself."""
    return Rule(
        name=name,
        summary=summary,
        find=lambda _graph, _registry: (),
        apply=apply,
        keeps_bits=keeps_bits,
        are_alternatives=True,
    )


class Uses:
    """By storage of a graph, the nodes that need its bytes and those that overwrite them, ascending. O(size) to make."""

    def __init__(self, graph: Graph) -> None:
        self.needed: dict[int, list[int]] = defaultdict(list)
        self.written: dict[int, list[int]] = defaultdict(list)
        self.given, self.handed_back = set(graph.input_storages()), set(graph.output_storages())
        for node in graph.nodes:
            needed = {graph.values[value].storage for value in needed_inputs(graph, node)}
            for storage in needed - {None}:
                self.needed[cast("int", storage)].append(node.id)
            for access in node.effects.writes:
                self.written[access.storage].append(node.id)

    def written_between(self, storage: int | None, start: int, end: int) -> bool:
        """Whether a node between two others overwrites a storage."""
        return (
            any(start < node < end for node in self.written.get(storage, ()))
            if storage is not None
            else False
        )


def operand_at(node: Node, position: int) -> int | None:
    """The value that a node is called with at a position; None where that is no tensor."""
    arg = node.args[position] if position < len(node.args) else None
    return node.inputs[arg.slot] if isinstance(arg, Ref) else None


def fresh_like(edit: GraphEdit, graph: Graph, number: int, name: str) -> int:
    """A value that lies as another, on a storage of its own that is like that of the other."""
    value = graph.values[number]
    assert value.storage is not None
    block = graph.storages[value.storage]
    return edit.fresh(
        name,
        value.dtype,
        value.shape,
        device=block.device,
        kind=block.kind,
        strides=value.strides,
        nbytes=block.nbytes,
    )


def alias_like(edit: GraphEdit, value: Value, of: int, name: str = "") -> int:
    """A value that lies as another, in the storage of `of`."""
    return edit.alias(name or value.name, value.dtype, value.shape, value.strides, value.offset, of=of)


def is_row_major(value: Value) -> bool:
    """Whether the elements of a value lie in row-major order without gaps."""
    return value.storage is not None and value.strides == contiguous_strides(value.shape)


def used_once(graph: Graph) -> Callable[[int], bool]:
    """Tells of a value whether one node alone uses it. O(size of the graph)."""
    users, outputs = graph.consumers(), set(graph.outputs)
    return lambda value: len(set(users[value])) == 1 and value not in outputs
