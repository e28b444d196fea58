"""The incremental evaluator: bytes at every step of a node sequence that changes a little at a time.

Each execution carries the bytes that it allocates, the bytes that die after it and its workspace; bytes at a
position are running sums over the order. A change touches the order and the few storages that the changed nodes
touch; everything else moves along with its execution. O(steps) in numpy plus O(events of those storages).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.schedule.changes import Change, Insert, Move, Remove
from neaptide.schedule.instances import TO_END, Instances, InstanceUses, Span
from neaptide.schedule.problem import StepProblem

Ints: TypeAlias = NDArray[np.int64]
_OWN: Final = (
    *("node_of", "executions", "spans", "position", "on_operand"),
    *("_blocks", "_anchor", "_scratch", "_allocated", "_freed", "_undo"),
)
"""What a copy of an evaluator has of its own."""


@dataclass(slots=True)
class _Undo:
    order: Ints
    ids: int
    places: list[int] | None
    executions: dict[int, list[int]] = field(default_factory=dict)
    blocks: dict[int, list[int]] = field(default_factory=dict)
    spans: dict[int, tuple[Span, ...]] = field(default_factory=dict)
    on_operand: dict[int, bool] = field(default_factory=dict)


class Evaluator:
    """A node sequence and its bytes.

    An execution has an id: the first execution of node k is k, repetitions follow from `node_count` on.

    Attributes:
        order: execution ids by position; `position` is the inverse.
        executions: by node, its execution ids.
        spans: by storage, (creating execution, last execution or `TO_END`) of each instance, none of what the caller owns.
    """

    def __init__(self, problem: StepProblem, sequence: Sequence[int] | None = None) -> None:
        self.problem = problem
        count = problem.node_count
        self.node_of: list[int] = list(range(count))
        self.executions: list[list[int]] = [[] for _ in range(count)]
        self._blocks: dict[int, list[int]] = {}
        self._anchor: dict[int, int] = {}
        order: list[int] = []
        waiting: list[int] = []
        for node in range(count) if sequence is None else sequence:
            if self.executions[node]:
                execution = len(self.node_of)
                self.node_of.append(node)
                waiting.append(execution)
            else:
                execution = node
                self._settle(waiting, node)
                waiting = []
            self.executions[node].append(execution)
            order.append(execution)
        self._settle(waiting, count)
        missing = [node for node in range(count) if not self.executions[node]]
        if missing:
            raise ValueError(f"nodes {missing[:5]} are not in the sequence")
        capacity = 2 * max(len(self.node_of), 8)
        self._allocated: Ints = np.zeros(capacity, dtype=np.int64)
        self._freed: Ints = np.zeros(capacity, dtype=np.int64)
        self._scratch: Ints = np.zeros(capacity, dtype=np.int64)
        self.position: Ints = np.zeros(capacity, dtype=np.int64)
        self._scratch[: len(self.node_of)] = [problem.own_workspace[node] for node in self.node_of]
        self.order: Ints = np.array(order, dtype=np.int64)
        self.spans: list[tuple[Span, ...]] = [() for _ in problem.storage_bytes]
        self._profile: Ints | None = None
        self._peak: int | None = None
        self._places: list[int] | None = None
        self._undo: list[_Undo] = []
        self._instances = Instances(problem)
        self._overwriters: dict[int, list[int]] = {}
        for node, on in problem.overwrites.items():
            self._overwriters.setdefault(on.storage, []).append(node)
        self.on_operand: dict[int, bool] = dict.fromkeys(problem.overwrites, False)
        self._locate()
        self._charge_all()
        for node in problem.overwrites:
            self._settle_operand(node, None)

    def copy(self) -> Evaluator:
        """The same sequence to change on its own, without what could be undone. O(steps), none of it per storage."""
        copied = copy(self)
        # What hangs in these lists is replaced, never changed in place.
        for name in _OWN:
            setattr(copied, name, getattr(self, name).copy())
        copied.forget_undo()
        return copied

    # What there is to ask.

    @property
    def places(self) -> list[int]:
        """`position` as a list, whose items are read faster one at a time; a new one after each change."""
        if self._places is None:
            self._places = self.position[: len(self.node_of)].tolist()
        return self._places

    @property
    def bytes(self) -> Ints:
        """Bytes at each position, with what the caller owns and with workspace."""
        if self._profile is None:
            freed = self._freed[self.order]
            held = np.cumsum(self._allocated[self.order] - freed)
            self._profile = held + freed + self._scratch[self.order] + self.problem.persistent_bytes
        return self._profile

    @property
    def peak(self) -> int:
        """Highest bytes at any position, workspace included: what a budget is held on."""
        if self._peak is None:
            self._peak = int(self.bytes.max()) if len(self.order) else self.problem.persistent_bytes
        return self._peak

    @property
    def workspace(self) -> Ints:
        """Scratch bytes at each position that are no storages, those in the bodies of loops included. O(steps)."""
        own, inside = self.problem.own_workspace, self.problem.body_bytes
        return np.array([own[node] - inside[node] for node in self.sequence()], dtype=np.int64)

    @property
    def peak_without_workspace(self) -> int:
        """Highest bytes of storages at any position, those in the bodies of loops included."""
        return int(
            (self.bytes - self.workspace).max(initial=0 if len(self.order) else self.problem.persistent_bytes)
        )

    @property
    def peak_position(self) -> int:
        """First position of the peak."""
        return int(self.bytes.argmax())

    def bytes_at(self, position: int) -> int:
        """Bytes at a position, workspace included."""
        return int(self.bytes[position])

    @property
    def seconds(self) -> float:
        """Of all executions."""
        where = self.problem.overwrites.items()
        apart = (
            len(self.executions[node]) * (on.on_s if self.on_operand[node] else on.off_s)
            for node, on in where
        )
        return math.fsum((self.problem.sequence_seconds(self.sequence()), *apart))

    def sequence(self) -> tuple[int, ...]:
        """Node ids in running order; a repeated id is a recomputation."""
        return tuple(self.node_of[execution] for execution in self.order.tolist())

    def repeated(self, before: int) -> list[int]:
        """Nodes repeated directly before the first execution of a node, in order."""
        return [self.node_of[execution] for execution in self._blocks.get(before, ())]

    def anchors(self) -> list[int]:
        """Nodes that have repetitions directly before them, in running order."""
        return sorted((a for a, block in self._blocks.items() if block), key=self.place_of)

    def anchor_of(self, execution: int) -> int:
        """The node whose first execution an execution is, or directly precedes."""
        return self._anchor.get(execution, execution)

    def place_of(self, node: int) -> int:
        """Position of the first execution of a node; one past the last position for the node count."""
        return len(self.order) if node == self.problem.node_count else self.places[node]

    def events(self, storage: int) -> list[int]:
        """Executions that touch a storage, in running order."""
        return self._instances.events(storage, self.executions, self.places)

    def uses(self, storage: int) -> list[InstanceUses]:
        """Who touches each instance of a storage, in order of creation."""
        events = self.events(storage)
        if self.problem.state_bytes[storage]:
            touched_by = tuple(dict.fromkeys((int(self.order[0]), *events)))
            return [InstanceUses(touched_by, is_kept=True, is_owned=True, needed_by=tuple(events))]
        if len(events) == len(self.problem.roles[storage]):
            return [InstanceUses(tuple(events), storage in self._instances.outputs)]
        touched, kept = self._instances.replay(storage, events, self.node_of)
        return [InstanceUses(tuple(uses), n in kept) for n, uses in enumerate(touched)]

    # Changes.

    def apply(self, change: Change) -> None:
        """Make a change. Legality is the caller's business; the nodes of a removal must be there."""
        undo = _Undo(self.order, len(self.node_of), self._places)
        self._undo.append(undo)
        if isinstance(change, Insert):
            self._insert(change, undo)
        elif isinstance(change, Remove):
            self._remove(change, undo)
        else:
            self._move(change)
        self._locate()
        for storage in dict.fromkeys(chain.from_iterable(map(self._instances.touched, change.nodes))):
            if (found := self._spans_of(storage)) != self.spans[storage]:
                undo.spans[storage] = self.spans[storage]
                self._add(storage, -1)
                self.spans[storage] = found
                self._add(storage, 1)
            for node in self._overwriters.get(storage, ()):
                self._settle_operand(node, undo)

    def undo(self) -> None:
        """Take the last change back."""
        undo = self._undo.pop()
        for node, executions in undo.executions.items():
            self.executions[node] = executions
        self._blocks.update(undo.blocks)
        self.order = undo.order
        self._locate()
        self._places = undo.places
        for storage, spans in undo.spans.items():
            self._add(storage, -1)
            self.spans[storage] = spans
            self._add(storage, 1)
        for node, is_on in undo.on_operand.items():
            self._put_on_operand(node, is_on)
        for execution in range(undo.ids, len(self.node_of)):
            self._anchor.pop(execution, None)
        del self.node_of[undo.ids :]

    def forget_undo(self) -> None:
        """Make all changes so far final."""
        self._undo.clear()

    def _insert(self, change: Insert, undo: _Undo) -> None:
        block = self._blocks.get(change.before, [])
        merged = list(block)
        index = 0
        for node in sorted(change.nodes):
            while index < len(merged) and self.node_of[merged[index]] <= node:
                index += 1
            execution = self._new_execution(node)
            self._anchor[execution] = change.before
            undo.executions[node] = self.executions[node]
            self.executions[node] = [*self.executions[node], execution]
            merged.insert(index, execution)
        self._replace_block(change.before, merged, undo)

    def _remove(self, change: Remove, undo: _Undo) -> None:
        block = self._blocks.get(change.before, [])
        gone = {node: e for e in block if (node := self.node_of[e]) in change.nodes}
        if len(gone) != len(change.nodes):
            self._undo.pop()
            raise ValueError(f"{change} names a repetition that is not there")
        for node, execution in gone.items():
            undo.executions[node] = self.executions[node]
            self.executions[node] = [e for e in self.executions[node] if e != execution]
        self._replace_block(change.before, [e for e in block if self.node_of[e] not in gone], undo)

    def _replace_block(self, before: int, block: list[int], undo: _Undo) -> None:
        """Other repetitions directly before a node."""
        old = self._blocks.get(before, [])
        undo.blocks[before] = old
        self._blocks[before] = block
        end = self.place_of(before)
        parts = (self.order[: end - len(old)], np.array(block, dtype=np.int64), self.order[end:])
        self.order = np.concatenate(parts)

    def _move(self, change: Move) -> None:
        if any(self._blocks.get(node) for node in (*change.nodes, change.before)):
            self._undo.pop()
            raise ValueError(f"{change} moves a node that has repetitions in front of it")
        places = self.position[list(change.nodes)]
        target = self.place_of(change.before)
        rest = np.delete(self.order, places)
        target -= int((places < target).sum())
        self.order = np.concatenate((rest[:target], np.array(change.nodes, dtype=np.int64), rest[target:]))

    def _new_execution(self, node: int) -> int:
        execution = len(self.node_of)
        self.node_of.append(node)
        if execution >= len(self.position):
            for name in ("_allocated", "_freed", "_scratch", "position"):
                old: Ints = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.zeros_like(old))))
        self._scratch[execution] = self.problem.own_workspace[node]
        return execution

    def _settle(self, executions: list[int], anchor: int) -> None:
        if executions:
            self._blocks[anchor] = executions
            self._anchor.update(dict.fromkeys(executions, anchor))

    def _locate(self) -> None:
        self.position[self.order] = np.arange(len(self.order))
        self._profile = self._peak = self._places = None

    # Results on top of operands.

    def _settle_operand(self, node: int, undo: _Undo | None) -> None:
        """Whether the result of a node lies on its operand: where each run of it is the last to need an instance."""
        ends = {end for _, end in self.spans[self.problem.overwrites[node].storage]}
        executions = self.executions[node]
        is_on = ends.issuperset(executions)
        if undo is not None and node not in undo.on_operand:
            undo.on_operand[node] = self.on_operand[node]
        self._put_on_operand(node, is_on)

    def _put_on_operand(self, node: int, is_on: bool) -> None:
        self.on_operand[node] = is_on
        workspace = self.problem.workspace[node] if is_on else self.problem.own_workspace[node]
        for execution in self.executions[node]:
            self._scratch[execution] = workspace

    # Lifetimes.

    def _charge_all(self) -> None:
        """Find the instances of every storage, those whose nodes all run once without replaying the names."""
        problem, places = self.problem, self.places
        again = {
            storage
            for node, ran in enumerate(self.executions)
            if len(ran) > 1
            for storage in self._instances.touched(node)
        }
        starts: list[int] = []
        ends: list[int] = []
        started: list[int] = []
        ended: list[int] = []
        for storage, creator in enumerate(problem.creator):
            if creator < 0:
                continue
            if storage in again:
                self.spans[storage] = self._spans_of(storage)
                self._add(storage, 1)
                continue
            starts.append(creator)
            started.append(storage)
            if storage in self._instances.outputs:
                self.spans[storage] = ((creator, TO_END),)
            else:
                last = max(problem.roles[storage], key=places.__getitem__)
                self.spans[storage] = ((creator, last),)
                ends.append(last)
                ended.append(storage)
        sizes = np.array(problem.storage_bytes, dtype=np.int64)
        np.add.at(self._allocated, starts, sizes[started])
        np.add.at(self._freed, ends, sizes[ended])

    def _spans_of(self, storage: int) -> tuple[Span, ...]:
        return self._instances.spans(storage, self.executions, self.places, self.node_of)

    def _add(self, storage: int, sign: int) -> None:
        """Count the bytes of a storage over its spans, or take them back."""
        size = sign * self.problem.storage_bytes[storage]
        for start, end in self.spans[storage]:
            self._allocated[start] += size
            if end != TO_END:
                self._freed[end] += size
