"""Who makes, needs and overwrites what, as flat arrays, with positions in one order of first executions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from neaptide.linear.arrays import Flags, Floats
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.problem import StepProblem


class StepTables:
    """Needs of a step in flat arrays, for the order of first executions of a sequence, by default program order."""

    def __init__(self, step: StepProblem, sequence: Sequence[int] | None) -> None:
        self.step = step
        first = range(step.node_count) if sequence is None else dict.fromkeys(sequence)
        evaluator = Evaluator(step, tuple(first))
        self.order: Ints = evaluator.order  # nodes by position; `position` is the inverse
        self.profile: Ints = evaluator.bytes  # at each position, when nothing runs again
        self.position: Ints = evaluator.position[: step.node_count].copy()
        self.seconds: Floats = np.array(step.repeat_seconds, dtype=np.float64)
        self.sizes: Ints = np.array(step.storage_bytes, dtype=np.int64)
        # By storage; -1 for what the caller owns.
        self.creator: Ints = np.array(step.creator, dtype=np.int64)
        self.may_repeat: Flags = np.array([not refusal for refusal in step.refusals], dtype=bool)
        # Pairs of node and storage that it needs, as two arrays.
        self.need = _pairs(
            (node, step.value_storage[value]) for node, values in enumerate(step.operands) for value in values
        )
        # Those of them whose bytes the node reads or writes; a view needs its storage in whatever version.
        self.touch = _pairs(
            (node, storage)
            for node, values in enumerate(step.operands)
            for storage in {step.value_storage[value] for value in values}
            if _touches(step, node, storage)
        )
        # The needs of a repetition, without what the node creates itself.
        self.repeat = _pairs(
            (node, storage)
            for node, reads in enumerate(step.reads)
            for storage, _ in reads
            if storage < 0 or step.creator[storage] != node
        )
        # Pairs of node and storage that it overwrites.
        self.write = _pairs((node, storage) for storage, nodes in enumerate(step.writers) for node in nodes)
        outputs = {step.value_storage[value] for value in step.outputs}
        self.is_output: Flags = np.array([s in outputs for s in range(len(self.sizes))], dtype=bool)
        # By node, storages that it creates or overwrites, and those that a repetition reads.
        self.made = [list(storages) for storages in step.created]
        for node, storage in zip(*self.write, strict=True):
            self.made[int(node)].append(int(storage))
        self.read_again = [[s for s, _ in reads if s >= 0] for reads in step.reads]
        # By node, bytes beside what is held while it runs: persistent, its new outputs, its workspace.
        created = np.array(
            [sum(step.storage_bytes[s] for s in made) for made in step.created], dtype=np.int64
        )
        self.fixed_bytes: Ints = created + np.array(step.workspace, dtype=np.int64) + step.persistent_bytes

    def made_before(self, position: int) -> Flags:
        """By storage, whether a node before a position creates it."""
        return (self.creator >= 0) & (self.position < position)[self.creator]

    def used_within(self, start: int, end: int, *, touched: bool = False) -> Flags:
        """By storage, whether a node between two positions needs it, or even touches it; the second excluded."""
        nodes, storages = self.touch if touched else self.need
        places = self.position[nodes]
        used = np.zeros(len(self.sizes), dtype=bool)
        used[storages[(places >= start) & (places < end)]] = True
        return used


def _touches(step: StepProblem, node: int, storage: int) -> bool:
    """Whether a node reads or writes a storage that it needs: what it does not hand on it needs for nothing else."""
    hands_on = any(step.value_storage[value] == storage for value in step.results[node])
    return not hands_on or node in step.writers[storage] or any(s == storage for s, _ in step.reads[node])


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Distinct pairs of node and storage as two arrays; host scalars have no storage."""
    found = sorted({(node, storage) for node, storage in pairs if storage >= 0})
    array = np.array(found, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def far_apart(ranked: Iterable[int], most: int) -> list[int]:
    """The first of some ranked positions that are not near one before."""
    chosen: list[int] = []
    for position in ranked:
        if len(chosen) == most:
            break
        if all(abs(position - other) > SETTINGS.apart for other in chosen):
            chosen.append(position)
    return chosen
