"""Dominator trees of acyclic graphs with one root, and the pairs between which regions lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def immediate_dominators(order: Sequence[int], predecessors: Sequence[Iterable[int]], root: int) -> list[int]:
    """Immediate dominators in topological order; the root's is itself, -1 for nodes not in `order`. O(E log V)."""
    size = len(predecessors)
    parent, jump, depth = [-1] * size, [-1] * size, [0] * size
    parent[root] = jump[root] = root
    for node in order:
        if node == root:
            continue
        common = -1
        for before in predecessors[node]:
            common = before if common < 0 else _meet(common, before, parent, jump, depth)
        parent[node] = common
        depth[node] = depth[common] + 1
        over = jump[common]
        even = depth[common] - depth[over] == depth[over] - depth[jump[over]]
        jump[node] = jump[over] if even else common
    return parent


def _meet(first: int, second: int, parent: list[int], jump: list[int], depth: list[int]) -> int:
    """Lowest common ancestor, over jump pointers (Myers 1983)."""
    if depth[first] < depth[second]:
        first, second = second, first
    while depth[first] > depth[second]:
        first = jump[first] if depth[jump[first]] >= depth[second] else parent[first]
    while first != second:
        if jump[first] != jump[second]:
            first, second = jump[first], jump[second]
        else:
            first, second = parent[first], parent[second]
    return first


def entry_exit_pairs(
    order: Sequence[int], predecessors: Sequence[Iterable[int]], successors: Sequence[Iterable[int]]
) -> list[tuple[int, int]]:
    """Forks with the node that all paths from them pass, and joins with the node that all paths to them pass.

    Between such a pair lies everything that a fork leads to without meeting the rest, or a join comes from. Inner
    pairs come before those around them. `order` is topological, one root first and one end last.
    """
    above = immediate_dominators(order, predecessors, order[0])
    below = immediate_dominators(order[::-1], successors, order[-1])
    position_of = {node: index for index, node in enumerate(order)}
    pairs = dict.fromkeys((node, below[node]) for node in order[:-1] if _several(successors[node]))
    pairs.update(dict.fromkeys((above[node], node) for node in order[1:] if _several(predecessors[node])))
    return sorted(pairs, key=lambda pair: position_of[pair[1]] - position_of[pair[0]])


def _several(nodes: Iterable[int]) -> bool:
    return sum(1 for _ in nodes) > 1
