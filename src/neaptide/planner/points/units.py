"""What is evicted as a whole, and what has to run to have it again.

A unit is all storages that one node creates. Its creator recomputes it, and then those of its writers that have run, in
order. Views have no bytes; they are taken again when they are next needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a program under one order of first executions; a unit is named by its creator.

    Attributes:
        ends: by unit and node of its chain, the position from which on the node cannot run again for the unit: one of its
            operands is overwritten there, or it runs there and reads a result of the unit. Others are left out.
    """

    problem: StepProblem
    order: tuple[int, ...]
    position_of: tuple[int, ...]  # by node, its position among them
    chains: Mapping[int, tuple[int, ...]]  # by unit, creator and writers, as they run
    refused: frozenset[int]  # units that cannot be recomputed
    last_use: tuple[int, ...]  # by storage, the position that needs it last; the number of nodes for outputs
    ends: Mapping[tuple[int, int], int]

    def unit_ends(self) -> dict[int, int]:
        """By unit, the position from which on it cannot be recomputed; units that always can be are left out."""
        found: dict[int, int] = {}
        for (unit, _), position in self.ends.items():
            found[unit] = min(position, found.get(unit, position))
        return found


def units_of(problem: StepProblem, order: Sequence[int]) -> Units:
    """The units of a program. O(size of the problem)."""
    position_of = [0] * problem.node_count
    for position, node in enumerate(order):
        position_of[node] = position
    chains = {
        node: (node, *sorted({w for s in created for w in problem.writers[s]}, key=position_of.__getitem__))
        for node, created in enumerate(problem.created)
        if created
    }
    return Units(
        problem,
        tuple(order),
        tuple(position_of),
        chains,
        frozenset(unit for unit, chain in chains.items() if _is_refused(problem, unit, chain)),
        _last_uses(problem, position_of),
        _ends(problem, position_of, chains),
    )


def chain_sources(problem: StepProblem, unit: int, chain: Sequence[int]) -> tuple[int, ...]:
    """Storages of other units that some nodes of a unit's chain read."""
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
    waiting = list(chain_sources(problem, unit, (writer,)))
    seen = set()
    while waiting:
        other = problem.creator[waiting.pop()]
        if other in seen or position_of[other] < position_of[unit]:
            continue
        seen.add(other)
        for source in chain_sources(problem, other, chains[other]):
            if problem.creator[source] == unit:
                return True
            waiting.append(source)
    return False
