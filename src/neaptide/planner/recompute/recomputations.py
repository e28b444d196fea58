"""The recomputations of a sequence, as units that can be judged and reported one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.schedule.evaluate import Evaluator


@dataclass(frozen=True, slots=True)
class RecomputeUnit:
    """All that one node creates, recomputed before a step.

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
