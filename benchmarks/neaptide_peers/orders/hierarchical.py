"""Hierarchical scheduling: order blocks as wholes, then take apart those at the peak, until it falls no more.

After HMCOS (Wang et al., DAC 2022) and OPASSMem: there a block is what a concatenation post-dominates; here the
blocks are the post-dominator tree, so any network has them, and leaves are solved exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.evaluate import check_order, evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.result import FoundOrder
from neaptide.schedule.order.search.downsets import DownsetSearch, search_both_ways
from neaptide.schedule.order.search.improve import improve_peak
from neaptide.schedule.order.search.lattice import Lattice, mask_of
from neaptide.schedule.order.steps import to_steps
from neaptide.units import format_bytes
from neaptide_peers.orders.block_tree import Block, blocks, cut_to_size
from neaptide_peers.orders.lists import ALL_LISTS
from neaptide_peers.orders.macros import expand, macro_problem
from neaptide_peers.orders.windows import closures, window_problem

_LARGEST_BLOCK: Final = 64
_LEAF_STATES: Final = 400
_IDLE_ROUNDS: Final = 3  # without a lower peak; then all blocks are taken apart at once
_ROUND_STATES: Final = 1000


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    Attributes:
        groups: ops of the coarse problem.
        peak_bytes: of the best order so far.
    """

    groups: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class HierarchicalResult:
    """What hierarchical scheduling found.

    Attributes:
        order: the best order.
        rounds: with their peaks, which never rise.
    """

    order: tuple[int, ...]
    rounds: tuple[Round, ...]


def find_order(
    problem: OrderProblem,
    order: Sequence[int],  # noqa: ARG001 - of the other ways to find an order
    *,
    guard: LimitGuard,
    lower_bytes: int = 0,
) -> FoundOrder:
    """The order of the last round, with the peak after each round. Needs no order to start from.

    Args:
        problem: storages and ops.
        order: not looked at.
        guard: one unit of work per state.
        lower_bytes: stop at this peak.
    """
    found = hierarchical_order(problem, guard=guard, lower_bytes=lower_bytes)
    peaks = ", ".join(format_bytes(entry.peak_bytes) for entry in found.rounds)
    return FoundOrder(found.order, f"peak after each round: {peaks}")


def hierarchical_order(
    problem: OrderProblem,
    *,
    guard: LimitGuard,
    lower_bytes: int = 0,
    largest_block: int = _LARGEST_BLOCK,
    states: int = _ROUND_STATES,
) -> HierarchicalResult:
    """Order blocks, refine where the peak is, and so on.

    Args:
        problem: storages and ops.
        guard: one unit of work per state.
        lower_bytes: of the peak; reaching it ends the work.
        largest_block: of the first round.
        states: of the exact search of each round and direction; the last round, in which nothing is left to take
            apart, has four times as many.
    """
    work = _Hierarchy(problem, guard, lower_bytes)
    groups = cut_to_size(blocks(problem), largest_block)
    idle = 0
    while True:
        is_last = all(block.size == 1 for block in groups)
        before = work.peak
        work.round(groups, states * 4 if is_last else states)
        idle = idle + 1 if work.peak == before else 0
        if work.peak <= lower_bytes or is_last or guard.check_now() is not None:
            break
        groups = work.dissolved(groups) if idle < _IDLE_ROUNDS else cut_to_size(groups, 1)
    return HierarchicalResult(work.order, tuple(work.rounds))


class _Hierarchy:
    def __init__(self, problem: OrderProblem, guard: LimitGuard, lower_bytes: int) -> None:
        self.problem = problem
        self.guard = guard
        self.lower = lower_bytes
        self.before, _ = closures(problem)
        self.steps = to_steps(problem)
        self.leaves: dict[tuple[int, int], tuple[int, ...]] = {}
        self.order = tuple(range(problem.op_count))
        self.peak = evaluate_order(problem, self.order).peak_bytes
        self.rounds: list[Round] = []

    def round(self, groups: Sequence[Block], states: int) -> None:
        """Find the best order of these groups, and keep what it stands for if it is better.

        Then the ops around its peak are ordered exactly, across the borders of groups.
        """
        runs = [self._leaf(block) for block in groups]
        coarse = macro_problem(self.problem, runs)
        steps = to_steps(coarse)
        for method in ALL_LISTS.values():
            self._offer(expand(runs, method(coarse)))
        lower = self.lower
        if self.peak > lower:
            lattices = (Lattice(steps, reverse=reverse) for reverse in (False, True))
            search = search_both_ways(
                lattices, lower_bytes=lower, upper_bytes=self.peak, guard=self.guard, states=states
            )
            if search.order is not None:
                self._offer(expand(runs, search.order))
        polished = improve_peak(
            self.steps, self.order, guard=self.guard, lower_bytes=self.lower, states=_LEAF_STATES
        )
        self._offer(polished)
        self.rounds.append(Round(len(groups), self.peak))

    def dissolved(self, groups: Sequence[Block]) -> list[Block]:
        """Take apart the groups at the peak, those whose storages are live there, and those that follow them.

        Where none of them is a block, all blocks are taken apart: something has to give.
        """
        profile = evaluate_order(self.problem, self.order)
        assert profile.peak_position is not None
        group_of = {op: k for k, block in enumerate(groups) for op in block.members()}
        position_of = {op: p for p, op in enumerate(self.order)}
        chosen = {group_of[self.order[profile.peak_position]]}
        for storage, accessors in zip(self.problem.storages, self.problem.accessors, strict=True):
            if storage.nbytes and accessors and not storage.resident:
                spots = [position_of[op] for op in accessors]
                if spots[0] <= profile.peak_position <= max(spots):
                    chosen.update(group_of[op] for op in accessors)
        for index in sorted(chosen):
            exit_op = groups[index].exit
            chosen.update(group_of[op] for op in self.problem.successors[exit_op])
        if all(groups[index].size == 1 for index in chosen):
            chosen = set(range(len(groups)))
        refined: list[Block] = []
        for index, block in enumerate(groups):
            if index in chosen and block.size > 1:
                refined += [Block(block.exit, 1, ()), *block.children]
            else:
                refined.append(block)
        return sorted(refined, key=lambda block: block.exit)

    def _leaf(self, block: Block) -> tuple[int, ...]:
        """The best order of a block's ops on its own, right after all that it needs."""
        if block.size == 1:
            return (block.exit,)
        key = (block.exit, block.size)
        if key not in self.leaves:
            ops = block.members()
            done = mask_of(())
            for op in ops:
                done |= self.before[op]
            inner = window_problem(self.problem, done & ~mask_of(ops), ops)
            candidates = [method(inner) for method in ALL_LISTS.values()]
            best = min(candidates, key=lambda order: evaluate_order(inner, order).peak_bytes)
            search = DownsetSearch(
                Lattice(to_steps(inner)), lower_bytes=0, upper_bytes=evaluate_order(inner, best).peak_bytes
            )
            search.advance(self.guard, _LEAF_STATES)
            found = best if search.order is None else search.order
            self.leaves[key] = tuple(ops[k] for k in found)
        return self.leaves[key]

    def _offer(self, order: tuple[int, ...]) -> None:
        check_order(self.problem, order)
        peak = evaluate_order(self.problem, order).peak_bytes
        if peak < self.peak:
            self.order, self.peak = order, peak
