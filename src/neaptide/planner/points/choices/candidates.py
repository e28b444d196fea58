"""What may be evicted between two of its uses, and what it takes to have it again: found once, for all shapes.

The subgraph that recomputes a unit grows from its creator, as in BladeDISC++ (Yuan et al. 2024, section 2.3): what it
reads and what is no longer there is recomputed as well, until everything that is left to read is there anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from neaptide.planner.points.units import Units

MOST_NODES = 64
"""Of a subgraph. What takes more is not worth its while, and would make each decision slow."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A unit that lies idle between two of its uses."""

    unit: int  # named by its creator
    start: int  # position of the use before
    end: int  # position of the use after; the number of nodes for outputs
    storages: tuple[int, ...]  # of the unit that are needed at the end or later
    again: tuple[int, ...]  # nodes that recompute them, in program order; empty: they cannot be recomputed
    sources: tuple[int, ...]  # other units that these read, and that the program holds at the end


def all_candidates(units: Units) -> list[Candidate]:
    """Every gap of every unit, by unit and start. O(uses x size of the subgraphs)."""
    ends = units.unit_ends()
    return [candidate for unit in units.chains for candidate in _gaps(units, unit, ends)]


def _gaps(units: Units, unit: int, ends: dict[int, int]) -> Iterator[Candidate]:
    problem = units.problem
    uses = {units.position_of[node] for s in problem.created[unit] for node in problem.roles[s]}
    uses.add(units.position_of[unit])
    if any(units.last_use[s] == problem.node_count for s in problem.created[unit]):
        uses.add(problem.node_count)
    for start, end in pairwise(sorted(uses)):
        if end - start < 2:  # nothing runs in between
            continue
        storages = tuple(s for s in problem.created[unit] if units.last_use[s] >= end)
        again, sources = _subgraph(units, unit, end, ends) or ((), ())
        yield Candidate(unit, start, end, storages, again, sources)


def _subgraph(
    units: Units, unit: int, end: int, ends: dict[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Nodes that recompute a unit just before a position, and the units that they find there; None: none can."""
    problem, position_of = units.problem, units.position_of
    nodes: dict[int, None] = {}
    sources: dict[int, None] = {}
    waiting, seen = [unit], {unit}
    while waiting:
        other = waiting.pop()
        if other in units.refused or ends.get(other, end) < end:
            return None
        chain = [node for node in units.chains[other] if position_of[node] < end]
        there = any(units.last_use[s] >= end for s in problem.created[other])
        if other != unit and there and len(chain) > 1:
            return None  # its writers would write what is there a second time
        nodes.update(dict.fromkeys(chain))
        if len(nodes) > MOST_NODES:
            return None
        for node in chain:
            for value in problem.operands[node]:
                storage = problem.value_storage[value]
                maker = problem.creator[storage] if storage >= 0 else -1
                if maker < 0 or maker == unit:
                    continue
                if units.last_use[storage] >= end:
                    sources[maker] = None
                elif maker not in seen:
                    seen.add(maker)
                    waiting.append(maker)
    return tuple(sorted(nodes, key=position_of.__getitem__)), tuple(sources)
