"""Which nodes are optimizer updates, and which of them belong together. By effects and phase, never by op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.schedule.problem import StepProblem

# Counters, learning rates and clip factors are shared by all updates; they must not tie them into one group.
SHARED_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class UpdateGroup:
    """Nodes that update the same state."""

    nodes: tuple[int, ...]
    read_bytes: int  # bytes of what they read last of all, such as the gradient


def update_nodes(step: StepProblem) -> frozenset[int]:
    """Nodes that overwrite what the caller owns and that only such nodes wait for, with what feeds only them.

    Where the graph has an optimizer phase, they are of that phase; otherwise they are those after the last node
    that anything else waits for. O(edges).
    """
    count = step.node_count
    handed_back = {step.value_storage[v] for v in step.outputs}
    is_tail = [False] * count
    for node in reversed(range(count)):
        after = step.successors[node]
        gives_output = any(
            value in step.outputs if (s := step.value_storage[value]) < 0 else s in handed_back
            for value in step.results[node]
            if step.value_storage[value] < 0 or not step.is_persistent[step.value_storage[value]]
        )
        feeds = step.writes_persistent(node) or bool(after)
        is_tail[node] = feeds and not gives_output and all(is_tail[other] for other in after)
    if "optimizer" in step.phases:
        return frozenset(n for n in range(count) if is_tail[n] and step.phases[n] == "optimizer")
    last = max((n for n in range(count) if not is_tail[n]), default=-1)
    return frozenset(range(last + 1, count))


def update_groups(step: StepProblem, updates: frozenset[int]) -> list[UpdateGroup]:
    """Updates that share state or pass tensors to each other, in order of their first node."""
    leader = {node: node for node in updates}

    def find(node: int) -> int:
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    owner: dict[int, int] = {}
    for node in sorted(updates):
        for value in (*step.operands[node], *step.results[node]):
            storage = step.value_storage[value]
            if storage < 0:
                continue
            if step.is_persistent[storage]:
                ties = bool(step.writers[storage])
            else:
                ties = step.storage_bytes[storage] > SHARED_BYTES
            if ties:
                first, second = sorted((find(owner.setdefault(storage, node)), find(node)))
                leader[second] = first
    members: dict[int, list[int]] = {}
    for node in sorted(updates):
        members.setdefault(find(node), []).append(node)
    return [
        UpdateGroup(tuple(nodes), _bytes_ended(step, set(nodes)))
        for nodes in members.values()
        if any(step.writes_persistent(node) for node in nodes)
    ]


def _bytes_ended(step: StepProblem, nodes: set[int]) -> int:
    """Bytes of the storages from outside that these nodes are the last to touch."""
    touched = {s for n in nodes for v in step.operands[n] if (s := step.value_storage[v]) >= 0}
    return sum(
        step.storage_bytes[s]
        for s in touched
        if step.creator[s] >= 0 and step.creator[s] not in nodes and max(step.roles[s]) in nodes
    )


def updates_moved_earlier(step: StepProblem, order: Sequence[int]) -> list[UpdateGroup]:
    """Groups that end something and run before a node, no update itself, that they stand after in the program.

    O(size of the step).
    """
    place = {node: position for position, node in enumerate(order)}
    updates = update_nodes(step)
    last_place = []  # by node, of all before it in the program that are no updates
    last = -1
    for node in range(step.node_count):
        last_place.append(last)
        if node not in updates:
            last = max(last, place[node])
    return [
        group
        for group in update_groups(step, updates)
        if group.read_bytes and place[group.nodes[-1]] < last_place[group.nodes[-1]]
    ]


def with_late_overwrites(step: StepProblem, order: Sequence[int]) -> tuple[int, ...]:
    """An order with the same peak, in which what overwrites the caller's tensors runs as late as possible.

    A decay of weights needs no gradient. Run in front of the backward it frees nothing, and it forbids every recomputation
    that reads those weights. Only nodes without scratch move, and no storage is held for longer. O(edges + n log n).
    """
    place = {node: position for position, node in enumerate(order)}
    handed_back = {step.value_storage[value] for value in step.outputs}
    end = len(order)

    def last_use(storage: int, but: int) -> int:
        if storage in handed_back:
            return end
        return max((place[user] for user in step.roles[storage] if user != but), default=-1)

    for node in reversed(order):
        held = {
            storage
            for value in (*step.operands[node], *step.results[node])
            if (storage := step.value_storage[value]) >= 0
            and not step.is_persistent[storage]
            and step.storage_bytes[storage]
        }
        latest = min((place[after] for after in step.successors[node]), default=end)
        is_free = not step.workspace[node] and all(last_use(storage, node) >= latest for storage in held)
        if is_free and step.writes_persistent(node):
            place[node] = latest
    # Nodes that go to one place keep their order, and stand in front of the node that waits for them.
    first = {node: position for position, node in enumerate(order)}
    return tuple(sorted(order, key=lambda node: (place[node], first[node])))


def update_name(step: StepProblem, group: UpdateGroup) -> str:
    """What a group is there for: the storage of the caller that it writes last; its own state comes first."""
    written = {
        storage
        for node in group.nodes
        for value in step.operands[node]
        if (storage := step.value_storage[value]) >= 0
        and step.is_persistent[storage]
        and node in step.writers[storage]
    }
    return step.storage_names[max(written, key=lambda s: (max(step.writers[s]), -s))]
