"""The executions of a sequence with recomputations as an ordering problem, so that what orders plain programs orders these."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.problem import StepProblem


def executions_problem(step: StepProblem, sequence: Sequence[int]) -> OrderProblem:
    """What there is to order in a sequence: op k is its k-th execution. O(size of the step + its length).

    Each instance of a storage is a storage of its own, whose accessors are the executions that touch it. In every order
    of the problem each execution sees the instances that it sees in the sequence, at the same version: a value that is
    bound anew keeps its place between those that use it before and after, and executions of one node keep their order.
    Peaks equal those of `schedule.evaluate.Evaluator`.

    Args:
        step: the program as integers.
        sequence: a legal sequence of its nodes; a repeated one is a recomputation.
    """
    return _Executions(step, sequence).problem()


class _Executions:
    """A sequence that is played once, instance by instance."""

    def __init__(self, step: StepProblem, sequence: Sequence[int]) -> None:
        self.step, self.sequence = step, sequence
        self.storage_of: list[int] = []  # by instance
        self.held_by: dict[int, int] = {}  # by value, the instance that it is bound to
        self.owned: dict[int, int] = {}  # by storage that no node creates, its one instance
        self.touched: list[list[int]] = [[] for _ in range(step.node_count)]  # by node, storages
        for storage, roles in enumerate(step.roles):
            for node in roles:
                self.touched[node].append(storage)

    def problem(self) -> OrderProblem:
        """All executions with what they read and write, and what they have to follow."""
        step = self.step
        ops = []
        waits = _Waits(step)
        for position, node in enumerate(self.sequence):
            reads, writes = self._accesses(node)
            after = waits.of(position, node)
            ops.append(OrderOp("", tuple(reads), tuple(writes), step.workspace[node], (), after))
        kept = {self.held_by[value] for value in step.outputs if value in self.held_by}
        storages = [
            OrderStorage("", step.storage_bytes[s], resident=step.is_persistent[s], output=instance in kept)
            for instance, s in enumerate(self.storage_of)
        ]
        storages.append(OrderStorage("what the caller owns", step.persistent_bytes, resident=True))
        return OrderProblem(tuple(storages), tuple(ops))

    def _accesses(self, node: int) -> tuple[list[int], list[int]]:
        """Instances that an execution reads, and those that it makes or overwrites."""
        reads: dict[int, None] = {}
        writes: dict[int, None] = {}
        for storage in self.touched[node]:
            role = self.step.roles[storage][node]
            used = dict.fromkeys(self._held(storage, value) for value in role.needs)
            reads.update(used)
            if node in self.step.writers[storage]:
                writes.update(used)
            if role.creates:
                instance = self._instance(storage)
                writes[instance] = None
            else:
                instance = next(iter(used))
            self.held_by.update(dict.fromkeys(role.makes, instance))
        return list(reads), list(writes)

    def _held(self, storage: int, value: int) -> int:
        """The instance that a value is bound to; of what no node creates there is one."""
        if self.step.creator[storage] >= 0:
            return self.held_by[value]
        if storage not in self.owned:
            self.owned[storage] = self._instance(storage)
        return self.owned[storage]

    def _instance(self, storage: int) -> int:
        self.storage_of.append(storage)
        return len(self.storage_of) - 1


class _Waits:
    """What an execution has to follow, beside those with which it shares bytes."""

    def __init__(self, step: StepProblem) -> None:
        self.step = step
        self.first: dict[int, int] = {}  # by node, its first execution
        self.last: dict[int, int] = {}  # by node, its latest
        self.bound: dict[int, int] = {}  # by value, the execution that bound it
        self.used: dict[int, list[int]] = {}  # by value, executions that used it since

    def of(self, position: int, node: int) -> tuple[int, ...]:
        """Earlier executions that stay in front of this one."""
        step, found = self.step, set[int]()
        if node in self.last:
            found.add(self.last[node])
        else:
            self.first[node] = position
            found.update(self.first[before] for before in step.predecessors[node])
        self.last[node] = position
        for value in step.operands[node]:
            if value in self.bound:
                found.add(self.bound[value])
            self.used.setdefault(value, []).append(position)
        for value in step.results[node]:
            found.update(self.used.pop(value, ()))
            if value in self.bound:
                found.add(self.bound[value])
            self.bound[value] = position
        return tuple(sorted(found - {position}))
