"""Instances of storages: what is created anew at each execution of a creator, and which executions touch it."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.schedule.problem import StepProblem
from neaptide.schedule.transfers import TO_END, Span


class Instances:
    """The instances of the storages of a problem in any of its sequences.

    Attributes:
        problem: uses and creators.
        outputs: by storage, its values that are handed back at the end.
    """

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
        """Executions that touch a storage, in running order.

        Args:
            storage: which.
            executions: by node, its execution ids.
            places: position by execution id.
        """
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
        """Creating and last execution of each instance of a storage, or `TO_END`.

        Args:
            storage: which.
            executions: by node, its execution ids.
            places: position by execution id.
            node_of: node by execution id.
        """
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
        """Executions that touch each instance of a storage, in running order, and the instances that are outputs.

        Args:
            storage: which.
            events: executions that touch it, in running order.
            node_of: node by execution id.
        """
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
