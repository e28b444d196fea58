"""Units: all storages that one node creates. They are held, dropped and recomputed together.

The nodes that recompute a unit are its creator and those that overwrite what it creates. Which of those count depends
on when the unit is needed: `forward_units` and the closure model count the writers in front of one step,
`stage_units` counts all of them, and the views as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class Unit:
    """What one node creates, and what it takes to recompute it.

    Attributes:
        creator: the node.
        storages: that it creates.
        nodes: that recompute them, in the order in which they run.
        seconds: of these nodes.
        nbytes: of these storages.
        workspace: most scratch bytes of these nodes.
        reads: storages of other units that these nodes need, ascending.
        is_refused: one of these nodes may not run again.
    """

    creator: int
    storages: tuple[int, ...]
    nodes: tuple[int, ...]
    seconds: float
    nbytes: int
    workspace: int
    reads: tuple[int, ...]
    is_refused: bool


Kind = TypeVar("Kind", bound=Unit)


def unit_with(kind: type[Kind], unit: Unit, **more: Any) -> Kind:
    """A unit as a kind that tells more of it.

    Args:
        kind: a class that adds fields to `Unit`.
        unit: what the fields of `Unit` are taken from.
        more: the fields that the class adds.
    """
    return kind(**{field.name: getattr(unit, field.name) for field in fields(unit)}, **more)


def writers(step: StepProblem, creator: int) -> set[int]:
    """The other nodes that overwrite what a node creates."""
    return {writer for storage in step.created[creator] for writer in step.writers[storage]} - {creator}


def unit_of(step: StepProblem, creator: int, nodes: Iterable[int]) -> Unit:
    """The unit of a node. O(nodes x operands).

    Args:
        step: the problem.
        creator: the node.
        nodes: that recompute the unit, each once.
    """
    own = step.created[creator]
    ordered = tuple(nodes)
    read = {storage for node in ordered for storage in storages_needed(step, node)}
    return Unit(
        creator,
        own,
        ordered,
        sum(step.repeat_seconds[node] for node in ordered),
        sum(step.storage_bytes[storage] for storage in own),
        max(step.workspace[node] for node in ordered),
        tuple(sorted(s for s in read if step.creator[s] >= 0 and s not in own)),
        any(step.refusals[node] for node in ordered),
    )


def storages_needed(step: StepProblem, node: int) -> set[int]:
    """Storages of a node's operands; host scalars have none."""
    return {storage for value in step.operands[node] if (storage := step.value_storage[value]) >= 0}
