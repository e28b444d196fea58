"""Schedule: the total order of steps. The only place where time exists.

Names behave like Python variables. A `COMPUTE` or `RECOMPUTE` step binds the node's outputs to fresh storage
instances (or, for a view or an in-place op, to the instance that its operand is bound to at that moment); later
steps read the latest binding. `FREE` steps say where an instance's bytes end; they follow from the order and are
put in by `analysis.liveness.with_frees`.

`STORE`, `LOAD` and `WAIT` steps take one storage instance to the host and back. A `STORE` begins a copy to the host:
the host bytes begin there, and the instance may still be read. The next `WAIT` of the same instance ends that copy:
the device bytes end there. A `LOAD` begins the copy back: device bytes begin there. The next `WAIT` ends it: the
instance may be used again, and the host bytes end. So bytes follow from the order of steps alone; how long a copy
takes decides only the seconds (`schedule.timeline`). An instance may make this trip more than once.

State of the caller may be on the host when the schedule begins and when it ends. Its first step of these is then a
`LOAD`, and the `WAIT` for its last `STORE` takes its bytes for the time between two runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final

from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph


class StepKind(StrEnum):
    """What a step does. `target` of the step is a node for the first three, a storage for the others."""

    COMPUTE = "compute"
    RECOMPUTE = "recompute"
    LOOP = "loop"
    FREE = "free"
    STORE = "store"
    LOAD = "load"
    WAIT = "wait"
    EVICT = "evict"
    REGENERATE = "regenerate"


NODE_STEPS = frozenset({StepKind.COMPUTE, StepKind.RECOMPUTE, StepKind.LOOP})
TRANSFER_STEPS = frozenset({StepKind.STORE, StepKind.LOAD, StepKind.WAIT})
BETWEEN: Final = -1
"""In the place of a position of a stay: between two runs of the schedule, and not in it."""
_NEXT_OF_STAY: Final = (StepKind.STORE, StepKind.WAIT, StepKind.LOAD, StepKind.WAIT)


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        target: node id (compute, recompute, loop) or storage id (the others).
        occurrence: 0 for the first execution or instance, k for the k-th repetition.

    >>> str(Step(StepKind.STORE, 4)), str(Step(StepKind.RECOMPUTE, 7, 1))
    ('store 4', 'recompute 7 #1')
    """

    kind: StepKind
    target: int
    occurrence: int = 0

    @property
    def runs_node(self) -> bool:
        return self.kind in NODE_STEPS

    @property
    def moves_bytes(self) -> bool:
        """Whether the step begins or ends a copy between the device and the host."""
        return self.kind in TRANSFER_STEPS

    def __str__(self) -> str:
        return f"{self.kind} {self.target}{f' #{self.occurrence}' if self.occurrence else ''}"


@dataclass(frozen=True, slots=True)
class HostStay:
    """One stay of a storage instance on the host, by positions among the steps that run nodes.

    A storage that waits between two runs of the schedule has two stays. One was begun before: its `store_behind` and
    `gone_behind` are `BETWEEN`. One goes on behind the end: its `load_before` and `back_before` are `BETWEEN`.

    Attributes:
        occurrence: 0 for its first instance, k for the k-th repetition.
        store_behind: position directly behind which its `STORE` stands.
        gone_behind: position directly behind which the `WAIT` for the copy stands; the device bytes end there.
        load_before: position directly before which its `LOAD` stands; the device bytes begin again there.
        back_before: position directly before which the `WAIT` for that copy stands; the number of positions for the
            end. The host bytes end there.
    """

    storage: int
    occurrence: int
    store_behind: int
    gone_behind: int
    load_before: int
    back_before: int

    @property
    def positions(self) -> tuple[int, int, int, int]:
        """The four positions."""
        return self.store_behind, self.gone_behind, self.load_before, self.back_before

    @property
    def begins_before(self) -> bool:
        """Whether the storage is on the host when the schedule begins."""
        return self.store_behind == self.gone_behind == BETWEEN

    @property
    def ends_behind(self) -> bool:
        """Whether the storage is on the host when the schedule ends."""
        return self.load_before == self.back_before == BETWEEN

    def is_within(self, count: int) -> bool:
        """Whether it leaves, returns and is back in this order within so many positions, as far as it does."""
        if self.begins_before:
            return 0 <= self.load_before <= self.back_before <= count
        leaves = 0 <= self.store_behind <= self.gone_behind < count
        if self.ends_behind:
            return leaves
        return leaves and self.gone_behind < self.load_before <= self.back_before <= count


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in the order in which they run.

    Attributes:
        bodies: by node with a loop, the order of one trip of its body; program order where none is given.
    """

    steps: tuple[Step, ...]
    bodies: Mapping[int, Schedule] = field(default_factory=dict, hash=False)

    def node_steps(self) -> tuple[Step, ...]:
        """The steps that run nodes, in order."""
        return tuple(step for step in self.steps if step.runs_node)

    @property
    def has_own_transfers(self) -> bool:
        """Whether a step begins or ends a copy to or from the host; the bodies of loops are not looked at."""
        return any(step.moves_bytes for step in self.steps)

    @property
    def has_transfers(self) -> bool:
        """Whether a step begins or ends a copy to or from the host, here or in the body of a loop."""
        return self.has_own_transfers or any(body.has_transfers for body in self.bodies.values())

    def stays(self) -> tuple[HostStay, ...]:
        """The stays on the host that the steps make, in the order in which they are stored. O(steps).

        Bodies of loops are not looked at.

        Raises:
            VerifyError: a storage leaves and does not return, or returns and did not leave.
        """
        begun: dict[tuple[int, int], list[int]] = {}
        found: list[tuple[int, HostStay]] = []
        stored: dict[tuple[int, int], int] = {}
        position = -1
        for index, step in enumerate(self.steps):
            position += step.runs_node
            if not step.moves_bytes:
                continue
            key = (step.target, step.occurrence)
            positions = begun.setdefault(key, [])
            if _NEXT_OF_STAY[len(positions)] is not step.kind:
                raise VerifyError(f"step {index} cannot {step}", why="it is no part of a stay on the host")
            if step.kind is StepKind.STORE:
                stored[key] = index
            is_ahead = len(positions) > 1  # a load and the wait for it stand before an operation
            positions.append(position + is_ahead)
            if len(positions) == len(_NEXT_OF_STAY):
                found.append((stored[key], HostStay(*key, *begun.pop(key))))
        for storage, _ in begun:
            raise VerifyError(f"storage {storage} is stored and does not come back")
        return tuple(stay for _, stay in sorted(found, key=lambda entry: entry[0]))

    def with_stays(self, stays: Sequence[HostStay]) -> Schedule:
        """The steps that run nodes, with the steps of some stays on the host. O(steps + stays).

        Between two operations what leaves comes first: every `STORE`, then the waits for copies to the host, every
        `LOAD`, and the waits for copies back. What is needed first is loaded first; apart from that the order of `stays`
        is kept. Whether they are legal is for `analysis.legality` to say.

        Raises:
            VerifyError: a stay at positions that the schedule does not have, or in another order than leave and return.
        """
        nodes = self.node_steps()
        for stay in stays:
            if not stay.is_within(len(nodes)):
                raise VerifyError(
                    f"storage {stay.storage} cannot stay on the host at {stay.positions}",
                    why=f"it must leave, return and be back in this order, within {len(nodes)} steps",
                )
        behind: dict[int, tuple[list[Step], list[Step]]] = defaultdict(lambda: ([], []))
        ahead: dict[int, tuple[list[Step], list[Step]]] = defaultdict(lambda: ([], []))
        for stay in sorted(stays, key=lambda stay: stay.back_before):
            if not stay.ends_behind:
                ahead[stay.load_before][0].append(Step(StepKind.LOAD, stay.storage, stay.occurrence))
        for stay in stays:
            store, wait = (
                Step(kind, stay.storage, stay.occurrence) for kind in (StepKind.STORE, StepKind.WAIT)
            )
            if not stay.begins_before:
                behind[stay.store_behind][0].append(store)
                behind[stay.gone_behind][1].append(wait)
            if not stay.ends_behind:
                ahead[stay.back_before][1].append(wait)
        steps: list[Step] = []
        for position, step in enumerate(nodes):
            steps += chain(*ahead[position], (step,), *behind[position])
        return Schedule((*steps, *chain(*ahead[len(nodes)])), self.bodies)

    def away_at_begin(self) -> tuple[int, ...]:
        """Storages that are on the host when the schedule begins: the first of their steps is a `LOAD`. O(steps)."""
        first: dict[int, StepKind] = {}
        for step in self.steps:
            if step.moves_bytes and not step.occurrence:
                first.setdefault(step.target, step.kind)
        return tuple(storage for storage, kind in first.items() if kind is StepKind.LOAD)

    @staticmethod
    def from_nodes(
        graph: Graph, sequence: Iterable[int], bodies: Mapping[int, Schedule] | None = None
    ) -> Schedule:
        """Node ids in running order; an id that appears again is a recomputation. `bodies` as in the class."""
        seen: dict[int, int] = {}
        steps = []
        for node in sequence:
            occurrence = seen.get(node, 0)
            seen[node] = occurrence + 1
            if occurrence:
                kind = StepKind.RECOMPUTE
            else:
                kind = StepKind.LOOP if graph.nodes[node].regions else StepKind.COMPUTE
            steps.append(Step(kind, node, occurrence))
        return Schedule(tuple(steps), dict(bodies or {}))

    @staticmethod
    def program_order(graph: Graph, bodies: Mapping[int, Schedule] | None = None) -> Schedule:
        """The order in which the program was captured: the baseline. `bodies` as in the class."""
        return Schedule.from_nodes(graph, range(len(graph.nodes)), bodies)
