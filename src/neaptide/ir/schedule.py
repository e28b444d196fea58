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
"""In the place of a position of an offload: between two runs of the schedule, and not in it."""
_NEXT_OF_OFFLOAD: Final = (StepKind.STORE, StepKind.WAIT, StepKind.LOAD, StepKind.WAIT)


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
class Offload:
    """One offload of a storage instance on the host, by positions among the steps that run nodes.

    A storage that waits between two runs of the schedule has two offloads. One was begun before: its `store_after` and
    `gone_after` are `BETWEEN`. One goes on after the end: its `load_before` and `back_before` are `BETWEEN`.

    Attributes:
        occurrence: 0 for its first instance, k for the k-th repetition.
        store_after: position directly after which its `STORE` stands.
        gone_after: position directly after which the `WAIT` for the copy stands; the device bytes end there.
        load_before: position directly before which its `LOAD` stands; the device bytes begin again there.
        back_before: position directly before which the `WAIT` for that copy stands; the number of positions for the
            end. The host bytes end there.
    """

    storage: int
    occurrence: int
    store_after: int
    gone_after: int
    load_before: int
    back_before: int

    @property
    def positions(self) -> tuple[int, int, int, int]:
        """The four positions."""
        return self.store_after, self.gone_after, self.load_before, self.back_before

    @property
    def begins_before(self) -> bool:
        """Whether the storage is on the host when the schedule begins."""
        return self.store_after == self.gone_after == BETWEEN

    @property
    def ends_after(self) -> bool:
        """Whether the storage is on the host when the schedule ends."""
        return self.load_before == self.back_before == BETWEEN

    def is_within(self, count: int) -> bool:
        """Whether it leaves, returns and is back in this order within so many positions, as far as it does."""
        if self.begins_before:
            return 0 <= self.load_before <= self.back_before <= count
        leaves = 0 <= self.store_after <= self.gone_after < count
        if self.ends_after:
            return leaves
        return leaves and self.gone_after < self.load_before <= self.back_before <= count


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

    def offloads(self) -> tuple[Offload, ...]:
        """The offloads that the steps make, in the order in which they are stored. O(steps).

        Bodies of loops are not looked at.

        Raises:
            VerifyError: a storage leaves and does not return, or returns and did not leave.
        """
        begun: dict[tuple[int, int], list[int]] = {}
        found: list[tuple[int, Offload]] = []
        stored: dict[tuple[int, int], int] = {}
        position = -1
        for index, step in enumerate(self.steps):
            position += step.runs_node
            if not step.moves_bytes:
                continue
            key = (step.target, step.occurrence)
            positions = begun.setdefault(key, [])
            if _NEXT_OF_OFFLOAD[len(positions)] is not step.kind:
                raise VerifyError(
                    f"step {index} cannot {step}", why="it is no part of an offload on the host"
                )
            if step.kind is StepKind.STORE:
                stored[key] = index
            is_ahead = len(positions) > 1  # a load and the wait for it stand before an operation
            positions.append(position + is_ahead)
            if len(positions) == len(_NEXT_OF_OFFLOAD):
                found.append((stored[key], Offload(*key, *begun.pop(key))))
        for storage, _ in begun:
            raise VerifyError(f"storage {storage} is stored and does not come back")
        return tuple(offload for _, offload in sorted(found, key=lambda entry: entry[0]))

    def with_offloads(self, offloads: Sequence[Offload]) -> Schedule:
        """The steps that run nodes, with the steps of some offloads. O(steps + offloads).

        Between two operations what leaves comes first: every `STORE`, then the waits for copies to the host, every
        `LOAD`, and the waits for copies back. What is needed first is loaded first; apart from that the order of `offloads`
        is kept. Whether they are legal is for `analysis.legality.schedule` to say.

        Raises:
            VerifyError: an offload at positions that the schedule does not have, or in another order than leave and return.
        """
        nodes = self.node_steps()
        for offload in offloads:
            if not offload.is_within(len(nodes)):
                raise VerifyError(
                    f"storage {offload.storage} cannot stay on the host at {offload.positions}",
                    why=f"it must leave, return and be back in this order, within {len(nodes)} steps",
                )
        behind: dict[int, tuple[list[Step], list[Step]]] = defaultdict(lambda: ([], []))
        ahead: dict[int, tuple[list[Step], list[Step]]] = defaultdict(lambda: ([], []))
        for offload in sorted(offloads, key=lambda offload: offload.back_before):
            if not offload.ends_after:
                ahead[offload.load_before][0].append(Step(StepKind.LOAD, offload.storage, offload.occurrence))
        for offload in offloads:
            store, wait = (
                Step(kind, offload.storage, offload.occurrence) for kind in (StepKind.STORE, StepKind.WAIT)
            )
            if not offload.begins_before:
                behind[offload.store_after][0].append(store)
                behind[offload.gone_after][1].append(wait)
            if not offload.ends_after:
                ahead[offload.back_before][1].append(wait)
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
