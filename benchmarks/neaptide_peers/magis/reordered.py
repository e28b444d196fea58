"""Ordering anew after a change, as MAGIS does: around what changed, exactly in small blocks, the rest as it was.

Chen et al., MAGIS (ASPLOS 2024), algorithm 2: incremental scheduling. The number of operations that may run beside another
says where a stretch of a sequence may end, and where it falls into blocks. Each block is ordered by Serenity's dynamic program
(`peers.orders.serenity_dp`). What is not connected is interleaved by the rule of Liu (`schedule.order.regions.merge`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Final

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.segments import Segment, canonical, flatten, merge_independent
from neaptide.schedule.order.search.lattice import mask_of
from neaptide.schedule.problem import StepProblem
from neaptide_peers.magis.executions import executions_problem
from neaptide_peers.orders.serenity_dp import downset_dp
from neaptide_peers.orders.windows import bytes_between, closures, window_problem

LONGEST_EXTENSION: Final = 20
FEW_OPS: Final = 10
NARROW: Final = 4
LARGEST_BLOCK: Final = 20
_CUT: Final = 1
_BLOCK_STATES: Final = 2_000


class Reordering:
    """Orders sequences anew; blocks that are alike are ordered once.

    Args:
        interrupt: set it to keep what is not ordered yet as it is.
    """

    def __init__(self, interrupt: threading.Event | None = None) -> None:
        self.guard = LimitGuard(Limits(), interrupt)
        self._known: dict[OrderProblem, tuple[int, ...]] = {}

    def sequence(self, step: StepProblem, sequence: Sequence[int], changed: Iterable[int]) -> tuple[int, ...]:
        """A legal sequence of the same executions, with a lower peak; the given one where none is found.

        Each execution sees the instances of storages that it saw before. At least
        O(executions x executions / word), and at most so many downsets for each block.

        Args:
            step: the program as integers.
            sequence: of its nodes, legal; a repeated one is a recomputation.
            changed: positions around which it is ordered anew.
        """
        around = sorted(set(changed))
        if not around:
            return tuple(sequence)
        problem = executions_problem(step, sequence)
        before, after = closures(problem)
        start, end = interval(beside(before, after), around[0], around[-1] + 1)
        given = tuple(range(len(sequence)))
        profile = evaluate_order(problem, given)
        position = profile.peak_position
        if position is None or not start <= position < end:
            return tuple(sequence)  # what stands outside stays as high as it is
        window = window_problem(problem, mask_of(given[:start]), given[start:end])
        inner = [start + op for op in self.order(window)]
        order = (*given[:start], *inner, *given[end:])
        if evaluate_order(problem, order).peak_bytes >= profile.peak_bytes:
            return tuple(sequence)
        return tuple(sequence[op] for op in order)

    def order(self, problem: OrderProblem) -> tuple[int, ...]:
        """All ops of a problem: exact in each block, blocks that are not connected interleaved by Liu's rule.

        Args:
            problem: of a stretch of a sequence.
        """
        before, after = closures(problem)
        runs = [
            [op for block in blocks(component, before, after) for op in self._block(problem, block, before)]
            for component in components(problem)
        ]
        if len(runs) == 1:
            return tuple(runs[0])
        return tuple(
            op for segment in merge_independent(_profiles(problem, runs)) for op in flatten(segment.ops)
        )

    def _block(self, problem: OrderProblem, ops: Sequence[int], before: Sequence[int]) -> Sequence[int]:
        """The ops of a block in the order with the lowest peak; as they are where that is none lower."""
        if all(before[other] >> op & 1 for op, other in pairwise(ops)):
            return ops
        alone = _alone(problem, ops, before)
        if alone not in self._known:
            peak = evaluate_order(alone, range(len(ops))).peak_bytes
            found = downset_dp(alone, self.guard, upper_bytes=peak, most_states=_BLOCK_STATES)
            self._known[alone] = tuple(range(len(ops))) if found is None else found
        return [ops[k] for k in self._known[alone]]


def beside(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """How many ops may run before or after each, whichever is wanted: MAGIS's nw.

    Args:
        before: by op, the set of all that must run before it.
        after: by op, the set of all that must run after it.
    """
    count = len(before)
    return [
        count - 1 - early.bit_count() - late.bit_count() for early, late in zip(before, after, strict=True)
    ]


def interval(width: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """The stretch that is ordered anew: what changed, extended at either end to where fewer ops may run beside.

    An end moves on while it has moved by fewer than 20 positions and the number of ops beside falls strictly, if more than
    10 ops are in the stretch or fewer than 4 may run beside the one that comes in.

    Args:
        width: by position, how many ops may run beside the one there.
        start: position of the first that changed.
        end: one past the last that changed.

    >>> interval([3, 1, 2, 3, 5, 4, 2, 2], 3, 4)
    (1, 4)
    """
    first, last = start, end - 1

    def goes_on(now: int, to: int, moved: int) -> bool:
        return (
            moved < LONGEST_EXTENSION
            and (last - first + 1 > FEW_OPS or width[to] < NARROW)
            and width[to] < width[now]
        )

    while first > 0 and goes_on(first, first - 1, start - first):
        first -= 1
    while last + 1 < len(width) and goes_on(last, last + 1, last + 1 - end):
        last += 1
    return first, last + 1


def components(problem: OrderProblem) -> list[list[int]]:
    """Ops that are connected by what must come first, ascending."""
    leader = list(range(problem.op_count))

    def find(op: int) -> int:
        while leader[op] != op:
            leader[op] = leader[leader[op]]
            op = leader[op]
        return op

    for op, earlier in enumerate(problem.predecessors):
        for other in earlier:
            leader[find(op)] = find(other)
    found: dict[int, list[int]] = {}
    for op in range(problem.op_count):
        found.setdefault(find(op), []).append(op)
    return list(found.values())


def blocks(component: Sequence[int], before: Sequence[int], after: Sequence[int]) -> list[list[int]]:
    """A component in pieces that run one after the other, each up to an op beside which one other may run at most.

    Args:
        component: ops that are connected, ascending.
        before: by op, the set of all that must run before it.
        after: by op, the set of all that must run after it.
    """
    inside = mask_of(component)
    found: list[list[int]] = [[]]
    for op in component:
        found[-1].append(op)
        width = len(component) - 1 - ((before[op] | after[op]) & inside).bit_count()
        if width <= _CUT or len(found[-1]) == LARGEST_BLOCK:
            found.append([])
    return [block for block in found if block]


def _alone(problem: OrderProblem, ops: Sequence[int], before: Sequence[int]) -> OrderProblem:
    """The problem of running some ops right after all that they need, without what is there all the time."""
    done = 0
    for op in ops:
        done |= before[op]
    found = window_problem(problem, done & ~mask_of(ops), ops)
    *touched, background = found.storages
    return OrderProblem((*touched, replace(background, nbytes=0)), found.ops)


def _profiles(problem: OrderProblem, runs: Sequence[Sequence[int]]) -> list[list[Segment]]:
    """What each of some runs of ops adds and takes away, canonical, as they are played one run after the other.

    Bytes that several of them use are counted where they then come and go.
    """
    order = [op for ops in runs for op in ops]
    hills, levels = evaluate_order(problem, order).bytes_at, bytes_between(problem, order)
    single = iter(
        [
            Segment(hill - level, follows - level, op)
            for op, hill, level, follows in zip(order, hills, levels[:-1], levels[1:], strict=True)
        ]
    )
    return [canonical(list(islice(single, len(ops)))) for ops in runs]
