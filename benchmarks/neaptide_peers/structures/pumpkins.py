"""Pumpkins: a source whose one tensor several chains start from, and a sink that they end in.

When the last chain starts, the source's bytes die. What runs before that moment is a union of independent chain
beginnings, what runs after it a union of their remainders, and unions are merged exactly. So a best order is found
among the positions at which the chains stand at that moment (phase split); few positions per chain are needed, but their
combinations grow as 2^d and more in the number of chains d (Jin et al., arXiv 2312.13526).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.bounds.lower import hill_bound
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.dominant import dominant_segments
from neaptide.schedule.order.regions.segments import (
    Segment,
    canonical,
    flatten,
    merge_independent,
)
from neaptide.schedule.order.steps import Coupling, Steps, to_steps
from neaptide_peers.structures.refusal import Refusal, refuse_pins
from neaptide_peers.structures.up_heap import peak_rise


@dataclass(frozen=True, slots=True)
class Pumpkin:
    """Chains that share one tensor, from the moment when it is there to the moment when all have ended.

    Attributes:
        shared_bytes: freed when the first steps of all chains have run.
        chains: steps; `ops` of a step are what `PumpkinOrder.order` is made of.
    """

    shared_bytes: int
    chains: tuple[tuple[Segment, ...], ...]


@dataclass(frozen=True, slots=True)
class PumpkinOrder:
    """What became of a pumpkin.

    Attributes:
        order: ops in a best order; None if the limit was met.
        peak_bytes: of that order, above the bytes at the start; without one, a lower bound.
        states: downsets or splits looked at.
        reason: why there is no order; empty if there is.
    """

    order: tuple[int, ...] | None
    peak_bytes: int
    states: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WholePumpkin:
    """A problem that is a pumpkin with a run of ops before it and one after it.

    Attributes:
        before: ops up to the source, in order.
        pumpkin: the chains; `ops` of a step are ops of the problem.
        after: ops from the sink on, in order.
    """

    before: tuple[int, ...]
    pumpkin: Pumpkin
    behind: tuple[int, ...]


def pumpkin_of(problem: OrderProblem) -> WholePumpkin:
    """Read a problem as a pumpkin: one storage that all chains start from, and nothing else between them. O(size).

    Raises:
        Refusal: names the op or the storage that breaks the structure.
    """
    steps = to_steps(problem)
    refuse_pins(problem, steps)
    names = [op.name for op in problem.ops]
    after: list[list[int]] = [[] for _ in names]
    for op, earlier in enumerate(steps.predecessors):
        for other in earlier:
            after[other].append(op)
    first = [op for op, earlier in enumerate(steps.predecessors) if not earlier]
    if len(first) > 1:
        raise Refusal(
            f"op {names[first[0]]} and op {names[first[1]]} both come first: a pumpkin has one source"
        )
    before = _run(first, after, steps.predecessors)
    behind = _run([op for op, later in enumerate(after) if not later], steps.predecessors, after)[::-1]
    if len(before) == len(names):
        raise Refusal("all ops form one run: there is no op at which several chains start")
    heads = sorted(after[before[-1]])
    ends = {*before, *behind}
    for op, (earlier, later) in enumerate(zip(steps.predecessors, after, strict=True)):
        if op not in ends and (len(earlier) != 1 or len(later) > 1):
            raise Refusal(f"op {names[op]} has several ops before it or after it: it is in no chain")
    for coupling in steps.couplings:
        if list(coupling.ops) != heads:
            raise Refusal(
                f"storage {problem.storages[coupling.storage].name} may be used last by {names[coupling.ops[0]]} or "
                f"{names[coupling.ops[1]]}, and not by the first op of every chain"
            )
    chains = []
    for head in heads:
        chain = [head]
        while after[chain[-1]] and after[chain[-1]][0] not in ends:
            chain += after[chain[-1]]
        chains.append(tuple(Segment(steps.rise[op], steps.delta[op], op) for op in chain))
    shared = sum(coupling.nbytes for coupling in steps.couplings)
    return WholePumpkin(tuple(before), Pumpkin(shared, tuple(chains)), tuple(behind))


def _run(
    first: Sequence[int], onward: Sequence[Collection[int]], back: Sequence[Collection[int]]
) -> list[int]:
    """The run of ops that starts with the only one of `first`; empty if there are several."""
    run: list[int] = []
    while len(first) == 1 and len(back[first[0]]) <= 1:
        run.append(first[0])
        first = list(onward[first[0]])
    return run


def order_pumpkin(pumpkin: Pumpkin, state_limit: int, guard: LimitGuard | None = None) -> PumpkinOrder:
    """Best order of a pumpkin by search over downsets, or by phase split where that is smaller.

    Either grows exponentially in the number of chains. Above the limit the answer is a bound and the reason.

    Args:
        pumpkin: with at least one chain, none empty.
        state_limit: most downsets or splits.
        guard: charged with downsets; when it says stop the answer is a bound too.
    """
    splits = count_splits(pumpkin)
    if splits <= state_limit and splits <= 1 << len(pumpkin.chains):
        return order_by_phase_split(pumpkin)
    region, steps = pumpkin_region(pumpkin)
    result = dominant_segments(region, state_limit, guard)
    if result.segments is not None:
        items = [item for segment in result.segments for item in flatten(segment.ops)]
        order = tuple(op for item in items for op in flatten(steps[item].ops))
        return PumpkinOrder(order, peak_rise(result.segments), result.states)
    stop = None if guard is None else guard.check_now()
    if splits <= state_limit and stop is None:
        return order_by_phase_split(pumpkin)
    reason = f"{len(pumpkin.chains)} chains: more than {state_limit} downsets"
    if stop is not None:
        reason = f"{len(pumpkin.chains)} chains: stopped by the {stop} limit"
    return PumpkinOrder(None, _peak_bound(region), result.states, reason)


def pumpkin_region(pumpkin: Pumpkin) -> tuple[Steps, list[Segment]]:
    """A pumpkin as a region, and its steps by item. What follows the first step of each chain is canonical there."""
    steps: list[Segment] = []
    before: list[tuple[int, ...]] = []
    heads: list[int] = []
    for chain in pumpkin.chains:
        heads.append(len(steps))
        for position, step in enumerate((chain[0], *canonical(chain[1:]))):
            before.append((len(steps) - 1,) if position else ())
            steps.append(step)
    rise, delta = tuple(step.rise for step in steps), tuple(step.delta for step in steps)
    if len(heads) == 1:
        delta = (delta[0] - pumpkin.shared_bytes, *delta[1:])
        return Steps(rise, delta, tuple(before)), steps
    return Steps(rise, delta, tuple(before), (Coupling(pumpkin.shared_bytes, tuple(heads)),)), steps


def _peak_bound(region: Steps, cuts: int = 8) -> int:
    """Bytes above its start that no schedule of a region can do without: a cut for each of the highest items."""
    highest = sorted(range(region.op_count), key=lambda item: -region.rise[item])[:cuts]
    return max((0, *(hill_bound(region, item) for item in highest)))


def order_by_phase_split(pumpkin: Pumpkin, *, everywhere: bool = False) -> PumpkinOrder:
    """Best order over all last chains and positions of the others, however many there are.

    Args:
        pumpkin: with at least one chain, none empty.
        everywhere: try every position, not only those that are known to suffice.
    """
    best: tuple[int, ...] | None = None
    best_peak, splits = 0, 0
    for last, positions in _splits(pumpkin, everywhere=everywhere):
        splits += 1
        segments = _split_order(pumpkin, last, positions)
        peak = peak_rise(segments)
        if best is None or peak < best_peak:
            best_peak = peak
            best = tuple(op for segment in segments for op in flatten(segment.ops))
    return PumpkinOrder(best, best_peak, splits)


def _split_order(pumpkin: Pumpkin, last: int, positions: Sequence[int]) -> list[Segment]:
    """All chains up to their positions, the first step of the last one, and the rest."""
    chains = pumpkin.chains
    first = merge_independent(
        [canonical(chain[:position]) for chain, position in zip(chains, positions, strict=True)]
    )
    head = chains[last][0]
    turn = Segment(head.rise, head.delta - pumpkin.shared_bytes, head.ops)
    rests = [
        chain[position if index != last else 1 :]
        for index, (chain, position) in enumerate(zip(chains, positions, strict=True))
    ]
    return [*first, turn, *merge_independent([canonical(rest) for rest in rests])]


def count_splits(pumpkin: Pumpkin) -> int:
    """How many combinations a phase split looks at."""
    total = 0
    for threshold in _thresholds(pumpkin):
        counts = [len(_positions(chain, threshold)) for chain in pumpkin.chains]
        total += sum(prod(counts[:last] + counts[last + 1 :]) for last in range(len(counts)))
    return total


def _splits(pumpkin: Pumpkin, *, everywhere: bool) -> Iterator[tuple[int, tuple[int, ...]]]:
    chains = pumpkin.chains
    if everywhere:
        options = [[list(range(1, len(chain) + 1)) for chain in chains]]
    else:
        options = [[_positions(chain, threshold) for chain in chains] for threshold in _thresholds(pumpkin)]
    for choice in options:
        for last in range(len(chains)):
            for positions in product(*([0] if index == last else some for index, some in enumerate(choice))):
                yield last, positions


def _thresholds(pumpkin: Pumpkin) -> list[int]:
    """Heights of hills above the valleys after them, of all climbing segments, and one above them all."""
    keys = {s.rise - s.delta for chain in pumpkin.chains for s in canonical(chain[1:]) if s.delta > 0}
    return [*sorted(keys), max(keys, default=0) + 1]


def _positions(chain: Sequence[Segment], threshold: int) -> list[int]:
    """Where a chain may stand when the shared bytes die: after its first step, in steps.

    Valleys lower than all before them that lie before the highest hill; and the lowest valley of all, or the position up
    to which it climbs over hills that stand at least `threshold` above the valley after them.
    """
    level, lowest = 0, 0
    hills = [0]
    for step in chain[1:]:
        hills.append(level + step.rise)
        level += step.delta
    top = max(range(1, len(hills)), key=lambda position: hills[position], default=0)
    found: dict[int, None] = {1: None}
    level = 0
    for position, step in enumerate(chain[1:], start=1):
        level += step.delta
        if level < lowest:
            lowest = level
            if position < top:
                found[position + 1] = None
    numbered = [Segment(step.rise, step.delta, position) for position, step in enumerate(chain[1:])]
    climbed = 1
    for segment in canonical(numbered):
        if segment.delta > 0 and segment.rise - segment.delta < threshold:
            break
        climbed += len(flatten(segment.ops))
    found[climbed] = None
    return list(found)
