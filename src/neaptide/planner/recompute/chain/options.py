"""Options of a block: which of its units to hold for the backward, and what that means in bytes and seconds.

Candidates come from dropping units one at a time, the cheapest per byte first, and from the closure model on the
block. Each is charged by a simulation of the block alone, in which everything that is not held is recomputed just
before it is needed. Isomorphic blocks share their options.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Sequence

from neaptide.planner.recompute.chain.blocks import Block, BlockChain
from neaptide.planner.recompute.chain.program import ChainCosts, Option
from neaptide.planner.recompute.closure_model import ClosureModel, held_creators
from neaptide.planner.recompute.forward_units import ForwardUnits
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.problem import StepProblem

_log = logging.getLogger(__name__)


def chain_costs(step: StepProblem, chain: BlockChain, *, most: int | None = None) -> ChainCosts:
    """The chain with at most `most` options a block, by default as many as usual; distinct blocks are solved once.

    O(blocks^2 x units crossing + distinct blocks x units x what a unit needs again).
    """
    most = SETTINGS.options if most is None else most
    forward, blocks = chain.forward, chain.blocks
    solved: dict[int, list[Option]] = {}
    options: list[tuple[Option, ...]] = []
    for index, kind in enumerate(chain.kinds):
        if kind not in solved:
            solved[kind] = _options(step, forward, blocks[kind], most)
        options.append(tuple(_carried_over(forward, blocks[kind], blocks[index], o) for o in solved[kind]))
    _log.info("options of %d of %d blocks", len(solved), len(blocks))
    return ChainCosts(
        tuple(options),
        tuple((_again(forward, b, frozenset()), _again(forward, b, _exit(b))) for b in blocks),
        tuple(tuple(forward.nbytes(_exit(b).difference(a.entering)) for b in blocks) for a in blocks),
        entering_bytes(chain),
        tuple(forward.seconds(forward.missing(b.leaving, set(b.entering))) for b in blocks),
        (0.0,) * len(blocks),
        tuple(_forward_peak(forward, b, frozenset(b.leaving)) for b in blocks),
        tuple(_between(forward, b) for b in blocks),
    )


def entering_bytes(chain: BlockChain) -> tuple[tuple[int, ...], ...]:
    """By pair (a, j), bytes that enter block j but not block a."""
    entering = [set(block.entering) for block in chain.blocks]
    return tuple(tuple(chain.forward.nbytes(later - mine) for later in entering) for mine in entering)


def everything(forward: ForwardUnits, block: Block) -> Option:
    """The option of holding all that the backward of a block reads."""
    return _option(forward, block, block.reads - set(block.leaving))


def nothing(forward: ForwardUnits, block: Block) -> Option:
    """The option of holding only what leaves a block."""
    return _option(forward, block, frozenset())


def _options(step: StepProblem, forward: ForwardUnits, block: Block, most: int) -> list[Option]:
    leaving = frozenset(block.leaving)
    choices = dict.fromkeys(kept - leaving for kept in _greedy_choices(forward, block))
    choices.update(dict.fromkeys(kept - leaving for kept in _model_choices(step, forward, block)))
    choices[frozenset()] = None
    options = _pareto(_option(forward, block, kept) for kept in choices)
    if len(options) <= most:
        return options
    # The extremes, and an even choice of what lies between.
    picked = {round(k * (len(options) - 1) / (most - 1)) for k in range(most)}
    return [options[k] for k in sorted(picked)]


def _pareto(options: Iterable[Option]) -> list[Option]:
    """Options that no other one beats, by falling bytes; the one with nothing kept stays in any case."""
    ranked = sorted(options, key=lambda o: (-o.nbytes, o.backward_s, o.backward_peak_bytes))
    found: list[Option] = []
    for option in ranked:
        beaten = any(
            other is not option
            and other.nbytes <= option.nbytes
            and other.backward_s <= option.backward_s
            and other.forward_s <= option.forward_s
            and other.backward_peak_bytes <= option.backward_peak_bytes
            and other.forward_peak_bytes <= option.forward_peak_bytes
            for other in ranked
        )
        if not beaten or not option.kept:
            found.append(option)
    return found


def _greedy_choices(forward: ForwardUnits, block: Block) -> Iterable[frozenset[int]]:
    """Hold all that the backward reads, then drop what costs least per byte, until nothing is held.

    One unit at a time, or several in blocks so large that there are many more of them than options.
    """
    units, base = forward.units, set(block.leaving).union(block.entering)
    kept = set(block.reads).difference(block.leaving)
    held, gone = kept | base, forward.missing(kept, kept | base)
    at_once = -(-len(kept) // (4 * SETTINGS.options))

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


def _model_choices(step: StepProblem, forward: ForwardUnits, block: Block) -> Iterable[frozenset[int]]:
    """What the closure model holds for several numbers of bytes; it may hold what the backward does not read."""
    index = {unit: i for i, unit in enumerate(block.units)}
    units = [forward.units[u] for u in block.units]
    leaving = set(block.leaving)
    model = ClosureModel(
        block.units,
        tuple(u.seconds for u in units),
        tuple(u.nbytes for u in units),
        tuple((i, index[o]) for i, u in enumerate(units) for o in u.operands if o in index),
        tuple(u in block.reads or u in leaving for u in block.units),
        tuple(u in leaving for u in block.units),
        0,
    )
    least = forward.nbytes(leaving)
    most = forward.nbytes(block.reads | leaving)
    # Between each two of the parts of the bytes between nothing held and all held.
    parts = max(SETTINGS.options // 2, 2)
    for part in range(1, parts):
        held = held_creators(step, model, least + part * (most - least) // parts)
        if held is not None:
            yield held


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


def _again(forward: ForwardUnits, block: Block, there: frozenset[int]) -> Option:
    """The charges of a backward that finds only what enters the block, and some of what leaves it."""
    seconds, peak = _backward(forward, block, there)
    return Option(frozenset(), 0, 0.0, seconds, 0, peak)


def _carried_over(forward: ForwardUnits, source: Block, target: Block, option: Option) -> Option:
    """The same option of an isomorphic block."""
    if source is target:
        return option
    units = dict(zip(source.units, target.units, strict=True))
    shift = _between(forward, target) - _between(forward, source)
    return Option(
        frozenset(units[u] for u in option.kept),
        option.nbytes,
        option.forward_s,
        option.backward_s,
        option.forward_peak_bytes,
        option.backward_peak_bytes + shift,
    )


def _between(forward: ForwardUnits, block: Block) -> int:
    """Bytes that are there besides before the backward of a block begins."""
    index = min(block.first - forward.turning, len(forward.between_bytes) - 1)
    return forward.between_bytes[index] if index >= 0 else 0


def _forward_peak(forward: ForwardUnits, block: Block, held: frozenset[int]) -> int:
    """Highest bytes of own units while a block runs forward; what enters it is left out."""
    units = [forward.units[u] for u in block.units]
    alive = peak = 0
    ends: dict[int, int] = {}
    for unit in units:
        for last in [last for last in ends if last < unit.position]:
            alive -= ends.pop(last)
        alive += unit.nbytes
        peak = max(peak, alive + unit.workspace)
        if unit.creator not in held:
            ends[unit.last_use] = ends.get(unit.last_use, 0) + unit.nbytes
    return peak


def _backward(forward: ForwardUnits, block: Block, held: frozenset[int]) -> tuple[float, int]:
    """Seconds recomputed in the backward of a block, and its highest bytes without what enters the block."""
    own = set(block.units)
    reads = [own.intersection(forward.reads[p - forward.turning]) for p in range(block.first, block.end)]
    there = held.union(block.entering)
    missing = forward.missing(set().union(*reads), there)
    anchors: dict[int, int] = {}
    waiting = [(unit, offset) for offset, found in enumerate(reads) for unit in found]
    while waiting:
        unit, anchor = waiting.pop()
        if unit in missing and anchor < anchors.get(unit, len(reads)):
            anchors[unit] = anchor
            waiting.extend((operand, anchor) for operand in forward.units[unit].operands)
    events = _events(forward, block, reads, anchors)
    return forward.seconds(missing), _highest(forward, block, events, held & own)


def _events(
    forward: ForwardUnits, block: Block, reads: Sequence[set[int]], anchors: dict[int, int]
) -> list[tuple[int, frozenset[int], int]]:
    """What happens in the backward: (unit recomputed or -1, units touched, other bytes)."""
    by_anchor: dict[int, list[int]] = {}
    for unit, anchor in anchors.items():
        by_anchor.setdefault(anchor, []).append(unit)
    events = []
    for offset, found in enumerate(reads):
        index = block.first - forward.turning + offset
        for unit in sorted(by_anchor.get(offset, ()), key=lambda u: forward.units[u].position):
            touched = frozenset((unit, *forward.units[unit].operands))
            events.append((unit, touched, forward.between_bytes[index] + forward.units[unit].workspace))
        events.append((-1, frozenset(found), forward.other_bytes[index]))
    return events


def _highest(
    forward: ForwardUnits,
    block: Block,
    events: Sequence[tuple[int, frozenset[int], int]],
    held: frozenset[int],
) -> int:
    own = set(block.units)
    last: dict[int, int] = {}
    for index, (_, touched, _) in enumerate(events):
        last.update(dict.fromkeys(touched & own, index))
    alive = sum(forward.units[u].nbytes for u in held if u in last)
    peak = _between(forward, block)
    dying: dict[int, int] = {}
    for unit, index in last.items():
        dying[index] = dying.get(index, 0) + forward.units[unit].nbytes
    for index, (made, _, other) in enumerate(events):
        if made >= 0:
            alive += forward.units[made].nbytes
        peak = max(peak, alive + other)
        alive -= dying.get(index, 0)
    return peak
