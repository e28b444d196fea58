"""The forward part of a step as units: what can be held for the backward, and what it takes to recompute it.

The forward part ends where the backward begins, or at the highest step of a program without phases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from neaptide.planner.recompute.units import Unit, storages_needed, unit_of, unit_with, writers
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.transfers import TO_END


@dataclass(frozen=True, slots=True)
class ForwardUnit(Unit):
    """A unit that the forward part makes.

    Attributes:
        position: of the creator's first execution.
        last_use: position of the last node of the forward part that touches it.
        operands: creators of the units that its nodes read, ascending.
        is_pinned: it must be held: it cannot be recomputed, or it is an output.
    """

    position: int
    last_use: int
    operands: tuple[int, ...]
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class ForwardUnits:
    """The units of one order of first executions.

    Attributes:
        order: the nodes as they run first.
        turning: position at which the backward begins.
        units: by creator, in running order.
        reads: by position from `turning` on, creators of the units that the node there reads.
        other_bytes: by position from `turning` on, bytes that are there whatever is held: resident, workspace, what
            the backward makes, pinned units.
        between_bytes: the same directly before the node of that position, without its outputs and workspace.
    """

    order: tuple[int, ...]
    turning: int
    units: dict[int, ForwardUnit]
    reads: tuple[tuple[int, ...], ...]
    other_bytes: tuple[int, ...]
    between_bytes: tuple[int, ...]

    def missing(self, wanted: Iterable[int], there: Collection[int], known: Collection[int] = ()) -> set[int]:
        """Units that must be recomputed so that all wanted ones are there. O(units found + their operands).

        Args:
            wanted: the units.
            there: units that are there already.
            known: units known to be missing, closed under what they need; they are left out.
        """
        units = self.units
        found: set[int] = set()
        waiting = [u for u in wanted if u not in there and not units[u].is_pinned]
        while waiting:
            unit = waiting.pop()
            if unit not in found and unit not in known:
                found.add(unit)
                waiting.extend(u for u in units[unit].operands if u not in there and not units[u].is_pinned)
        return found

    def seconds(self, units: Iterable[int]) -> float:
        """Seconds of recomputing some units."""
        return sum(self.units[unit].seconds for unit in units)

    def nbytes(self, units: Iterable[int]) -> int:
        """Bytes of some units, without those that are pinned."""
        return sum(unit.nbytes for u in units if not (unit := self.units[u]).is_pinned)


def turning_point(evaluator: Evaluator) -> int:
    """Where most is held for later: the first step of the backward, else the highest step."""
    phases = evaluator.problem.phases
    for position, node in enumerate(evaluator.order.tolist()):
        if phases[node] == "backward":
            return position
    return evaluator.peak_position


def forward_units(step: StepProblem, order: Sequence[int]) -> ForwardUnits:
    """The units of an order without repetitions. O(size of the problem)."""
    evaluator = Evaluator(step, order)
    turning = turning_point(evaluator)
    place = evaluator.place_of
    creators = [n for n in order[:turning] if step.created[n]]
    known = set(creators)
    outputs = {step.value_storage[v] for v in step.outputs}
    units = {c: _unit(step, c, turning, place, known, outputs) for c in creators}
    reads = tuple(
        tuple(sorted({c for s in storages_needed(step, node) if (c := step.creator[s]) in known}))
        for node in order[turning:]
    )
    other, between = _other_bytes(evaluator, turning, units)
    return ForwardUnits(tuple(order), turning, units, reads, other, between)


def _unit(
    step: StepProblem,
    creator: int,
    turning: int,
    place: Callable[[int], int],
    known: set[int],
    outputs: set[int],
) -> ForwardUnit:
    makers = sorted(writer for writer in writers(step, creator) if place(writer) < turning)
    unit = unit_of(step, creator, (creator, *makers))
    touching = [p for s in unit.storages for n in step.roles[s] if (p := place(n)) < turning]
    return unit_with(
        ForwardUnit,
        unit,
        position=place(creator),
        last_use=max(touching, default=place(creator)),
        operands=tuple(sorted({step.creator[s] for s in unit.reads} & known)),
        is_pinned=unit.is_refused or not outputs.isdisjoint(unit.storages),
    )


def _other_bytes(
    evaluator: Evaluator, turning: int, units: dict[int, ForwardUnit]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes that are there whatever is held, at and between the positions from `turning` on."""
    step = evaluator.problem
    count = len(evaluator.order)
    alive = [0] * (count + 1)
    across = [0] * (count + 1)
    for storage, spans in enumerate(evaluator.spans):
        unit = units.get(step.creator[storage])
        if unit is not None and not unit.is_pinned:
            continue
        for start, end in spans:
            first = int(evaluator.position[start])
            last = count - 1 if end == TO_END else int(evaluator.position[end])
            alive[first] += step.storage_bytes[storage]
            alive[last + 1] -= step.storage_bytes[storage]
            across[first + 1] += step.storage_bytes[storage]
            across[last + 1] -= step.storage_bytes[storage]
    at: list[int] = []
    between: list[int] = []
    here = before = step.resident_bytes
    for position, node in enumerate(evaluator.order.tolist()):
        here += alive[position]
        before += across[position]
        at.append(here + step.workspace[node])
        between.append(before)
    return tuple(at[turning:]), tuple(between[turning:])
