"""What an eviction policy may know of a program beforehand: what is made and remade together, and from what.

The unit is all that one node creates: it is evicted as a whole, and made again by its creator and those of its
writers that have run, in order. Views have no bytes; they are taken again when they are next needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a program under one order of first executions; a unit is named by its creator.

    Attributes:
        problem: sizes, uses and creators.
        order: first executions.
        place: by node, its position among them.
        chains: by unit, the creator and the writers of what it creates, as they run.
        sources: by unit, storages of other units that its chain reads.
        readers: by storage, units whose chains read it.
        refused: units that cannot be made again.
        last_use: by storage, the position that needs it last; the number of nodes for what is handed back.
        dying: by position, storages that are needed there last.
        expiring: by position, units that cannot be made again from there on: something that they read is overwritten
            there, or a writer of theirs runs there that reads what was made from them.
        kept_from: by unit, the node from whose first execution on it is better not evicted: the program needs it beyond
            the point from which on it, or what it is made from, cannot be made again. In a whole step these are the
            gradients, which all have to be there before the first update. Others are left out.
        maker: by value, the node that defines it; -1 for graph inputs.
    """

    problem: StepProblem
    order: tuple[int, ...]
    place: tuple[int, ...]
    chains: Mapping[int, tuple[int, ...]]
    sources: Mapping[int, tuple[int, ...]]
    readers: tuple[tuple[int, ...], ...]
    refused: frozenset[int]
    last_use: tuple[int, ...]
    dying: Mapping[int, tuple[int, ...]]
    expiring: Mapping[int, tuple[int, ...]]
    kept_from: Mapping[int, int]
    maker: tuple[int, ...]


def eviction_units(problem: StepProblem, order: Sequence[int]) -> Units:
    """The units of a program. O(size of the problem)."""
    place = [0] * problem.node_count
    for position, node in enumerate(order):
        place[node] = position
    chains = {
        node: (node, *sorted({w for s in created for w in problem.writers[s]}, key=place.__getitem__))
        for node, created in enumerate(problem.created)
        if created
    }
    sources = {unit: _sources(problem, unit, chain) for unit, chain in chains.items()}
    readers: list[list[int]] = [[] for _ in problem.storage_bytes]
    for unit, storages in sources.items():
        for storage in storages:
            readers[storage].append(unit)
    maker = [-1] * len(problem.value_storage)
    for node, values in enumerate(problem.results):
        for value in values:
            maker[value] = node
    last_use = _last_uses(problem, place)
    ends = _ends(problem, place, chains)
    expiring: dict[int, dict[int, None]] = defaultdict(dict)
    for (unit, _), position in sorted(ends.items()):
        expiring[position][unit] = None
    dying: dict[int, list[int]] = defaultdict(list)
    for storage, position in enumerate(last_use):
        dying[position].append(storage)
    return Units(
        problem,
        tuple(order),
        tuple(place),
        chains,
        sources,
        tuple(map(tuple, readers)),
        frozenset(unit for unit, chain in chains.items() if _is_refused(problem, unit, chain)),
        last_use,
        {position: tuple(storages) for position, storages in dying.items()},
        {position: tuple(units) for position, units in expiring.items()},
        _kept_from(problem, place, chains, ends, last_use),
        tuple(maker),
    )


def _sources(problem: StepProblem, unit: int, chain: Sequence[int]) -> tuple[int, ...]:
    found = {problem.value_storage[value]: None for node in chain for value in problem.operands[node]}
    return tuple(s for s in found if s >= 0 and problem.creator[s] >= 0 and s not in problem.created[unit])


def _last_uses(problem: StepProblem, place: Sequence[int]) -> tuple[int, ...]:
    handed_back = {problem.value_storage[value] for value in problem.outputs}
    return tuple(
        problem.node_count
        if storage in handed_back
        else max((place[node] for node in problem.roles[storage]), default=-1)
        if creator >= 0
        else -1
        for storage, creator in enumerate(problem.creator)
    )


def _is_refused(problem: StepProblem, unit: int, chain: Sequence[int]) -> bool:
    """Whether something on the way to any of the unit's values must not run twice, or is not known how to."""
    known = set(chain)
    for storage in problem.created[unit]:
        known.update(problem.views[storage])
    if any(problem.refusals[node] for node in known):
        return True
    # A writer that makes something of its own is repeated by a stand-in, which writes nothing.
    if any(problem.created[node] for node in chain[1:]):
        return True
    makers = {n for s in problem.created[unit] for n, role in problem.roles[s].items() if role.makes}
    return not makers <= known


def _ends(
    problem: StepProblem, place: Sequence[int], chains: Mapping[int, Sequence[int]]
) -> dict[tuple[int, int], int]:
    """By unit and node of its chain, the position from which on the node cannot run again for the unit's sake."""
    found: dict[tuple[int, int], int] = {}
    for unit, chain in chains.items():
        for node in chain:
            ends = [
                place[problem.writers[storage][version]]
                for storage, version in problem.reads[node]
                if len(problem.writers[storage]) > version and storage not in problem.created[unit]
            ]
            if node != unit and _closes_a_circle(problem, place, chains, unit, node):
                ends.append(place[node])
            if ends:
                found[unit, node] = min(ends)
    return found


def _closes_a_circle(
    problem: StepProblem, place: Sequence[int], chains: Mapping[int, Sequence[int]], unit: int, writer: int
) -> bool:
    """Whether a writer reads what is made, by units younger than its own alone, from its own unit.

    Each circle of units is found from its oldest.
    """
    waiting = list(_sources(problem, unit, (writer,)))
    seen = set()
    while waiting:
        other = problem.creator[waiting.pop()]
        if other in seen or place[other] < place[unit]:
            continue
        seen.add(other)
        for source in _sources(problem, other, chains[other]):
            if problem.creator[source] == unit:
                return True
            waiting.append(source)
    return False


def _kept_from(
    problem: StepProblem,
    place: Sequence[int],
    chains: Mapping[int, Sequence[int]],
    ends: Mapping[tuple[int, int], int],
    last_use: Sequence[int],
) -> dict[int, int]:
    unit_end: dict[int, int] = {}
    found: dict[int, int] = {}
    for unit in sorted(chains, key=place.__getitem__):
        needed = max(last_use[s] for s in problem.created[unit])
        end = problem.node_count
        for node in chains[unit]:
            above = (unit_end.get(problem.creator[s], end) for s in _sources(problem, unit, (node,)))
            end = min(end, ends.get((unit, node), end), *above)
            if end < needed:
                found.setdefault(unit, node)
        unit_end[unit] = end
    return found
