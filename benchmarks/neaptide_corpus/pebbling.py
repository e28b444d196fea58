"""Weighted one-shot black pebbling: another way to state an ordering problem, with a brute-force pebbler.

A vertex may be pebbled when all its predecessors carry pebbles, each vertex exactly once; pebbles may be taken off at any
time; in the end the kept vertices carry theirs. Wanted is the least weight that lies on the graph at once. (Without
weights: Sethi 1975; no constant factor can be approximated under small-set expansion: Austrin, Pitassi and Wu, arXiv
1109.4910.)
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from neaptide.errors import UsageError
from neaptide_corpus.order_forms import FormBuilder, OrderForm

PEBBLING_FORMAT: Final = "neaptide.pebbling/1"
MOST_BRUTE_FORCE_VERTICES: Final = 7


@dataclass(frozen=True, slots=True)
class PebbleGame:
    """A game on an acyclic graph; vertices are numbers in a topological order.

    Attributes:
        weights: of a pebble on each vertex.
        predecessors: by vertex, smaller numbers.
        kept: vertices that carry pebbles in the end.
        ids: names of the vertices, for reports.
    """

    weights: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    kept: frozenset[int]
    ids: tuple[str, ...] = ()


def from_mapping(content: Mapping[str, Any]) -> PebbleGame:
    """Read a game.

    Args:
        content: `{"format": "neaptide.pebbling/1", "vertices": [{"id", "weight", "predecessors": [ids]}], "kept": [ids]}`.
            Without `kept` the vertices without successors are kept.

    Raises:
        UsageError: it is not of that form, names an unknown vertex, or has a cycle.
    """
    if content.get("format") != PEBBLING_FORMAT:
        raise UsageError(
            f"the format of a pebble game is {PEBBLING_FORMAT!r}, not {content.get('format')!r}",
            next_step="write the format into the file",
        )
    try:
        rows = {str(row["id"]): row for row in content["vertices"]}
        weights = {name: int(row["weight"]) for name, row in rows.items()}
        before = {name: tuple(map(str, row.get("predecessors", ()))) for name, row in rows.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            "the pebble game is not of its form",
            why=f"{type(error).__name__}: {error}",
            next_step='each vertex is {"id", "weight", "predecessors"}',
        ) from error
    if len(rows) != len(content["vertices"]) or any(weight < 0 for weight in weights.values()):
        raise UsageError("vertices need ids of their own and weights that are not negative")
    read = {name for earlier in before.values() for name in earlier}
    kept = [str(name) for name in content.get("kept", sorted(rows.keys() - read))]
    unknown = sorted((read | set(kept)) - rows.keys())
    if unknown:
        raise UsageError(f"the pebble game names a vertex that it does not have: {unknown[0]}")
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise UsageError("the pebble game has a cycle", why=" -> ".join(map(str, error.args[1]))) from error
    number = {name: i for i, name in enumerate(order)}
    return PebbleGame(
        weights=tuple(weights[name] for name in order),
        predecessors=tuple(tuple(sorted({number[other] for other in before[name]})) for name in order),
        kept=frozenset(number[name] for name in kept),
        ids=tuple(order),
    )


def order_form(game: PebbleGame) -> OrderForm:
    """The game as an ordering problem: a pebble is a storage, placing it an operation. Equal optima.

    A storage is freed after its last reader, which is the best time to take a pebble off.
    """
    form = FormBuilder()
    pebbles: list[str] = []
    for vertex, earlier in enumerate(game.predecessors):
        reads = [pebbles[v] for v in earlier]
        pebbles += form.op("pebble", reads=reads, sizes=[game.weights[vertex]])
    form.keep(*(pebbles[v] for v in game.kept))
    return form.finish("pebbling")


def pebbling_number(game: PebbleGame) -> int:
    """The least weight with which the game can be won, by search over all positions. O(3^n n).

    Knows nothing of storages and orders: a position is what has been pebbled and what carries pebbles now.

    Raises:
        UsageError: more than `MOST_BRUTE_FORCE_VERTICES` vertices, or a kept vertex that is none of them.
    """
    n = len(game.weights)
    if n > MOST_BRUTE_FORCE_VERTICES:
        raise UsageError(f"the brute-force pebbler plays games of up to {MOST_BRUTE_FORCE_VERTICES} vertices")
    needed = [sum(1 << v for v in earlier) for earlier in game.predecessors]
    kept = sum(1 << v for v in game.kept)
    everything = (1 << n) - 1
    best = {(0, 0): 0}
    queue = [(0, 0, 0)]
    while queue:
        cost, pebbled, now = heapq.heappop(queue)
        if cost > best[pebbled, now]:
            continue
        if pebbled == everything and now & kept == kept:
            return cost
        for v in range(n):
            bit = 1 << v
            if now & bit:
                position = (pebbled, now & ~bit)
            elif not pebbled & bit and now & needed[v] == needed[v]:
                position = (pebbled | bit, now | bit)
            else:
                continue
            reached = max(cost, _weight(game.weights, position[1]))
            if reached < best.get(position, reached + 1):
                best[position] = reached
                heapq.heappush(queue, (reached, *position))
    raise UsageError("the game cannot be won", why="a kept vertex is not one of its vertices")


def random_game(seed: int, vertices: int, *, edge: float = 0.4, largest: int = 9) -> PebbleGame:
    """A random game that keeps the vertices without successors, and sometimes another one."""
    rng = random.Random(seed)
    before = tuple(tuple(i for i in range(j) if rng.random() < edge) for j in range(vertices))
    read = {i for earlier in before for i in earlier}
    kept = frozenset(v for v in range(vertices) if v not in read or rng.random() < 0.1)
    weights = tuple(rng.randint(1, largest) for _ in range(vertices))
    return PebbleGame(weights, before, kept, tuple(f"v{i}" for i in range(vertices)))


def _weight(weights: Sequence[int], pebbles: int) -> int:
    return sum(weight for v, weight in enumerate(weights) if pebbles >> v & 1)
