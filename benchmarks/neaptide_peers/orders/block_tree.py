"""Blocks of a problem: sets of ops that leave by one op, nested in one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.schedule.order.problem import OrderProblem

_EXIT: Final = -1


@dataclass(frozen=True, slots=True)
class Block:
    """An op and all that it post-dominates: every way on from a member passes through the exit.

    Attributes:
        exit: the op by which it leaves.
        size: number of ops.
        children: the blocks that are left when the exit is taken out.
    """

    exit: int
    size: int
    children: tuple[Block, ...]

    def members(self) -> list[int]:
        """All ops, ascending."""
        found: list[int] = []
        waiting = [self]
        while waiting:
            block = waiting.pop()
            found.append(block.exit)
            waiting += block.children
        return sorted(found)


def post_dominators(problem: OrderProblem) -> list[int]:
    """For each op the nearest op that every way to the end passes through; -1 for none. O(edges x depth)."""
    depth = {_EXIT: 0}
    nearest = [_EXIT] * problem.op_count
    for op in reversed(range(problem.op_count)):
        spot: int | None = None
        for following in problem.successors[op]:
            spot = following if spot is None else _meet(spot, following, nearest, depth)
        nearest[op] = _EXIT if spot is None else spot
        depth[op] = depth[nearest[op]] + 1
    return nearest


def blocks(problem: OrderProblem) -> tuple[Block, ...]:
    """The forest of blocks: the post-dominator tree, without the end itself."""
    children: list[list[Block]] = [[] for _ in range(problem.op_count)]
    roots: list[Block] = []
    for op, nearest in enumerate(post_dominators(problem)):
        block = Block(op, 1 + sum(child.size for child in children[op]), tuple(children[op]))
        (roots if nearest == _EXIT else children[nearest]).append(block)
    return tuple(roots)


def cut_to_size(forest: Sequence[Block], most: int) -> list[Block]:
    """The largest blocks of at most `most` ops; larger ones are taken apart, their exits stand alone."""
    found: list[Block] = []
    waiting = list(forest)
    while waiting:
        block = waiting.pop()
        if block.size <= most:
            found.append(block)
        else:
            found.append(Block(block.exit, 1, ()))
            waiting += block.children
    return sorted(found, key=lambda block: block.exit)


def _meet(a: int, b: int, nearest: Sequence[int], depth: dict[int, int]) -> int:
    while a != b:
        if depth[a] >= depth[b]:
            a = nearest[a]
        else:
            b = nearest[b]
    return a
