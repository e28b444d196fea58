"""Which regions of an F-tree run in parts, as data, and the moves between such choices.

Chen et al., MAGIS (ASPLOS 2024), section 4.2.2: enable, lift, disable and mutate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from neaptide_peers.magis.f_tree import FTree

Parts: TypeAlias = tuple[tuple[int, int], ...]
"""(index of a region, number of parts) of those that run in parts, ascending."""

NO_PARTS: Parts = ()


def next_choices(tree: FTree, parts: Parts) -> Iterator[tuple[str, Parts]]:
    """The choices one move away, each with the name of the move. O(regions^2).

    * *enable*: a region without regions inside, or one directly around an outermost one that runs in parts.
    * *lift*: the region around an outermost one instead of it.
    * *disable*: one without any inside that run in parts.
    * *mutate*: the next larger, or next smaller, number of parts that divides the axis.
    """
    chosen = dict(parts)
    outermost = [k for k in chosen if chosen.keys().isdisjoint(tree.around(k))]
    enabled = {k for k, inside in enumerate(tree.children) if not inside}
    enabled |= {parent for k in outermost if (parent := tree.regions[k].parent) >= 0}
    for index in sorted(enabled - chosen.keys()):
        yield from _with(tree, chosen, index, "enable")
    for index in outermost:
        parent = tree.regions[index].parent
        if parent >= 0:
            yield from _with(tree, {k: n for k, n in chosen.items() if k != index}, parent, "lift")
    for index in chosen:
        if chosen.keys().isdisjoint(tree.inside(index)):
            yield "disable", _sorted({k: n for k, n in chosen.items() if k != index})
    for index, count in chosen.items():
        counts = _counts(tree, chosen, index)
        for near in (
            min((n for n in counts if n > count), default=None),
            max((n for n in counts if n < count), default=None),
        ):
            if near is not None:
                yield "mutate", _sorted({**chosen, index: near})


def each_alone(tree: FTree) -> Iterator[Parts]:
    """Every region by itself, in as few parts as there may be."""
    for index in range(len(tree.regions)):
        counts = _counts(tree, {}, index)
        if counts:
            yield ((index, counts[0]),)


def is_legal(tree: FTree, parts: Parts) -> bool:
    """Whether regions in parts are apart or one inside the other, and their numbers divide what is left of their axes."""
    chosen = dict(parts)
    for index, count in parts:
        if count not in _counts(tree, chosen, index):
            return False
        members = tree.regions[index].members
        around = set(tree.around(index))
        for other in chosen.keys() - {index} - around:
            if other not in set(tree.inside(index)) and members & tree.regions[other].members:
                return False
    return True


def _with(tree: FTree, chosen: Mapping[int, int], index: int, move: str) -> Iterator[tuple[str, Parts]]:
    """The choice with one region more, in as few parts as there may be, if that is legal."""
    counts = _counts(tree, chosen, index)
    if counts:
        made = _sorted({**chosen, index: counts[0]})
        if is_legal(tree, made):
            yield move, made


def _counts(tree: FTree, chosen: Mapping[int, int], index: int) -> list[int]:
    """Numbers of parts that a region may have, ascending: they divide the axis together with those around and inside."""
    region = tree.regions[index]
    length = _left(tree, chosen, region.length, region.axis, tree.around(index))
    chains = {1}  # products of the numbers of parts of regions inside one another
    for other in tree.inside(index):
        between = (k for k in (other, *tree.around(other)) if k in set(tree.inside(index)))
        chains.add(math.prod(chosen.get(k, 1) for k in between if tree.regions[k].axis == region.axis))
    return [n for n in range(2, length + 1) if length % n == 0 and not any(length // n % c for c in chains)]


def _left(tree: FTree, chosen: Mapping[int, int], length: int, axis: int, around: Iterable[int]) -> int:
    """Elements of an axis in a part of all regions around; 0 where their parts are not alike."""
    for other in around:
        if tree.regions[other].axis == axis:
            divided, rest = divmod(length, chosen.get(other, 1))
            length = 0 if rest else divided
    return length


def _sorted(chosen: Mapping[int, int]) -> Parts:
    return tuple(sorted(chosen.items()))
