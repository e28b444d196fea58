"""What a reduction has solved on its own, part by part."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from neaptide.schedule.order.steps import Steps


class PartKind(StrEnum):
    """The structure of a part, which says what solves it.

    `BRANCHES`: chains that share nothing but what comes before and after all of them; merged (Liu 1987, Kayaaslan et
    al. 2018). Trees and series-parallel graphs with a buffer per edge consist of nothing else. `PUMPKIN`: chains that
    start from one shared storage. `REGION`: anything else between one entry and one exit, such as the parts of a
    series-parallel graph whose branches share storages; like a pumpkin it is solved over its downsets.
    """

    BRANCHES = "branches"
    PUMPKIN = "pumpkin"
    REGION = "region"


class SolvedPart(NamedTuple):
    """A part of a problem that has become one chain.

    Attributes:
        ops: ops of the problem in it, those of parts inside it included.
        degree: chains or ops that start side by side after one op; the most of them.
        states: downsets looked at; 0 for branches, and for a region equal to one solved before.
    """

    kind: PartKind
    ops: int
    degree: int
    states: int


@dataclass(frozen=True, slots=True)
class PartSummary:
    """All solved parts of one kind."""

    kind: PartKind
    count: int
    largest_ops: int
    degree: int
    states: int


def summarise_parts(parts: Collection[SolvedPart]) -> list[PartSummary]:
    """Solved parts by kind, in the order of `PartKind`. O(parts)."""
    by_kind = {kind: [part for part in parts if part.kind is kind] for kind in PartKind}
    return [
        PartSummary(
            kind,
            len(some),
            max(part.ops for part in some),
            max(part.degree for part in some),
            sum(part.states for part in some),
        )
        for kind, some in by_kind.items()
        if some
    ]


def kind_of(region: Steps) -> PartKind:
    """Whether a region is a pumpkin: chains, and one coupling of their first items. O(size)."""
    heads = {item for item, before in enumerate(region.predecessors) if not before}
    is_chains = (
        all(len(before) <= 1 for before in region.predecessors)
        and max(map(len, region.successors), default=0) <= 1
    )
    is_shared = [set(coupling.ops) for coupling in region.couplings] == [heads]
    return PartKind.PUMPKIN if is_chains and is_shared else PartKind.REGION


def degree_of(region: Steps) -> int:
    """Most items that start side by side: at the start of the region, or after one item. O(size)."""
    return max([sum(not before for before in region.predecessors), *map(len, region.successors)])
