"""Updates behind everything that can fail: a step that dies leaves the model as it was."""

from __future__ import annotations

from neaptide.schedule.problem import StepProblem


def atomic_order(step: StepProblem) -> tuple[int, ...]:
    """Program order with every in-place update of the caller's tensors, and what depends on it, moved to the end.

    A node that creates results besides writing the caller's storage (a batch norm that updates its statistics)
    cannot wait: what it writes has to be saved and put back instead, see `early_writes`. O(nodes + edges).
    """
    tail: set[int] = set()
    for node in range(step.node_count):
        waits = step.writes_resident(node) and not step.created[node]
        if waits or any(before in tail for before in step.predecessors[node]):
            tail.add(node)
    head = [node for node in range(step.node_count) if node not in tail]
    return (*head, *sorted(tail))


def early_writes(step: StepProblem) -> tuple[int, ...]:
    """The caller's storages that nodes with results of their own overwrite, in no way deferrable. O(storages)."""
    return tuple(
        storage
        for storage, writers in enumerate(step.writers)
        if step.is_resident[storage] and any(step.created[node] for node in writers)
    )
