"""Options of a block: which of its units to hold for the backward, and what that means in bytes and seconds.

Candidates come from dropping units one at a time, the cheapest per byte first. Each is charged by a simulation of the
block alone, in which everything that is not held is recomputed just before it is needed. Isomorphic blocks share their
options.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from neaptide.planner.recompute.chain.blocks import Block, BlockChain
from neaptide.planner.recompute.chain.program import ChainCosts, Option
from neaptide.planner.recompute.units import ForwardUnits

_OPTIONS: Final = 16
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class KnownChains:
    """What searches of one step need not work out again, whatever the budget."""

    # By order of first executions and the most blocks asked for.
    chains: dict[tuple[tuple[int, ...], int], BlockChain] = field(default_factory=dict)
    # By identity of a chain, the chain (so that no other takes its identity) and the options of its blocks.
    costs: dict[int, tuple[BlockChain, ChainCosts]] = field(default_factory=dict)


def chain_costs(chain: BlockChain, *, most: int = _OPTIONS) -> ChainCosts:
    """The chain with at most `most` options a block; distinct blocks are solved once.

    O(blocks^2 x units crossing + distinct blocks x units x what a unit needs again).
    """
    forward, blocks = chain.forward, chain.blocks
    solved: dict[int, list[Option]] = {}
    options: list[tuple[Option, ...]] = []
    for index, kind in enumerate(chain.kinds):
        if kind not in solved:
            solved[kind] = _options(forward, blocks[kind], most)
        options.append(tuple(_carried_over(forward, blocks[kind], blocks[index], o) for o in solved[kind]))
    _log.info("options of %d of %d blocks", len(solved), len(blocks))
    entering = [set(block.entering) for block in blocks]
    return ChainCosts(
        tuple(options),
        tuple((_backward(forward, b, frozenset()), _backward(forward, b, _exit(b))) for b in blocks),
        tuple(tuple(forward.nbytes(_exit(b).difference(a.entering)) for b in blocks) for a in blocks),
        tuple(tuple(forward.nbytes(later - mine) for later in entering) for mine in entering),
        tuple(forward.seconds(forward.missing(b.leaving, set(b.entering))) for b in blocks),
        tuple(_forward_peak(forward, b, frozenset(b.leaving)) for b in blocks),
        tuple(_between(forward, b) for b in blocks),
    )


def _options(forward: ForwardUnits, block: Block, most: int) -> list[Option]:
    leaving = frozenset(block.leaving)
    choices = dict.fromkeys(kept - leaving for kept in _greedy_choices(forward, block))
    choices[frozenset()] = None
    options = _pareto(_option(forward, block, kept) for kept in choices)
    if len(options) <= most:
        return options
    # The extremes, and an even choice of what lies between.
    picked = {round(k * (len(options) - 1) / (most - 1)) for k in range(most)}
    return [options[k] for k in sorted(picked)]


def _pareto(options: Iterable[Option]) -> list[Option]:
    """Options that no other one beats, by falling bytes; the one with nothing kept stays in any case."""
    ranked = [
        (option, (option.nbytes, *option.charges))
        for option in sorted(options, key=lambda o: (-o.nbytes, o.backward_s, o.backward_peak_bytes))
    ]
    return [
        option
        for option, charges in ranked
        if not option.kept
        or not any(
            other is not option and all(a <= b for a, b in zip(less, charges, strict=True))
            for other, less in ranked
        )
    ]


def _greedy_choices(forward: ForwardUnits, block: Block) -> Iterable[frozenset[int]]:
    """Hold all that the backward reads, then drop what costs least per byte, until nothing is held.

    One unit at a time, or several in blocks so large that there are many more of them than options.
    """
    units, base = forward.units, set(block.leaving).union(block.entering)
    kept = set(block.reads).difference(block.leaving)
    held, gone = kept | base, forward.missing(kept, kept | base)
    at_once = -(-len(kept) // (4 * _OPTIONS))

    def price(unit: int) -> tuple[float, int]:
        if unit in base:
            return 0.0, units[unit].position
        held.discard(unit)
        seconds = forward.seconds(forward.missing((unit,), held, gone))
        held.add(unit)
        return seconds / max(units[unit].nbytes, 1), units[unit].position

    yield frozenset(kept)
    while kept:
        for unit in heapq.nsmallest(at_once, kept, key=price):
            kept.discard(unit)
            if unit not in base:
                held.discard(unit)
                gone.update(forward.missing((unit,), held, gone))
        yield frozenset(kept)


def _option(forward: ForwardUnits, block: Block, kept: frozenset[int]) -> Option:
    """The charges of holding some units beside what leaves the block."""
    held = kept.union(block.leaving)
    seconds, peak = _backward(forward, block, held)
    return Option(
        kept,
        forward.nbytes(held.difference(block.entering)),
        forward.seconds(forward.missing(held, set(block.entering))),
        seconds,
        _forward_peak(forward, block, held),
        peak,
    )


def _exit(block: Block) -> frozenset[int]:
    """What leaves a block and is read by its own backward."""
    return block.reads.intersection(block.leaving)


def _carried_over(forward: ForwardUnits, source: Block, target: Block, option: Option) -> Option:
    """The same option of an isomorphic block."""
    units = dict(zip(source.units, target.units, strict=True))
    shift = _between(forward, target) - _between(forward, source)
    return replace(
        option,
        kept=frozenset(units[u] for u in option.kept),
        backward_peak_bytes=option.backward_peak_bytes + shift,
    )


def _between(forward: ForwardUnits, block: Block) -> int:
    """Bytes that are there besides before the backward of a block begins."""
    index = min(block.first - forward.turning, len(forward.between_bytes) - 1)
    return forward.between_bytes[index] if index >= 0 else 0


def _forward_peak(forward: ForwardUnits, block: Block, held: frozenset[int]) -> int:
    """Highest bytes of own units while a block runs forward; what enters it is left out."""
    units = [forward.units[u] for u in block.units]
    live = peak = 0
    ends: dict[int, int] = {}
    for unit in units:
        for last in [last for last in ends if last < unit.position]:
            live -= ends.pop(last)
        live += unit.nbytes
        peak = max(peak, live + unit.workspace)
        if unit.creator not in held:
            ends[unit.last_use] = ends.get(unit.last_use, 0) + unit.nbytes
    return peak


def _backward(forward: ForwardUnits, block: Block, held: frozenset[int]) -> tuple[float, int]:
    """Seconds recomputed in the backward of a block, and its highest bytes without what enters the block."""
    own = set(block.units)
    reads = [own.intersection(forward.reads[p - forward.turning]) for p in range(block.first, block.end)]
    wanted = [(unit, offset) for offset, found in enumerate(reads) for unit in found]
    anchors = forward.anchors(wanted, held.union(block.entering))
    by_anchor: dict[int, list[int]] = {}
    for unit in sorted(anchors, key=lambda u: forward.units[u].position):
        by_anchor.setdefault(anchors[unit], []).append(unit)
    # What happens: bytes made, own units touched, other bytes that are there.
    events: list[tuple[int, set[int], int]] = []
    for offset, found in enumerate(reads):
        index = block.first - forward.turning + offset
        for unit in by_anchor.get(offset, ()):
            made = forward.units[unit]
            touched = own.intersection((unit, *made.operands))
            events.append((made.nbytes, touched, forward.between_bytes[index] + made.workspace))
        events.append((0, found, forward.other_bytes[index]))
    last = {unit: index for index, (_, touched, _) in enumerate(events) for unit in touched}
    dying = [0] * len(events)
    for unit, index in last.items():
        dying[index] += forward.units[unit].nbytes
    live = sum(forward.units[u].nbytes for u in held & own if u in last)
    peak = _between(forward, block)
    for (nbytes, _, other), freed in zip(events, dying, strict=True):
        live += nbytes
        peak = max(peak, live + other)
        live -= freed
    return forward.seconds(anchors), peak
