"""Sums over all parts that are sums of terms in each part: each term is added as soon as it is made."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.ir.graph import Graph
from neaptide.ops.rewritten import plain_terms
from neaptide.transform.fission.region import Region


@dataclass(frozen=True, slots=True)
class Terms:
    """What is handed back for an output of a region.

    Attributes:
        terms: values of members; the output itself where it is no sum of terms.
        additions: members that would have added them, and are needed for nothing else.
    """

    terms: tuple[int, ...]
    additions: frozenset[int]


def terms_of_outputs(graph: Graph, region: Region) -> tuple[Terms, ...]:
    """By output of a region, its terms. O(size of the graph).

    Args:
        graph: where the region is.
        region: a sum of it may be a sum of two in each part, as the gradient of a weight that two layers share.
    """
    users = graph.consumers()
    members = frozenset(region.members)
    found = []
    for output in region.outputs:
        terms: list[int] = []
        additions: set[int] = set()
        waiting = [output]
        while waiting:
            value = waiting.pop()
            number = graph.producer(value)
            assert number is not None
            summed = plain_terms(graph, graph.nodes[number]) if output in region.sums else ()
            if value == output:
                is_used = not members.isdisjoint(users[value])
            else:
                is_used = len(users[value]) > 1 or value in region.outputs
            if summed and not is_used and all(graph.producer(term) in members for term in summed):
                additions.add(number)
                waiting += reversed(summed)
            else:
                terms.append(value)
        found.append(Terms(tuple(terms), frozenset(additions)))
    return tuple(found)
