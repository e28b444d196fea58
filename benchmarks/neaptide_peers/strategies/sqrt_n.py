"""Sublinear memory (Chen et al. 2016): segments of about equal bytes, each recomputed as a whole in its backward.

The forward part is scanned; the bytes that it makes are added up, and where they exceed b and little crosses, the
segment is closed. With n equal blocks and sqrt(n) segments about 2 sqrt(n) blocks are live, for one more forward.
What is live beside the segments differs between programs, so b is searched and the simulated peak decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.plans import chain_of, hand_back
from neaptide_peers.strategies.segments import segments_table
from neaptide_peers.strategies.tables import conclude

NAME: Final = "sqrt_n"
_MOST_BLOCKS: Final = 200
_SEGMENTS: Final = 24
"""Most numbers of segments that are tried."""


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The best number of segments for the budget. O(numbers tried x recomputations x steps)."""
    guard = LimitGuard(limits, interrupt)
    chain = chain_of(problem, _MOST_BLOCKS)
    if isinstance(chain, str):
        return hand_back(problem, guard, NAME, chain)
    tables = (segments_table(chain, starts) for starts in segmentations(chain))
    return conclude(problem, guard, NAME, chain.forward, tables, f"{len(chain.blocks)} places to cut")


def segmentations(chain: BlockChain) -> Iterator[tuple[int, ...]]:
    """First blocks of the segments, for rising numbers of segments of about equal bytes; each choice once."""
    made = [chain.forward.nbytes(block.units) for block in chain.blocks]
    seen: set[tuple[int, ...]] = set()
    for count in _counts(len(made)):
        limit = sum(made) / count
        starts = [0]
        filled = 0
        for block, nbytes in enumerate(made):
            # Closed where this ends nearer to the limit than the next block would.
            if block and filled + nbytes / 2 > limit:
                starts.append(block)
                filled = 0
            filled += nbytes
        if len(starts) > 1 and tuple(starts) not in seen:
            seen.add(tuple(starts))
            yield tuple(starts)


def _counts(blocks: int) -> list[int]:
    """Numbers of segments to try, at most `_SEGMENTS`, denser where they are small."""
    if blocks <= _SEGMENTS:
        return list(range(2, blocks + 1))
    return sorted({round(2 * (blocks / 2) ** (k / (_SEGMENTS - 1))) for k in range(_SEGMENTS)})
