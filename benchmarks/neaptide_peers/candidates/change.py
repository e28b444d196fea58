"""What a change of a graph touches: nodes with their prices, storages with the nodes that use them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neaptide.analysis.loops import Bodies
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.schedule.problem import Role
from neaptide_peers.candidates.standing import Ints, Standing
from neaptide_peers.incremental.edit import displaced

_NONE: dict[int, bool] = {}


class Change:
    """An edited graph beside the one that stands. Ids are those of the edited graph unless they are called old.

    Values go by one name in both graphs: the old id, or for new ones their id after all old ones.

    Attributes:
        standing: the graph before.
        edited: what it became.
        touched: nodes that are new, replaced or moved, ascending; where costs are measured, those that use their
            results as well.
        placed: of these, the ones that get another place in the sequence: new ones and moved ones.
        dropped: old nodes whose place in the sequence is given up: removed ones and moved ones.
        overwritten: storages that touched nodes overwrite.
        storages: storages that what is touched or removed uses or used.
        old_storages: the same before the change.
    """

    def __init__(self, standing: Standing, edited: Edited) -> None:
        self.standing, self.edited = standing, edited
        self.graph: Graph = edited.graph
        old_of = np.array(edited.node_of, dtype=np.int64)
        self._new_of = _inverse(old_of, len(standing.graph.nodes))
        self.touched = self._repriced()
        self._is_touched = frozenset(self.touched)
        self.placed = displaced(edited)
        removed = np.flatnonzero(self._new_of < 0).tolist()
        moved = [edited.node_of[node] for node in self.placed if edited.node_of[node] >= 0]
        self.dropped: list[int] = [*removed, *moved]
        was = (edited.node_of[node] for node in self.touched)
        self._set_aside = frozenset(removed).union(was)
        self.overwritten: set[int] = set()
        self._touching: dict[
            int, dict[int, bool]
        ] = {}  # by storage, touched nodes and whether they create it
        self._all_roles: dict[int, dict[int, Role]] = {}  # once asked for
        self.operands: dict[int, tuple[int, ...]] = {}  # of touched nodes
        self._users: dict[int, list[int]] = {}  # touched ones, by value
        self._look_at_touched()
        self._outputs_on: dict[int, tuple[int, ...]] | None = None  # None where outputs are those of before
        if not self._keeps_outputs():
            self._outputs_on = {}
            for value in self.graph.outputs:
                storage = self.graph.values[value].storage
                if storage is not None:
                    before = self._outputs_on.get(storage, ())
                    self._outputs_on[storage] = (*before, self.value_name(value))
        used = self._used(removed)
        new_storage = _inverse(
            np.array(edited.storage_of, dtype=np.int64), len(standing.problem.storage_bytes)
        )
        kept = set(new_storage[list(used)].tolist()) - {-1}
        self.storages = sorted(kept.union(self._touching))
        self.old_storages = used.union(edited.storage_of[storage] for storage in self.storages) - {-1}

    def bodies(self) -> Bodies:
        """The orders of bodies that stand, of loops that are still there with the same body. Others: program order."""
        kept = {}
        for old, schedule in self.standing.bodies.items():
            new = self.new_node(old)
            if new >= 0 and self.graph.nodes[new].regions == self.standing.graph.nodes[old].regions:
                kept[new] = schedule
        return kept

    def is_touched(self, node: int) -> bool:
        """Whether a node is among `touched`."""
        return node in self._is_touched

    def is_set_aside(self, old: int) -> bool:
        """Whether an old node is gone, or touched now."""
        return old in self._set_aside

    def new_node(self, old: int) -> int:
        """What an old node is called now; -1 where it is gone."""
        return int(self._new_of[old])

    def value_name(self, value: int) -> int:
        """The name that a value goes by."""
        old = self.edited.value_of[value]
        return old if old >= 0 else len(self.standing.graph.values) + value

    def users(self, value: int) -> Iterator[int]:
        """Nodes that need a value."""
        old = self.edited.value_of[value]
        if old >= 0:
            for user in self.standing.problem.consumers[old]:
                node = self.new_node(user)
                if node >= 0 and not self.is_touched(node):
                    yield node
        yield from self._users.get(value, ())

    def touched_users(self, storage: int) -> dict[int, bool]:
        """Touched nodes that need, make or hand on a storage, and whether they create it."""
        return self._touching.get(storage, _NONE)

    def roles(self, storage: int) -> dict[int, Role]:
        """What nodes do with a storage, by node; values go by their names."""
        known = self._all_roles.get(storage)
        if known is None:
            known = self._all_roles[storage] = self._merged_roles(storage)
        return known

    def only_hands_on(self, storage: int) -> bool:
        """Whether a storage is the caller's and nobody writes it: it has no bytes to count and one version."""
        old = self.edited.storage_of[storage]
        return (
            old in self.standing.inputs_on
            and not self.standing.problem.writers[old]
            and storage not in self.overwritten
        )

    def has_writers(self, storage: int) -> bool:
        """Whether a node overwrites a storage; without one, what uses it need not wait for each other."""
        old = self.edited.storage_of[storage]
        return storage in self.overwritten or (
            old >= 0 and not all(map(self.is_set_aside, self.standing.problem.writers[old]))
        )

    def _merged_roles(self, storage: int) -> dict[int, Role]:
        found = {node: self._role(node, storage) for node in self.touched_users(storage)}
        old = self.edited.storage_of[storage]
        if old >= 0:
            for user, role in self.standing.problem.roles[old].items():
                node = self.new_node(user)
                if node >= 0 and not self.is_touched(node):
                    found[node] = role
        return found

    def outputs_on(self, storage: int) -> tuple[int, ...]:
        """Names of the outputs of the changed graph that see a storage."""
        if self._outputs_on is None:
            return self.standing.outputs_on.get(self.edited.storage_of[storage], ())
        return self._outputs_on.get(storage, ())

    def runs(self, node: int) -> tuple[int, ...]:
        """Positions in the old sequence of a node that keeps its place."""
        return self.standing.runs[self.edited.node_of[node]]

    def _repriced(self) -> tuple[int, ...]:
        """Nodes that are touched, ascending; where costs are measured, those that use what they make as well."""
        edited = self.edited
        if not self.standing.pricing.cost.is_measured:
            return edited.touched
        made = {edited.value_of[v] for node in edited.touched for v in edited.graph.nodes[node].outputs}
        found = {self.new_node(user) for value in made - {-1} for user in self.standing.users[value]}
        return tuple(sorted(found.union(edited.touched) - {-1}))

    def _keeps_outputs(self) -> bool:
        """Whether the outputs are those of before, on the storages of before."""
        problem, edited, values = self.standing.problem, self.edited, self.graph.values
        if len(self.graph.outputs) != len(problem.outputs):
            return False
        for value, old in zip(self.graph.outputs, problem.outputs, strict=True):
            storage = values[value].storage
            before = -1 if storage is None else edited.storage_of[storage]
            if edited.value_of[value] != old or before != problem.value_storage[old]:
                return False
        return True

    def _look_at_touched(self) -> None:
        graph, values = self.graph, self.graph.values
        for number in self.touched:
            node = graph.nodes[number]
            needed = self.operands[number] = needed_inputs(graph, node)
            for access in node.effects.writes:
                self.overwritten.add(access.storage)
            for value in needed:
                self._users.setdefault(value, []).append(number)
            created = graph.created_storages(node)
            for value in (*needed, *node.outputs):
                storage = values[value].storage
                if storage is not None:
                    self._touching.setdefault(storage, {})[number] = storage in created

    def _role(self, number: int, storage: int) -> Role:
        """What a touched node does with a storage."""
        node, values = self.graph.nodes[number], self.graph.values
        needs, makes = (
            tuple(self.value_name(value) for value in some if values[value].storage == storage)
            for some in (self.operands[number], node.outputs)
        )
        return Role(needs, makes, self._touching[storage][number])

    def _used(self, removed: list[int]) -> set[int]:
        """Old storages of what is touched or removed, and of outputs that are none any more."""
        problem, edited = self.standing.problem, self.edited
        were = [old for node in self.touched if (old := edited.node_of[node]) >= 0]
        used = {
            problem.value_storage[value]
            for old in (*were, *removed)
            for value in (*problem.operands[old], *problem.results[old])
        }
        if self._outputs_on is not None:
            now = [edited.value_of[value] for value in self.graph.outputs]
            gone = set(problem.outputs).symmetric_difference(value for value in now if value >= 0)
            used.update(problem.value_storage[value] for value in gone)
        return used - {-1}


def _inverse(old_of: Ints, count: int) -> Ints:
    """By old id the new one; -1 for what is gone."""
    found: Ints = np.full(count, -1, dtype=np.int64)
    new = np.flatnonzero(old_of >= 0)
    found[old_of[new]] = new
    return found
