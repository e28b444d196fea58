"""Trees, series-parallel graphs and pumpkins as ordering problems, with tensors shared by their readers or one per edge.

Which of the two decides how hard they are: with one buffer per edge the best order is polynomial (Liu 1987;
Kayaaslan, Lambert, Marchal and Ucar 2018), with shared tensors it is strongly NP-complete already for out-trees and
pumpkins (Jin, Purohit, Svitkina, Vee and Wang, arXiv 2312.13526). Hard ones are in `three_partition`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from neaptide_corpus.order_forms import FormBuilder, OrderForm
from neaptide_corpus.random_orders import from_predecessors

_LARGEST = 100


class Buffers(StrEnum):
    """`SHARED`: one tensor, freed after its last reader. `PER_EDGE`: each reader has a buffer of its own."""

    SHARED = "shared"
    PER_EDGE = "per_edge"


def series_parallel(
    nodes: int, out_degree: int, seed: int, *, buffers: Buffers = Buffers.SHARED, fork: float = 0.5
) -> OrderForm:
    """A random two-terminal series-parallel graph without parallel edges. O(nodes).

    Grown from one edge: again and again an edge `u -> v` chosen at random gets a node in it, or a node beside it.

    Args:
        nodes: operations, at least 2.
        out_degree: most successors of an operation, at least 1; 2 or more are reached with enough nodes.
        seed: of all choices.
        buffers: shared tensors or one buffer per edge.
        fork: probability that the new node goes beside the edge, where the degree allows it.
    """
    rng = random.Random(seed)
    edges = [(0, 1)]
    degree = [1, 0]
    for node in range(2, nodes):
        index = rng.randrange(len(edges))
        tail, head = edges[index]
        if degree[tail] < out_degree and rng.random() < fork:
            degree[tail] += 1
            edges.append((tail, node))
        else:
            edges[index] = (tail, node)
        edges.append((node, head))
        degree.append(1)
    return _from_edges(max(nodes, 2), edges, rng, buffers, f"sp d={out_degree} n={nodes} seed={seed}")


def in_tree(nodes: int, seed: int, *, in_degree: int = 3) -> OrderForm:
    """A random tree whose edges lead to its root: every tensor has one reader (Liu's trees)."""
    rng = random.Random(seed)
    edges = [(child, parent) for parent, child in _tree(nodes, in_degree, rng)]
    return _from_edges(nodes, edges, rng, Buffers.SHARED, f"in-tree n={nodes} seed={seed}")


def out_tree(nodes: int, seed: int, *, out_degree: int = 3, buffers: Buffers = Buffers.SHARED) -> OrderForm:
    """A random tree whose edges lead away from its root; what its leaves make is kept."""
    rng = random.Random(seed)
    return _from_edges(nodes, _tree(nodes, out_degree, rng), rng, buffers, f"out-tree n={nodes} seed={seed}")


def pumpkin(chains: int, nodes: int, seed: int, *, buffers: Buffers = Buffers.SHARED) -> OrderForm:
    """A source, chains of random lengths, a sink.

    Args:
        chains: out-degree of the source, at least 1.
        nodes: operations, at least `chains + 2`.
        seed: of all choices.
        buffers: whether the chains share the source's tensor.
    """
    rng = random.Random(seed)
    members = [[1 + i] for i in range(chains)]  # one node for each chain; node 0 is the source
    for node in range(chains + 1, nodes - 1):
        members[rng.randrange(chains)].append(node)
    edges = [edge for chain in members for edge in pairwise((0, *chain, nodes - 1))]
    return _from_edges(nodes, edges, rng, buffers, f"pumpkin d={chains} n={nodes} seed={seed}")


def _tree(nodes: int, degree: int, rng: random.Random) -> list[tuple[int, int]]:
    """Edges (parent, child) of a random tree with root 0."""
    room = [0]
    children = [0] * nodes
    edges = []
    for node in range(1, nodes):
        index = rng.randrange(len(room))
        parent = room[index]
        edges.append((parent, node))
        children[parent] += 1
        if children[parent] == degree:
            room[index] = room[-1]
            room.pop()
        room.append(node)
    return edges


def _from_edges(
    nodes: int, edges: Sequence[tuple[int, int]], rng: random.Random, buffers: Buffers, name: str
) -> OrderForm:
    """The graph with nodes in a depth-first topological order, sizes random."""
    successors: list[list[int]] = [[] for _ in range(nodes)]
    waiting = [0] * nodes
    for tail, head in edges:
        successors[tail].append(head)
        waiting[head] += 1
    stack = [node for node in reversed(range(nodes)) if not waiting[node]]
    place: dict[int, int] = {}
    while stack:
        node = stack.pop()
        place[node] = len(place)
        for head in reversed(successors[node]):
            waiting[head] -= 1
            if not waiting[head]:
                stack.append(head)
    order = list(place)
    predecessors: list[list[int]] = [[] for _ in range(nodes)]
    for tail, head in edges:
        predecessors[place[head]].append(place[tail])
    if buffers is Buffers.SHARED:
        nbytes = [rng.randint(1, _LARGEST) for _ in order]
        return from_predecessors(nbytes, [sorted(earlier) for earlier in predecessors], name)
    form = FormBuilder()
    buffer: dict[tuple[int, int], str] = {}
    for position, node in enumerate(order):
        heads = [place[head] for head in successors[node]]
        reads = [buffer[tail, position] for tail in sorted(predecessors[position])]
        made = form.op("op", reads=reads, sizes=[rng.randint(1, _LARGEST) for _ in heads or [position]])
        if not heads:
            form.keep(*made)
        buffer.update({(position, head): storage for head, storage in zip(heads, made, strict=False)})
    return form.finish(name)
