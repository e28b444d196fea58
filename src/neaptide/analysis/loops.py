"""Loops: how often a body runs, under which sizes and in which order. The one reading that every room shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from neaptide.ir.loops.maps import Binding, trips
from neaptide.ir.nodes import ADD_OP, Loop, Node
from neaptide.ir.schedule import Schedule

__all__ = [
    "NOTHING_IN_BODIES",
    "NO_BODIES",
    "Binding",
    "Bodies",
    "InBodies",
    "Path",
    "body_schedule",
    "first_trip_writes",
    "trips",
]

Bodies = Mapping[int, Schedule]
"""By node with a loop, the order of one trip; program order for a loop that is not in it."""

NO_BODIES: Bodies = MappingProxyType({})

Path = tuple[int, ...]
"""Where a node or a storage is in the bodies of loops: ids of the loops around it, outermost first, then its own."""


@dataclass(frozen=True, slots=True)
class InBodies:
    """Scratch bytes of nodes and sizes of storages in the bodies of loops, by path, of any trip the most."""

    workspace: Mapping[Path, int]
    storages: Mapping[Path, int]

    @staticmethod
    def here(workspace: Mapping[int, int], storages: Mapping[int, int]) -> InBodies:
        """What is known of the graph that paths begin in."""
        return InBodies(
            {(n,): size for n, size in workspace.items()}, {(s,): size for s, size in storages.items()}
        )

    def within(self, loop: int) -> InBodies:
        """What is known of the body of a loop and of those inside it, by paths from there. O(size)."""
        return self._by(lambda path: path[1:] if path[0] == loop and len(path) > 1 else None)

    def around(self, loop: int) -> InBodies:
        """The same by paths from the graph in which the body is that of a loop. O(size)."""
        return self._by(lambda path: (loop, *path))

    def most(self, other: InBodies) -> InBodies:
        """Of both the most. O(size)."""
        return InBodies(
            _most_of(self.workspace, other.workspace),
            _most_of(self.storages, other.storages),
        )

    def _by(self, renamed: Callable[[Path], Path | None]) -> InBodies:
        """By other paths, without those that have none."""
        return InBodies(
            *(
                {now: nbytes for path, nbytes in known.items() if (now := renamed(path)) is not None}
                for known in (self.workspace, self.storages)
            )
        )

    @property
    def of_storages(self) -> InBodies:
        """What is known of storages alone."""
        return InBodies({}, self.storages)

    @property
    def own_workspace(self) -> dict[int, int]:
        """Scratch bytes by node of the graph that paths begin in."""
        return {path[0]: nbytes for path, nbytes in self.workspace.items() if len(path) == 1}

    @property
    def own_storages(self) -> dict[int, int]:
        """Sizes by storage of the graph that paths begin in."""
        return {path[0]: nbytes for path, nbytes in self.storages.items() if len(path) == 1}


NOTHING_IN_BODIES = InBodies(MappingProxyType({}), MappingProxyType({}))


def _most_of(one: Mapping[Path, int], other: Mapping[Path, int]) -> dict[Path, int]:
    return {path: max(one.get(path, 0), other.get(path, 0)) for path in {**one, **other}}


def body_schedule(node: Node, bodies: Bodies = NO_BODIES) -> Schedule:
    """The order in which one trip of a node's loop runs, with the orders of the loops inside it."""
    given = bodies.get(node.id)
    return Schedule.program_order(node.regions[0].body) if given is None else given


def first_trip_writes(loop: Loop) -> frozenset[int]:
    """Destinations of sums that nothing in the body touches but one addition, so that the first trip may overwrite."""
    destinations = set(loop.destinations())
    touching: dict[int, list[Node]] = {number: [] for number in destinations}
    for inner in loop.body.nodes:
        for number in destinations.intersection(inner.inputs):
            touching[number].append(inner)
    return frozenset(
        number
        for merge, number in zip(loop.merges, loop.destinations(), strict=True)
        if merge.how == "sum" and len(touching[number]) == 1 and _only_adds_to(touching[number][0], number)
    )


def _only_adds_to(node: Node, value: int) -> bool:
    return node.op == ADD_OP and node.inputs[0] == value and value not in node.inputs[1:]
