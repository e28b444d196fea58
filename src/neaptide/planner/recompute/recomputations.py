"""The recomputations of a sequence, as units that can be judged and reported one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.planner.moves import Move, MoveKind
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.replays import Replays


@dataclass(frozen=True, slots=True)
class RecomputeUnit:
    """All that one node creates, made again before a step.

    Attributes:
        creator: the node.
        target: the largest storage that it makes, which the unit is named after.
        before: the node before whose first execution it runs again; the node count for the end.
        nodes: the creator, writers and views that run again there.
        nbytes: of what the creator makes.
        seconds: of `nodes`.
    """

    creator: int
    target: int
    before: int
    nodes: tuple[int, ...]
    nbytes: int
    seconds: float


def recompute_units(evaluator: Evaluator) -> list[RecomputeUnit]:
    """The recomputations of a sequence, in running order of the steps that they are for."""
    step = evaluator.problem
    units = []
    for before in evaluator.anchors():
        block = evaluator.repeated(before)
        for place, creator in enumerate(block):
            created = step.created[creator]
            if not created:
                continue
            mine = {creator}
            for storage in created:
                mine.update(step.writers[storage], step.views[storage])
            rest = block[place + 1 :]
            end = rest.index(creator) if creator in rest else len(rest)
            nodes = (creator, *(node for node in rest[:end] if node in mine))
            units.append(
                RecomputeUnit(
                    creator,
                    max(created, key=lambda s: (step.storage_bytes[s], -s)),
                    before,
                    nodes,
                    sum(step.storage_bytes[s] for s in created),
                    sum(step.repeat_seconds[n] for n in nodes),
                )
            )
    return units


def repetition_pairs(sequence: Sequence[int], end: int) -> set[tuple[int, int]]:
    """(node, node before whose first execution it runs again) of a sequence; `end` stands for none."""
    found: set[tuple[int, int]] = set()
    waiting: list[int] = []
    seen: set[int] = set()
    for node in (*sequence, end):
        if node in seen:
            waiting.append(node)
        else:
            seen.add(node)
            found.update((repeated, node) for repeated in waiting)
            waiting = []
    return found


def recompute_moves(evaluator: Evaluator) -> tuple[Move, ...]:
    """The recomputations as moves; each delta of the peak is that of taking this one back. O(units x steps).

    A recomputation that others depend on cannot be taken back alone and is given a delta of zero.
    """
    step = evaluator.problem
    replays = Replays(evaluator)
    peak = evaluator.peak
    moves = []
    for unit in recompute_units(evaluator):
        removal = replays.removal(unit.creator, unit.before)
        delta = 0
        if removal is not None:
            evaluator.apply(removal)
            delta = peak - evaluator.peak
            evaluator.undo()
        moves.append(
            Move(
                MoveKind.RECOMPUTE,
                unit.target,
                step.storage_names[unit.target],
                unit.nodes,
                unit.before,
                unit.nbytes,
                delta,
                unit.seconds,
                "pure apart from what it makes, and everything that it reads is there unchanged",
            )
        )
    return tuple(moves)
