"""Rules that change single nodes, all in one rewrite: which nodes, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.transform.rewrite import Refusal, Rewrite, Rule

Place = TypeVar("Place")


def found_places(
    rule: Rule,
    graph: Graph,
    near: Collection[int] | None,
    place_of: Callable[[Node], Place | str | None],
) -> Iterator[Rewrite | Refusal]:
    """One rewrite for all nodes that have a place, and the reasons of those that have none.

    Args:
        rule: whose rewrite it is.
        graph: to look in.
        near: nodes to look at; all without it.
        place_of: what is to be done at a node; why nothing may be; None where the rule is not about it.
    """
    found = []
    for node in graph.nodes:
        if near is not None and node.id not in near:
            continue
        place = place_of(node)
        if isinstance(place, str):
            yield Refusal(rule.name, (node.id,), place)
        elif place is not None:
            found.append(node.id)
    if found:
        yield Rewrite(rule.name, tuple(found), (), rule.keeps_bits)


def named_nodes(rewrite: Rewrite) -> tuple[int, ...]:
    """The nodes of a rewrite that such a rule makes.

    Raises:
        RewriteError: none, one twice, not ascending, or with settings.
    """
    nodes = rewrite.nodes
    if not nodes or list(nodes) != sorted(set(nodes)) or rewrite.settings:
        raise RewriteError("it must name nodes, ascending, and no settings")
    return nodes


def named_places(
    graph: Graph, rewrite: Rewrite, place_of: Callable[[Node], Place | str | None], what: str, otherwise: str
) -> Iterator[tuple[Node, Place]]:
    """The nodes of a rewrite that such a rule makes, and what is to be done at each.

    Args:
        graph: to be changed.
        rewrite: of the rule.
        place_of: as of `found_places`.
        what: what a node without a place may not do, in words.
        otherwise: the reason where the rule is not about a node.

    Raises:
        RewriteError: as of `named_nodes`, or a node has no place.
    """
    for number in named_nodes(rewrite):
        node = graph.nodes[number]
        place = place_of(node)
        if place is None or isinstance(place, str):
            raise RewriteError(
                f"{node.op} may not {what}: {place or otherwise}", where=node.source.location or None
            )
        yield node, place
