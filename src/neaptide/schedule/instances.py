"""Instances of storages: what is created anew at each execution of a creator, and which executions touch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neaptide.schedule.problem import StepProblem

Span: TypeAlias = tuple[int, int]
TO_END: Final = -1
"""End of a span that nothing ends: an output keeps it, or the caller does."""
OWNED: Final = -1
"""In the place of the execution that creates an instance: the caller owns it, and it is there before."""
AWAY: Final = -2
"""In the place of an execution: none of this sequence, because the instance is on the host between two runs of it."""


@dataclass(frozen=True, slots=True)
class InstanceUses:
    """Executions that touch one instance of a storage, in running order; the first one creates it.

    What the caller owns is there before the sequence and outlives it; the first execution of all counts as one that
    touches it, unless it is on the host when the sequence begins.

    Attributes:
        touched_by: execution ids; one may be there more than once.
        needed_by: those that do touch it, of what the caller owns.
    """

    touched_by: tuple[int, ...]
    is_kept: bool
    is_owned: bool = False
    needed_by: tuple[int, ...] = ()

    @property
    def made(self) -> int:
        """The execution that creates it, or `OWNED`."""
        return OWNED if self.is_owned else self.touched_by[0]


class Instances:
    """The instances of the storages of a problem; `outputs` has the values that are handed back, by storage."""

    def __init__(self, problem: StepProblem) -> None:
        self.problem = problem
        self.outputs: dict[int, list[int]] = {}
        for value in problem.outputs:
            self.outputs.setdefault(problem.value_storage[value], []).append(value)
        self._touching: dict[int, list[int]] = {}

    def touched(self, node: int) -> list[int]:
        """Storages that the program creates and a node touches."""
        found = self._touching.get(node)
        if found is not None:
            return found
        problem = self.problem
        values = (*problem.operands[node], *problem.results[node])
        storages = dict.fromkeys(problem.value_storage[value] for value in values)
        found = self._touching[node] = [s for s in storages if s >= 0 and problem.creator[s] >= 0]
        return found

    def events(self, storage: int, executions: Sequence[list[int]], places: Sequence[int]) -> list[int]:
        """Executions that touch a storage, in running order."""
        found = [e for node in self.problem.roles[storage] for e in executions[node]]
        found.sort(key=places.__getitem__)
        return found

    def spans(
        self,
        storage: int,
        executions: Sequence[list[int]],
        places: Sequence[int],
        node_of: Sequence[int],
    ) -> tuple[Span, ...]:
        """Creating and last execution of each instance of a storage, or `TO_END`."""
        roles = self.problem.roles[storage]
        outputs = self.outputs.get(storage, ())
        for node in roles:
            if len(executions[node]) != 1:
                break
        else:
            last = TO_END if outputs else max(roles, key=places.__getitem__)
            return ((self.problem.creator[storage], last),)
        touched, kept = self.replay(storage, self.events(storage, executions, places), node_of)
        if kept:
            return tuple([(uses[0], TO_END if n in kept else uses[-1]) for n, uses in enumerate(touched)])
        return tuple([(uses[0], uses[-1]) for uses in touched])

    def replay(
        self, storage: int, events: Sequence[int], node_of: Sequence[int]
    ) -> tuple[list[list[int]], set[int]]:
        """Executions that touch each instance of a storage, in running order, and the instances that are outputs."""
        roles, outputs = self.problem.roles[storage], self.outputs.get(storage, ())
        holder: dict[int, int] = {}
        touched: list[list[int]] = []
        for execution in events:
            role = roles[node_of[execution]]
            for value in role.needs:
                touched[holder[value]].append(execution)
            if role.creates:
                seen = len(touched)
                touched.append([execution])
            else:
                seen = holder[role.needs[0]]
            for value in role.makes:
                holder[value] = seen
        return touched, {holder[value] for value in outputs} if outputs else set()
