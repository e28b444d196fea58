"""Retention tables: what is held into each part of the backward, carried out as a sequence.

A part is a run of nodes behind the forward part. A table leaves no choice (Jain et al. 2020, Checkmate, section 4.4):
what a part reads and does not find is recomputed, with the operands that are not there either, each just before its
first use. A unit that a later part is to find, and that nothing holds by then, is recomputed in the part before it.
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
class BackwardPart:
    """Nodes behind the forward part that run one after the other, and what they are to find.

    Attributes:
        first: position of its first node among first executions.
        end: one past its last.
        held: creators of units that it is to find when it begins, if they are there by then or can be.
    """

    first: int
    end: int
    held: frozenset[int]


def carry_out(
    problem: PlanningProblem,
    forward: ForwardUnits,
    parts: Sequence[BackwardPart],
    guard: LimitGuard,
    name: str,
) -> PlannedSequence:
    """The order of `forward` with the recomputations that a table asks for.

    Legal whatever the table says: what cannot be recomputed is held. O(recomputations x steps).
    """
    evaluator = Evaluator(problem.step, forward.order)
    replays = Replays(evaluator)
    for anchor, unit in _recomputations(forward, parts):
        if guard.exhausted():
            break
        before = forward.order[anchor]
        storages = problem.step.created[unit]
        # Operands that are gone by then are held: all that are to be recomputed come earlier in this list.
        closure = replays.closure(storages[0], before, hold_from=-1)
        if closure.nodes and not closure.refusal:
            evaluator.apply(replays.insertion(closure, before))
            evaluator.forget_undo()
    return PlannedSequence.of(evaluator, name)


def _recomputations(forward: ForwardUnits, parts: Sequence[BackwardPart]) -> Iterable[tuple[int, int]]:
    """(position that it runs in front of, unit), in running order."""
    there = set(parts[0].held) if parts else set()
    for index, part in enumerate(parts):
        reads = _first_reads(forward, part)
        if index:
            there &= part.held
        following = parts[index + 1].held if index + 1 < len(parts) else frozenset()
        needed = {unit: position for unit, position in reads.items() if unit not in there}
        # Only for later: with the last of the part, unless something here needs it anyway.
        for unit in following - there:
            needed.setdefault(unit, max(part.first, part.end - 1))
        if part.first >= len(forward.order):
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


def _first_reads(forward: ForwardUnits, part: BackwardPart) -> dict[int, int]:
    """Units that a part reads, and the position that reads each first."""
    found: dict[int, int] = {}
    for position in range(part.first, part.end):
        for unit in forward.reads[position - forward.turning]:
            found.setdefault(unit, position)
    return found
