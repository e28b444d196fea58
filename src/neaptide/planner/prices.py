"""What a cost model says of a graph and of its nodes, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.analysis.loops import NOTHING_IN_BODIES, InBodies
from neaptide.plans import AssumedBytes


@dataclass(frozen=True, slots=True)
class Prices:
    """What a cost model says of a graph whose bodies run in certain orders, as plain numbers."""

    seconds: tuple[float, ...]
    workspace: Mapping[int, int]  # scratch bytes by node id; of a loop all that its body needs
    storage_bytes: Mapping[int, int]
    in_bodies: InBodies = NOTHING_IN_BODIES
    loops: frozenset[int] = frozenset()

    @property
    def own_workspace(self) -> dict[int, int]:
        """Scratch bytes by node id of the nodes that are no loops."""
        return {node: nbytes for node, nbytes in self.workspace.items() if node not in self.loops}

    @property
    def assumed(self) -> AssumedBytes:
        """What a plan has to say of bytes beside the graph."""
        return AssumedBytes(
            tuple(sorted(self.own_workspace.items())),
            tuple(sorted(self.storage_bytes.items())),
            tuple(sorted(self.in_bodies.workspace.items())),
            tuple(sorted(self.in_bodies.storages.items())),
        )


@dataclass(frozen=True, slots=True)
class NodePrice:
    """What a cost model says of one node."""

    seconds: float
    repeat_seconds: float
    workspace: int
