"""What the choice of stays on the host is tuned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSettings:
    """Settings of the search, of its linear program and of its bound.

    `benchmarks/ablation.py offload_settings` measures what half and twice of each number cost and win.

    Attributes:
        uses: how busy the engines may be, in each round: copies of an answer stand in each other's way more than its
            rows know.
        most_gaps: that the program chooses from: the largest times how long they last.
        cells: stretches that time is cut into; the program has a row for each run of them and each engine.
        slacks: how many cells later than it could each copy is done, in the ways of being away that a gap begins with.
        new_items: repetitions that join the program in a round.
        tries: units of work of a linear program: an exchange is one.
        state_part: state of the step takes this part of `most_gaps`, beside the others.
        most_swaps: exchanges of recomputations and stays that are tried in a program of `nodes` nodes.
        nodes: exchanges cost by positions: programs with fewer nodes have more of them, and none has less than half.
        misses: exchanges in a row that bring nothing end a round of them.
        rounds: of placing stays: waiting shifts all that follows, and with it what a copy hides behind.
        hopeless: share of the waiting of a first placing that is left in the end, at least, when a search tries a change.
        bound_steps: positions above the budget that the bound looks at, beside the highest.
        bound_windows: of time for each engine there, on either side.
        most_starts: plans that exchanges begin with, beside those that are known.
        most_sweeps: rounds of exchanges for each of them.
        chain_nodes: steps of at most so many nodes have the answers of the chain program as well. It moves all that crosses
            between two blocks together, so in larger steps the other answers are better.
        most_blocks: that a step is cut into for the chain program, each in turn.
        shares: nominal budgets of the chain program, as multiples of the one that is meant, up to its reach.
        most_labels: that the chain program keeps in front of a block.
        slots: that the budget is cut into where it has more labels: of those in one slot the fastest stays.
        most_rooms: that it tries for blocks of which nothing is held.
        halvings: of what is open between the lowest peak that was found and the highest that was not.
    """

    uses: tuple[float, ...] = (1.0, 0.9, 0.8, 0.65)
    most_gaps: int = 400
    state_part: int = 4
    cells: int = 20
    slacks: tuple[tuple[int, int], ...] = ((0, 0), (1, 1), (3, 3))
    new_items: int = 60
    tries: int = 50
    most_swaps: int = 300
    nodes: int = 2000
    misses: int = 40
    rounds: int = 24
    hopeless: float = 0.4
    bound_steps: int = 4
    bound_windows: int = 12
    most_starts: int = 3
    most_sweeps: int = 8
    chain_nodes: int = 100
    most_blocks: tuple[int, ...] = (8, 16, 48)
    shares: tuple[float, ...] = (1.0, 0.95, 0.9, 0.8, 0.7, 1.05, 1.1, 1.2, 1.3, 1.45, 1.6, 1.75)
    most_labels: int = 400
    slots: int = 256
    most_rooms: int = 24
    halvings: int = 8


SETTINGS: Final = OffloadSettings()
