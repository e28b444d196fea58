"""What an eviction policy knows of a program before it runs: which storages belong together, and what they depend on.

A unit is all storages that one node creates. It is evicted as a whole. Its creator recomputes it, and then those of
its writers that have run, in order. Views have no bytes; they are taken again when they are next needed.
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
        position_of: by node, its position among them.
        chains: by unit, the creator and the writers of what it creates, as they run.
        sources: by unit, storages of other units that its chain reads.
        readers: by storage, units whose chains read it.
        refused: units that cannot be recomputed.
        last_use: by storage, the position that needs it last; the number of nodes for outputs.
        dying: by position, storages that have their last use there.
        expiring: by position, units that cannot be recomputed from there on: one of their operands is overwritten
            there, or one of their writers runs there and reads a result of theirs.
        kept_from: by unit, the first node after which it must stay: its operands are gone by then, and it is still
            needed. In a whole step these units are the gradients, which all exist before the first update. A unit
            without such a node is left out.
        maker: by value, the node that defines it; -1 for graph inputs.
    """

    problem: StepProblem
    order: tuple[int, ...]
    position_of: tuple[int, ...]
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
    position_of = [0] * problem.node_count
    for position, node in enumerate(order):
        position_of[node] = position
    chains = {
        node: (node, *sorted({w for s in created for w in problem.writers[s]}, key=position_of.__getitem__))
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
    last_use = _last_uses(problem, position_of)
    ends = _ends(problem, position_of, chains)
    expiring: dict[int, dict[int, None]] = defaultdict(dict)
    for (unit, _), position in sorted(ends.items()):
        expiring[position][unit] = None
    dying: dict[int, list[int]] = defaultdict(list)
    for storage, position in enumerate(last_use):
        dying[position].append(storage)
    return Units(
        problem,
        tuple(order),
        tuple(position_of),
        chains,
        sources,
        tuple(map(tuple, readers)),
        frozenset(unit for unit, chain in chains.items() if _is_refused(problem, unit, chain)),
        last_use,
        {position: tuple(storages) for position, storages in dying.items()},
        {position: tuple(units) for position, units in expiring.items()},
        _kept_from(problem, position_of, chains, ends, last_use),
        tuple(maker),
    )


def _sources(problem: StepProblem, unit: int, chain: Sequence[int]) -> tuple[int, ...]:
    found = {problem.value_storage[value]: None for node in chain for value in problem.operands[node]}
    return tuple(s for s in found if s >= 0 and problem.creator[s] >= 0 and s not in problem.created[unit])


def _last_uses(problem: StepProblem, position_of: Sequence[int]) -> tuple[int, ...]:
    handed_back = {problem.value_storage[value] for value in problem.outputs}
    return tuple(
        problem.node_count
        if storage in handed_back
        else max((position_of[node] for node in problem.roles[storage]), default=-1)
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
    problem: StepProblem, position_of: Sequence[int], chains: Mapping[int, Sequence[int]]
) -> dict[tuple[int, int], int]:
    """By unit and node of its chain, the position from which on the node cannot run again for the unit's sake."""
    found: dict[tuple[int, int], int] = {}
    for unit, chain in chains.items():
        for node in chain:
            ends = [
                position_of[problem.writers[storage][version]]
                for storage, version in problem.reads[node]
                if len(problem.writers[storage]) > version and storage not in problem.created[unit]
            ]
            if node != unit and _closes_a_circle(problem, position_of, chains, unit, node):
                ends.append(position_of[node])
            if ends:
                found[unit, node] = min(ends)
    return found


def _closes_a_circle(
    problem: StepProblem,
    position_of: Sequence[int],
    chains: Mapping[int, Sequence[int]],
    unit: int,
    writer: int,
) -> bool:
    """Whether a writer reads what is made, by units younger than its own alone, from its own unit.

    Each circle of units is found from its oldest.
    """
    waiting = list(_sources(problem, unit, (writer,)))
    seen = set()
    while waiting:
        other = problem.creator[waiting.pop()]
        if other in seen or position_of[other] < position_of[unit]:
            continue
        seen.add(other)
        for source in _sources(problem, other, chains[other]):
            if problem.creator[source] == unit:
                return True
            waiting.append(source)
    return False


def _kept_from(
    problem: StepProblem,
    position_of: Sequence[int],
    chains: Mapping[int, Sequence[int]],
    ends: Mapping[tuple[int, int], int],
    last_use: Sequence[int],
) -> dict[int, int]:
    unit_end: dict[int, int] = {}
    found: dict[int, int] = {}
    for unit in sorted(chains, key=position_of.__getitem__):
        needed = max(last_use[s] for s in problem.created[unit])
        end = problem.node_count
        for node in chains[unit]:
            above = (unit_end.get(problem.creator[s], end) for s in _sources(problem, unit, (node,)))
            end = min(end, ends.get((unit, node), end), *above)
            if end < needed:
                found.setdefault(unit, node)
        unit_end[unit] = end
    return found
