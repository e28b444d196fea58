"""What hypothesis draws - size expressions, graphs, legal schedules - and how many examples of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from neaptide.ir.dependencies import predecessors
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.schedule import Schedule
from neaptide.symbolic.size_expr import SizeExpr, floordiv, maximum, modulo
from neaptide_corpus.random_graphs import random_graph

DIMS = ("B", "T", "S0")


def _combined(parts: st.SearchStrategy[SizeExpr]) -> st.SearchStrategy[SizeExpr]:
    divisors = st.one_of(st.integers(1, 12).map(SizeExpr.const), parts.map(lambda e: maximum(e, 1)))
    return st.one_of(
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, b: a - b, parts, parts),
        st.builds(lambda a, b: a * b, parts, parts),
        st.builds(floordiv, parts, divisors),
        st.builds(modulo, parts, divisors),
        st.builds(maximum, parts, parts),
    )


def size_exprs(dims: Sequence[str] = DIMS, max_leaves: int = 6) -> st.SearchStrategy[SizeExpr]:
    """Size expressions whose divisors are at least 1 for every binding."""
    leaves = st.one_of(st.sampled_from(dims).map(SizeExpr.dim), st.integers(-20, 20).map(SizeExpr.const))
    return st.recursive(leaves, _combined, max_leaves=max_leaves)


def bindings(dims: Sequence[str] = DIMS, low: int = 0, high: int = 40) -> st.SearchStrategy[dict[str, int]]:
    """A number for each dimension."""
    return st.fixed_dictionaries({name: st.integers(low, high) for name in dims})


@st.composite
def graphs(draw: st.DrawFn, min_nodes: int = 0, max_nodes: int = 20, **features: bool) -> Graph:
    """Random valid graphs; features as in `random_graph`, drawn where they are not given."""
    names = ("views", "in_place", "multi_output", "shape_only", "persistent", "rng")
    flags = {name: features[name] if name in features else draw(st.booleans()) for name in names}
    return random_graph(draw(st.integers(0, 2**32)), draw(st.integers(min_nodes, max_nodes)), **flags)


@st.composite
def segmented(draw: st.DrawFn, graph: Graph) -> Graph:
    """A graph cut into segments at random places; some may be empty."""
    count = len(graph.nodes)
    ends = [*sorted(draw(st.lists(st.integers(0, count), max_size=3))), count]
    starts = [0, *ends[:-1]]
    names = (f"part {number}" for number in range(len(ends)))
    return replace(graph, segments=tuple(map(Segment, names, starts, ends)))


@st.composite
def node_orders(draw: st.DrawFn, graph: Graph) -> tuple[int, ...]:
    """A random legal order of the nodes of a graph."""
    waiting = [set(before) for before in predecessors(graph)]
    left = set(range(len(graph.nodes)))
    order: list[int] = []
    while left:
        ready = sorted(node for node in left if not waiting[node])
        chosen = draw(st.sampled_from(ready))
        order.append(chosen)
        left.remove(chosen)
        for before in waiting:
            before.discard(chosen)
    return tuple(order)


def schedules(graph: Graph) -> st.SearchStrategy[Schedule]:
    """A random legal schedule of a graph, without recomputation."""
    return node_orders(graph).map(lambda order: Schedule.from_nodes(graph, order))


_PART = 20


def examples(full: int) -> int:
    """`full` with HYPOTHESIS_PROFILE=full or thorough, else a twentieth of it."""
    return full if os.environ.get("HYPOTHESIS_PROFILE") in {"full", "thorough"} else -(-full // _PART)
