"""Binomial checkpointing (Griewank and Walther 2000, Revolve) on the blocks of a step, taken as equal.

With c places for what enters a block, l blocks are reversed with the least number of blocks run again: place one
j blocks ahead, reverse what lies after it with one place less, then the first j with all of them. The number of
places is searched; the simulated peak decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache
from math import comb
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.plans import BackwardPart, chain_of, hand_back, parts_of
from neaptide_peers.strategies.tables import conclude

NAME: Final = "revolve"
_MOST_BLOCKS: Final = 64
_PLACES: Final = (*range(1, 17), 20, 24, 28, 32, 40, 48, 64, 96)


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best number of places for the budget. O(blocks x recomputations x steps)."""
    guard = LimitGuard(limits, interrupt)
    chain = chain_of(problem, _MOST_BLOCKS)
    if isinstance(chain, str):
        return hand_back(problem, guard, NAME, chain)
    detail = f"{len(chain.blocks)} blocks"
    return conclude(problem, guard, NAME, chain.forward, _tables(chain), detail, first_fit=True)


def least_runs(blocks: int, places: int) -> int:
    """Blocks run forward, besides in their backward, to reverse a chain; the input takes one of the places.

    >>> least_runs(5, 1), least_runs(10, 3)
    (10, 15)
    """
    rounds = 0
    while comb(places + rounds, places) < blocks:
        rounds += 1
    return rounds * blocks - (comb(places + rounds, rounds - 1) if rounds else 0)


@cache
def first_place(blocks: int, places: int) -> int:
    """How far ahead the first place is used, for at least two blocks and two places."""

    def runs(ahead: int) -> int:
        return ahead + least_runs(blocks - ahead, places - 1) + least_runs(ahead, places)

    return min(range(1, blocks), key=runs)


def _places(blocks: int) -> list[int]:
    """Numbers of places to try, falling; a few of them where they are many."""
    return sorted({min(places, blocks) for places in _PLACES}, reverse=True)


def _tables(chain: BlockChain) -> Iterator[list[BackwardPart]]:
    count = len(chain.blocks)
    # Fewer places are slower and need less, so the first table that fits is the best.
    for places in _places(count):
        held: list[set[int]] = [set() for _ in chain.blocks]
        held[-1].update(chain.blocks[-1].reads.difference(chain.blocks[-1].leaving))
        waiting = [(0, count - 1, places)]
        while waiting:
            a, b, free = waiting.pop()
            if a == b or free == 1:
                continue
            cut = a + first_place(b - a + 1, free)
            # What runs again for the backward of b is found only by those that follow it.
            for phase in range(cut, b + 1 if b == count - 1 else b):
                held[phase].update(chain.blocks[cut].entering)
            waiting += [(cut, b, free - 1), (a, cut - 1, free)]
        yield parts_of(chain, held)
