"""What the searches for recomputations are tuned with: one frozen object, read by every search of the room.

A setting stands here when more than one search reads it, or when it decides how much of a search is run.
`benchmarks/ablation.py recompute_settings` measures what half and twice of each number cost and win. Bounds of time and
memory of one module stand there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeSettings:
    """Settings of all searches.

    Shares of time are of the baseline's seconds. Tries are changes of a sequence that are evaluated, a few ten thousand a
    second on 500 nodes.

    Attributes:
        proved: a plan this close to its bound is the fastest: sums of seconds err by about as much.
        close_enough: a plan this close to its bound is not searched further; a hundredth of a per cent is below what
            times of operations repeat to.
        lower_order: another order counts where it lowers the peak to this share; proofs and plans of another order
            cannot be compared, so a smaller gain is not worth the change.
        order_work: states and cuts of the search for that order, times nodes: less than a second.
        descent_tries_per_node: of one descent of many. A descent that works needs one or two a node, one that thrashes
            takes any number.
        least_descent_tries: in a small program.
        polish_tries: of one search that descends from a whole order, or improves a plan.
        curve_tries_per_node: of all descents behind the floor of a curve together.
        worth_most: part of the baseline's time that a gap of one budget of a curve counts for at most.
        hold_share: an operand is held on to rather than recomputed where it is at most this part of what it helps to make.
        worthwhile: storages below this share of the bytes above the budget are left alone while larger ones can go.
        most_executions: of one node; ends a descent where every drop requires another.
        stalls: so many in a row that hardly bring anything are the last: descents on the way to the floor, rounds of a
            bound; and turns to costly strategies.
        hardly_more: a bound or a peak that is better by less than this share is hardly so.
        floor_shares: of the range from the floor up: there the closure model plans where these descents begin.
        floor_chains: lowest plans of the chain program from which they begin as well.
        parts: a search among several may use at most one of so many parts of the work that is left.
        not_far_behind: a plan of another order that recomputes this much more may still overtake the best; a bound on a
            bound is believed up to this much above what is proved.
        turns: of ruin and prices, at most; prices ask for so many answers twice in each.
        misses: so many attempts in a row that have not helped are enough.
        least_progress: an attempt that closes less than this share of a gap has not helped.
        whole_nodes: of branch and bound, for one of many programs in whole numbers.
        apart: steps this close to one that has been looked at say the same.
        looks: of the bounds: budgets that choose steps, each of them after the first one so many-th of the steps; programs
            for a budget more; positions of the floor; proofs where a bound crosses a limit.
        first_steps: where the bounds look first: so many of the highest steps and of those at which the backward begins,
            and twice as many evenly over all that are above the budget. Rounds of several steps begin with half as many.
        bound_misses: steps in a row that raise no bound before one step alone is settled.
        rows_a_step: rows for whole numbers that a round adds at each binding step.
        divisor_parts: divisors of such rows are the sizes of storages that are held in part, over these.
        whole_levels: up to how many variables a bound is proved in whole numbers, ascending, and how far above its bound
            in fractions they are looked for, as a share of it; the less, the more is fixed beforehand.
        most_nodes: larger programs are not asked in whole numbers, nor at several steps together; those of half as many
            nodes are cut into blocks once, into as many as the cuts of `blocks` together for so many nodes.
        closure_shares: of the room at a step: smaller ones leave room for what runs again elsewhere.
        delays: places of an update that are tried when the first is too early: so many other nodes further on.
        ruin_shares: of the recomputations that are taken back at once.
        ruin_slacks: of what a round of ruin and recreate may be above its prices.
        ruin_noise: by which its prices are shifted.
        answers: of one program over a pool of repetitions, each with rows for as many moments that the last was above at.
        whole_answers: the same in whole numbers: dear, and what is broken by little is repaired behind.
        many_rows: of moments; where there are more, those that do not bind are forgotten.
        items_at_once: repetitions that join a pool at once at least, and that are free at once in whole numbers; a program
            in whole numbers is charged for as many tries.
        slack: what costs up to so many times what it saves joins the pool when nothing better is left.
        whole_entries: rows of bytes times variables of a pool that is tried in whole numbers as a whole, and times twice
            the free items of a part: what takes the solver tenths of a second.
        entries_per_try: of a program; each try is one unit of work.
        light_part: what is so many times smaller than the largest unit does not count as crossing a cut between blocks.
        options: of a block in the chain program, chosen from four times as many drops and half as many closure models.
        blocks: of the chain program, at most, for each cut that is tried.
        slots: of the table of a chain program, over all budgets.
        reach: largest budget that it is asked for, as a multiple of the one that is wanted: it charges worst cases.
        nominal_shares: of the wanted budget, for which it is asked.
        ladder_tables: of the ladder that a curve begins with: blocks, and the part of the highest budget that the table
            reaches up to; the smaller one has finer slots.
        rungs: plans of the ladder for each table; budgets that are worked on behind it.
        costly_budgets: that are worked on with more effort at a time.
        costly_part: of what is open, one in so many is asked for there at once, since what fails costs most.
        whole_work: a closure model in whole numbers is charged for so many in fractions.
        nodes_per_try: of a closure that is repeated; each try is one unit of work.
    """

    proved: float = 1e-8
    close_enough: float = 1e-4
    lower_order: float = 0.99
    order_work: int = 500_000
    descent_tries_per_node: int = 5
    least_descent_tries: int = 1000
    polish_tries: int = 15_000
    curve_tries_per_node: int = 100
    worth_most: float = 0.02
    hold_share: float = 1 / 16
    worthwhile: float = 0.002
    most_executions: int = 8
    stalls: int = 2
    hardly_more: float = 1e-3
    floor_shares: tuple[float, ...] = (1.0, 0.45, 0.3)
    floor_chains: int = 2
    parts: int = 4
    not_far_behind: float = 1.25
    turns: int = 6
    misses: int = 4
    least_progress: float = 0.1
    whole_nodes: int = 1
    apart: int = 6
    looks: int = 4
    first_steps: int = 8
    bound_misses: int = 6
    rows_a_step: int = 8
    divisor_parts: tuple[float, ...] = (1.0, 2.0, 3.0)
    whole_levels: tuple[tuple[int, float], ...] = ((400, 0.1), (2500, 0.002))
    most_nodes: int = 3000
    closure_shares: tuple[float, ...] = (0.96, 0.92, 0.85, 0.78, 0.7, 0.62, 0.55)
    delays: tuple[int, ...] = (0, 4, 16, 64, 256)
    ruin_shares: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    ruin_slacks: tuple[float, ...] = (0.0, 0.0, 0.1, 0.5)
    ruin_noise: float = 0.5
    answers: int = 8
    whole_answers: int = 2
    many_rows: int = 60
    items_at_once: int = 100
    slack: float = 2.0
    whole_entries: int = 8000
    entries_per_try: int = 50
    light_part: int = 64
    options: int = 16
    blocks: tuple[int, ...] = (8, 16)
    slots: int = 400
    reach: float = 1.75
    nominal_shares: tuple[float, ...] = (1.0, 0.97, 0.94, 1.06, 1.1, 1.3, 1.45)
    ladder_tables: tuple[tuple[int, int], ...] = ((8, 1), (16, 1), (16, 4))
    rungs: int = 20
    costly_budgets: int = 3
    costly_part: int = 4
    whole_work: int = 4
    nodes_per_try: int = 8

    @property
    def contradiction(self) -> float:
        """A bound that is above a plan by more is wrong, and is not shown."""
        return 100 * self.proved

    @property
    def near(self) -> float:
        """A plan this close to its bound needs no search on the whole graph beside the one by blocks."""
        return 5 * self.close_enough

    @property
    def far(self) -> float:
        """A plan further from its bound is worth the costly searches: blocks, ruin and recreate, certificates."""
        return 30 * self.close_enough

    @property
    def least_rise(self) -> float:
        """A bound that rises by less than this share has not risen."""
        return self.close_enough / 5

    @property
    def quick_tries(self) -> int:
        """Of the first look at prices."""
        return self.polish_tries // 6

    @property
    def floor_progress(self) -> float:
        """A descent that lowers the peak by less than this share has hardly done so; floors are proved as closely."""
        return 10 * self.hardly_more


SETTINGS: Final = RecomputeSettings()
"""Those of every search."""
