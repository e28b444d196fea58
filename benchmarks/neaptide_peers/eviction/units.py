"""What a run that evicts knows of a program beforehand, beside its units: what depends on what, and what must stay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from neaptide.planner.points.units import Units, chain_sources, units_of
from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class RunUnits(Units):
    """The units of a program that evicts while it runs.

    Attributes:
        sources: by unit, storages of other units that its chain reads.
        readers: by storage, units whose chains read it.
        dying: by position, storages that have their last use there.
        expiring: by position, units that cannot be recomputed from there on.
        kept_from: by unit, the first node after which it must stay: its operands are gone by then, and it is still
            needed. In a whole step these units are the gradients, which all exist before the first update. A unit
            without such a node is left out.
        maker: by value, the node that defines it; -1 for graph inputs.
    """

    sources: Mapping[int, tuple[int, ...]]
    readers: tuple[tuple[int, ...], ...]
    dying: Mapping[int, tuple[int, ...]]
    expiring: Mapping[int, tuple[int, ...]]
    kept_from: Mapping[int, int]
    maker: tuple[int, ...]


def eviction_units(problem: StepProblem, order: Sequence[int]) -> RunUnits:
    """The units of a program. O(size of the problem)."""
    units = units_of(problem, order)
    sources = {unit: chain_sources(problem, unit, chain) for unit, chain in units.chains.items()}
    readers: list[list[int]] = [[] for _ in problem.storage_bytes]
    for unit, storages in sources.items():
        for storage in storages:
            readers[storage].append(unit)
    maker = [-1] * len(problem.value_storage)
    for node, values in enumerate(problem.results):
        for value in values:
            maker[value] = node
    expiring: dict[int, dict[int, None]] = defaultdict(dict)
    for (unit, _), position in sorted(units.ends.items()):
        expiring[position][unit] = None
    dying: dict[int, list[int]] = defaultdict(list)
    for storage, position in enumerate(units.last_use):
        dying[position].append(storage)
    return RunUnits(
        **{field.name: getattr(units, field.name) for field in fields(units)},
        sources=sources,
        readers=tuple(map(tuple, readers)),
        dying={position: tuple(storages) for position, storages in dying.items()},
        expiring={position: tuple(found) for position, found in expiring.items()},
        kept_from=_kept_from(problem, units),
        maker=tuple(maker),
    )


def _kept_from(problem: StepProblem, units: Units) -> dict[int, int]:
    unit_end: dict[int, int] = {}
    found: dict[int, int] = {}
    for unit in sorted(units.chains, key=units.position_of.__getitem__):
        needed = max(units.last_use[s] for s in problem.created[unit])
        end = problem.node_count
        for node in units.chains[unit]:
            above = (unit_end.get(problem.creator[s], end) for s in chain_sources(problem, unit, (node,)))
            end = min(end, units.ends.get((unit, node), end), *above)
            if end < needed:
                found.setdefault(unit, node)
        unit_end[unit] = end
    return found
