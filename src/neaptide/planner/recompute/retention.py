"""Retention tables: what is held into each phase of the backward, carried out as a sequence.

A phase is a stretch of nodes behind the forward part. For a given table the least recomputation follows in closed
form (Jain et al. 2020, Checkmate, section 4.4): what a phase reads and is not there is made again, with those
operands that are not there either, each just before its first use; a unit that a later phase is to find is made in
the phase before it when nothing holds it by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neaptide.outcome import LimitGuard
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.forward_units import ForwardUnits
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.replays import Replays


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the backward.

    Attributes:
        first: position of its first node among first executions.
        end: one past its last.
        held: creators of units that it is to find when it begins, if they are there by then or can be.
    """

    first: int
    end: int
    held: frozenset[int]


def carry_out(
    problem: PlanningProblem, forward: ForwardUnits, phases: Sequence[Phase], guard: LimitGuard, name: str
) -> PlannedSequence:
    """The order of `forward` with the recomputations that a table asks for.

    Legal whatever the table says: what cannot be made again is held. O(recomputations x steps).
    """
    evaluator = Evaluator(problem.step, forward.order)
    replays = Replays(evaluator)
    for anchor, unit in _recomputations(forward, phases):
        if guard.exhausted():
            break
        before = forward.order[anchor]
        storages = problem.step.created[unit]
        # Operands that are gone by then are held: all that are to be made again come earlier in this list.
        closure = replays.closure(storages[0], before, hold_from=-1)
        if closure.nodes and not closure.refusal:
            evaluator.apply(replays.insertion(closure, before))
            evaluator.forget_undo()
    return PlannedSequence.of(evaluator, name)


def _recomputations(forward: ForwardUnits, phases: Sequence[Phase]) -> Iterable[tuple[int, int]]:
    """(position that it runs in front of, unit), in running order."""
    there = set(phases[0].held) if phases else set()
    for index, phase in enumerate(phases):
        reads = _first_reads(forward, phase)
        if index:
            there &= phase.held
        following = phases[index + 1].held if index + 1 < len(phases) else frozenset()
        needed = {unit: position for unit, position in reads.items() if unit not in there}
        # Only for later: with the last of the phase, unless something here needs it anyway.
        for unit in following - there:
            needed.setdefault(unit, max(phase.first, phase.end - 1))
        if phase.first >= len(forward.order):
            return
        missing = forward.missing(needed, there)
        anchors: dict[int, int] = {}
        waiting = list(needed.items())
        while waiting:
            unit, anchor = waiting.pop()
            if unit in missing and anchor < anchors.get(unit, len(forward.order)):
                anchors[unit] = anchor
                waiting.extend((operand, anchor) for operand in forward.units[unit].operands)
        yield from sorted(((anchor, unit) for unit, anchor in anchors.items()))
        there |= missing


def _first_reads(forward: ForwardUnits, phase: Phase) -> dict[int, int]:
    """Units that a phase reads, and the position that reads each first."""
    found: dict[int, int] = {}
    for position in range(phase.first, phase.end):
        for unit in forward.reads[position - forward.turning]:
            found.setdefault(unit, position)
    return found
