"""Operations made again for those who use their results much later, so that the first results can go.

The same as a recomputation in a sequence, but in the graph: what runs again can then be part of a region that runs in parts
with its users. A sequence repeats an operation as a whole. (Cloned forward nodes in backward regions: MAGIS, Chen et al.,
ASPLOS 2024, where rematerialisation is a rule of the same engine as fission.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.analysis.replay import repeat_rule
from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited, GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.node_rule import Uses, alias_like, fresh_like, region_rule
from neaptide.transform.rewrite import Rewrite, Setting, Sizes, refused

_ZERO = SizeExpr.const(0)


@dataclass(frozen=True, slots=True)
class Again:
    """Some nodes, ascending, and later ones, ascending, that are to use what a second run right before the first of them makes."""

    nodes: tuple[int, ...]
    users: tuple[int, ...]


def _applied(graph: Graph, registry: OpRegistry, rewrite: Rewrite, _: Sizes) -> Edited:
    uses, edit = Uses(graph), GraphEdit(graph)
    for group in _groups(rewrite):
        _check(graph, registry, uses, group)
        _make(edit, graph, group)
    return edit.finish()


REMATERIALISATION: Final = region_rule(
    "rematerialisation", "results are recomputed for their later users", _applied, keeps_bits=True
)


def rematerialisation(groups: Sequence[Again]) -> Rewrite:
    """The rewrite that runs some groups of nodes again, each in front of the users that are named.

    The setting `groups` counts the nodes and the users of each. Its inverse is `common_subexpressions`: a node and its copy
    become one.
    """
    nodes = tuple(number for group in groups for number in (*group.nodes, *group.users))
    counts = tuple(count for group in groups for count in (len(group.nodes), len(group.users)))
    return Rewrite(REMATERIALISATION.name, nodes, (("groups", counts),))


def _groups(rewrite: Rewrite) -> list[Again]:
    counts: Setting = dict(rewrite.settings).get("groups", ())
    if (
        len(rewrite.settings) != 1
        or not isinstance(counts, tuple)
        or not counts
        or len(counts) % 2
        or min(counts) < 1
        or sum(counts) != len(rewrite.nodes)
    ):
        raise RewriteError(
            "it must name groups of nodes and of users, and the setting groups that counts them"
        )
    made, left = [], list(rewrite.nodes)
    for many, users in zip(counts[::2], counts[1::2], strict=True):
        made.append(Again(tuple(left[:many]), tuple(left[many : many + users])))
        del left[: many + users]
    return made


def _check(graph: Graph, registry: OpRegistry, uses: Uses, group: Again) -> None:
    """Refuse what a second run, right before the first user, would not make as the first did."""
    both = (*group.nodes, *group.users)
    if list(both) != sorted(set(both)):
        raise RewriteError("nodes of a group must be named in their order, those that run again first")
    made = {value for number in group.nodes for value in graph.nodes[number].outputs}
    for number in group.users:
        if made.isdisjoint(graph.nodes[number].inputs):
            raise RewriteError(f"node {number} uses nothing of what is to be made again")
    for number in group.nodes:
        _check_node(graph, registry, uses, graph.nodes[number], group.users[0])
    _check_outputs(graph, group)


def _check_outputs(graph: Graph, group: Again) -> None:
    """Refuse to part outputs that share bytes: the caller may write into one and look at the other."""
    shown = {graph.values[value].storage for user in group.users for value in graph.nodes[user].outputs}
    for number in group.nodes:
        for storage in graph.created_storages(graph.nodes[number]):
            if (
                storage in shown
                and sum(graph.values[value].storage == storage for value in graph.outputs) > 1
            ):
                name = graph.storages[storage].name
                raise RewriteError(f"outputs of the graph share bytes of {name}, and would no longer")


def _check_node(graph: Graph, registry: OpRegistry, uses: Uses, node: Node, before: int) -> None:
    rule = repeat_rule(graph, node, registry.with_bits(may_vary=False))
    if not rule.is_allowed:
        raise refused(node, rule.refusal)
    if not node.effects.is_pure or node.regions:
        raise refused(node, "does more than to make results")
    for access in node.effects.reads:
        if uses.written_between(access.storage, node.id, before):
            name = graph.storages[access.storage].name
            where = node.source.location or None
            raise RewriteError(
                f"{name}, which {node.op} reads, is overwritten before the second run", where=where
            )
    created = graph.created_storages(node)
    if any(uses.written_between(storage, node.id, len(graph.nodes)) for storage in created):
        raise refused(node, "makes what is overwritten later")
    if any(graph.values[v].storage is None for v in node.outputs):
        raise refused(node, "hands a number to the host")


def _make(edit: GraphEdit, graph: Graph, group: Again) -> None:
    now: dict[int, int] = {}  # by value, that of the second run
    for number in group.nodes:
        node = graph.nodes[number]
        shown = {graph.values[v].storage: now.get(v, v) for v in reversed(node.inputs)}
        created = set(graph.created_storages(node))
        for value in node.outputs:
            now[value] = _output(edit, graph, value, shown, created)
        draft = NodeDraft.of(graph, node)
        for value in dict.fromkeys(node.inputs):
            draft = draft.with_input(value, now.get(value, value))
        draft = replace(
            draft,
            outputs=tuple(now[v] for v in node.outputs),
            source=replace(node.source, phase=graph.nodes[group.users[0]].source.phase),
        )
        edit.insert_before(group.users[0], draft)
    for old, new in now.items():
        edit.replace_uses(old, new, group.users, outputs=False)


def _output(
    edit: GraphEdit, graph: Graph, number: int, shown: dict[int | None, int], created: set[int]
) -> int:
    """A value like another, on a storage of its own, or on the one that the node shows or has just created."""
    value = graph.values[number]
    if value.storage in shown:
        return alias_like(edit, value, shown[value.storage])
    assert value.storage in created
    if value.offset != _ZERO:
        raise RewriteError(f"%{value.name} does not begin where its storage does")
    shown[value.storage] = fresh_like(edit, graph, number, value.name)
    return shown[value.storage]
