"""Blocks: the forward part cut where little crosses, the backward shared out among them, equal blocks found once.

A cut lies where fewer storages cross than around it (an articulation of the storage graph where one does). What
crosses it is all that the rest of the forward part needs of what came before. Nodes after the forward part go, in
their running order, to the last block whose units they can belong to; a block and its share of the backward are
planned as one. Isomorphic blocks are recognised by sizes, seconds, relative operands and legality, not by names
(Zhao et al. 2023, Rockmate, compare traced code instead).
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from typing import Final, TypeAlias

from neaptide.planner.recompute.units import ForwardUnit, ForwardUnits

Signature: TypeAlias = tuple[object, ...]
_log = logging.getLogger(__name__)
_LIGHT_PART: Final = 64  # units so many times smaller than the largest do not count as crossing a cut


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the forward part and its share of the backward. Units are told by creators, without pinned ones."""

    units: tuple[int, ...]  # made in it, in running order
    entering: tuple[int, ...]  # of earlier blocks, needed in it or in a later block, in running order
    leaving: tuple[int, ...]  # those that enter the next block
    first: int  # position of its first node after the forward part
    end: int  # one past its last
    reads: frozenset[int]  # its own units that these nodes read


@dataclass(frozen=True, slots=True)
class BlockChain:
    """A step as a chain of blocks."""

    forward: ForwardUnits  # the units that they are made of; irregular reads are pinned
    blocks: tuple[Block, ...]  # in running order; the backward runs through them from the last to the first
    kinds: tuple[int, ...]  # by block, the first block that it is isomorphic to

    @property
    def distinct(self) -> int:
        """How many blocks there are up to isomorphism."""
        return len(set(self.kinds))


def find_blocks(forward: ForwardUnits, most: int) -> BlockChain:
    """Cut the forward part into at most about `most` blocks. O(size of the problem + units x blocks)."""
    cuts = _cuts(forward, most)
    bounds = [0, *cuts, forward.turning]
    home = {c: bisect_left(bounds, unit.position + 1) - 1 for c, unit in forward.units.items()}
    reach = {c: bisect_left(bounds, unit.last_use + 1) - 1 for c, unit in forward.units.items()}
    parts = _backward_parts(forward, home, reach, len(bounds) - 1)
    forward = _pin_irregular(forward, home, reach, parts)
    free = [u for u in forward.units.values() if not u.is_pinned]
    blocks = []
    for index in range(len(bounds) - 1):
        first, end = parts[index]
        behind = forward.reads[first - forward.turning : end - forward.turning]
        mine = tuple(u.creator for u in free if home[u.creator] == index)
        blocks.append(
            Block(
                mine,
                _crossing(free, bounds[index]),
                _crossing(free, bounds[index + 1]),
                first,
                end,
                frozenset(mine).intersection(chain.from_iterable(behind)),
            )
        )
    seen: dict[Signature, int] = {}
    kinds = tuple(seen.setdefault(_signature(forward, b), i) for i, b in enumerate(blocks))
    _log.info("%d blocks, %d of them distinct", len(blocks), len(seen))
    return BlockChain(forward, tuple(blocks), kinds)


def _crossing(units: Sequence[ForwardUnit], position: int) -> tuple[int, ...]:
    return tuple(u.creator for u in units if u.position < position <= u.last_use)


def _cuts(forward: ForwardUnits, most: int) -> list[int]:
    """Positions in front of which a block begins, besides the first."""
    length = forward.turning
    units = forward.units.values()
    light = max((u.nbytes for u in units), default=0) // _LIGHT_PART
    read = {u for reads in forward.reads for u in reads}
    count, heavy, unread, made = ([0] * (length + 2) for _ in range(4))
    for unit in units:
        made[unit.position + 1] += unit.nbytes
        for changes, amount in (
            (count, int(unit.nbytes > light)),
            (heavy, unit.nbytes),
            (unread, unit.nbytes if unit.creator not in read else 0),
        ):
            changes[unit.position + 1] += amount
            changes[unit.last_use + 1] -= amount
    count, heavy, unread, made = (list(accumulate(c)) for c in (count, heavy, unread, made))
    valleys = _valleys(count[1:length])
    ranked = sorted((count[q], unread[q], heavy[q], q) for q in (v + 1 for v in valleys))
    least = made[length] / (1.5 * most)
    chosen: list[int] = []
    for *_, cut in ranked:
        index = bisect_left(chosen, cut)
        before = made[chosen[index - 1]] if index else 0
        after = made[chosen[index]] if index < len(chosen) else made[length]
        if made[cut] - before >= least and after - made[cut] >= least:
            chosen.insert(index, cut)
    return chosen


def _valleys(heights: Sequence[int]) -> list[int]:
    """Indices on level stretches with nothing lower beside them."""
    found: list[int] = []
    stretches = [
        (height, [i for i, _ in group]) for height, group in groupby(enumerate(heights), lambda p: p[1])
    ]
    for index, (height, members) in enumerate(stretches):
        neighbours = [stretches[i][0] for i in (index - 1, index + 1) if 0 <= i < len(stretches)]
        if all(other > height for other in neighbours):
            found.extend(members)
    return found


def _backward_parts(
    forward: ForwardUnits, home: dict[int, int], reach: dict[int, int], count: int
) -> list[tuple[int, int]]:
    """By block, its positions after the forward part."""
    end = len(forward.order)
    starts = [0] * count
    current = count - 1
    starts[current] = forward.turning
    for offset, reads in enumerate(forward.reads):
        # Of the blocks that touch all that it reads, the last one; never back to a block that is done.
        last = max(min((reach[u] for u in reads), default=current), max((home[u] for u in reads), default=0))
        while current > last:
            current -= 1
            starts[current] = forward.turning + offset
    for block in range(current):
        starts[block] = end
    return [(starts[b], starts[b - 1] if b else end) for b in range(count)]


def _pin_irregular(
    forward: ForwardUnits, home: dict[int, int], reach: dict[int, int], parts: list[tuple[int, int]]
) -> ForwardUnits:
    """Units that a part reads, and whose block neither makes them nor is entered by them, are held throughout."""
    irregular: set[int] = set()
    for block, (first, end) in enumerate(parts):
        for offset in range(first - forward.turning, end - forward.turning):
            for unit in forward.reads[offset]:
                if not home[unit] <= block <= reach[unit]:
                    irregular.add(unit)
    units = dict(forward.units)
    other, between = list(forward.other_bytes), list(forward.between_bytes)
    last_read = {unit: offset for offset, reads in enumerate(forward.reads) for unit in reads}
    for creator in sorted(irregular):
        pinned = units[creator]
        if pinned.is_pinned:
            continue
        units[creator] = replace(pinned, is_pinned=True)
        for offset in range(last_read[creator] + 1):
            other[offset] += pinned.nbytes
            between[offset] += pinned.nbytes
    return replace(forward, units=units, other_bytes=tuple(other), between_bytes=tuple(between))


def _signature(forward: ForwardUnits, block: Block) -> Signature:
    """What planning a block depends on, free of names and places."""
    label = {u: ("enters", i) for i, u in enumerate(block.entering)}
    label |= {u: ("own", i) for i, u in enumerate(block.units)}
    leaving = set(block.leaving)
    made = tuple(
        (
            unit.seconds,
            unit.nbytes,
            unit.workspace,
            tuple(label.get(o, ("pinned", 0)) for o in unit.operands),
            u in leaving,
        )
        for u in block.units
        for unit in (forward.units[u],)
    )
    start = forward.between_bytes[block.first - forward.turning] if block.first < block.end else 0
    behind = tuple(
        (
            tuple(label.get(u, ("pinned", 0)) for u in forward.reads[p - forward.turning]),
            forward.other_bytes[p - forward.turning] - start,
            forward.between_bytes[p - forward.turning] - start,
        )
        for p in range(block.first, block.end)
    )
    return tuple(forward.units[u].nbytes for u in block.entering), made, behind
