"""Atomic steps: updates after everything that can fail, and copies of what cannot wait that long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.errors import VerifyError
from neaptide.ir.schedule import Offload
from neaptide.schedule.problem import StepProblem

_COMPUTING: Final = frozenset({"forward", "backward"})
_REFUSAL: Final = "holds what updates or outputs of an atomic step need"


@dataclass(frozen=True, slots=True)
class AtomicStep:
    """A step whose updates run last."""

    step: StepProblem  # copies count as persistent; what updates need is never recomputed after them
    order: tuple[int, ...]
    updates: frozenset[int]  # nodes at the end of the order, which nothing but each other waits for
    saved: tuple[int, ...]  # storages of the caller that are written earlier, and copied first
    saved_bytes: int

    @property
    def first_write(self) -> int | None:
        """The first node of the order that writes something that is not saved; None where none does."""
        return next((node for node in self.order if self.writes_unsaved(node)), None)

    def writes_unsaved(self, node: int) -> bool:
        """Whether a node writes a storage of the caller that is not saved."""
        step = self.step
        return any(
            step.is_persistent[s] and s not in self.saved and node in step.writers[s]
            for v in step.operands[node]
            if (s := step.value_storage[v]) >= 0
        )


def atomic_step(step: StepProblem, storage_bytes: Sequence[int]) -> AtomicStep:
    """Move every in-place update of the caller's tensors that can wait to the end. O(nodes + edges).

    An update cannot wait when forward or backward go on from it (an embedding that is renormalised first, one of two
    optimizers whose model is used again) or when it is a by-product of an operation whose results are needed (running
    statistics of a batch norm). What such an operation writes is saved; `storage_bytes` have the caller's own.
    """
    updates = _waiting(step)
    order = (*(n for n in range(step.node_count) if n not in updates), *sorted(updates))
    saved = tuple(
        storage
        for storage, writers in enumerate(step.writers)
        if step.is_persistent[storage] and not updates.issuperset(writers)
    )
    saved_bytes = sum(storage_bytes[storage] for storage in saved)
    kept = {step.value_storage[v] for n in updates for v in step.operands[n]}
    kept |= {step.value_storage[v] for v in step.outputs}
    held = updates | {step.creator[storage] for storage in kept if storage >= 0}
    searched = replace(
        step,
        persistent_bytes=step.persistent_bytes + saved_bytes,
        lower_bound_bytes=step.lower_bound_bytes + saved_bytes,
        order_lower_bound_bytes=step.order_lower_bound_bytes + saved_bytes,
        refusals=tuple(why or (_REFUSAL if n in held else "") for n, why in enumerate(step.refusals)),
    )
    return AtomicStep(searched, order, updates, saved, saved_bytes)


def check_atomic(atomic: AtomicStep, sequence: Sequence[int], offloads: Sequence[Offload] = ()) -> None:
    """Make sure that a sequence, once it has written something that is not saved, runs nothing but updates, once.

    A copy can fail as an operation can, so all storages are back by then.
    """
    seen: set[int] = set()
    begins = len(sequence)
    for position, node in enumerate(sequence):
        if begins < position and (node in seen or node not in atomic.updates):
            raise VerifyError(f"node {node} runs after the first update of an atomic plan")
        seen.add(node)
        if begins == len(sequence) and atomic.writes_unsaved(node):
            begins = position
    for offload in offloads:
        if offload.back_before > begins:
            raise VerifyError(
                f"storage {offload.storage} is on the host after the first update of an atomic plan"
            )


def _waiting(step: StepProblem) -> frozenset[int]:
    """Pure updates with nothing of forward or backward after them, and all that is."""
    count = step.node_count
    last_backward = max((n for n in range(count) if step.phases[n] == "backward"), default=-1)
    is_update = [step.writes_persistent(n) and not step.created[n] for n in range(count)]
    can_wait = [False] * count
    for node in reversed(range(count)):
        computes = step.phases[node] in _COMPUTING and node <= last_backward
        can_wait[node] = (is_update[node] or not computes) and all(can_wait[s] for s in step.successors[node])
    waiting: set[int] = set()
    for node in range(count):
        begins = is_update[node] and can_wait[node]
        if begins or any(before in waiting for before in step.predecessors[node]):
            waiting.add(node)
    return frozenset(waiting)
