"""Grow a joint program: solve it, drop what does not bind, add what its answer breaks, several things a round.

An answer carried out says at which steps it is above the budget; those become steps of the program. What the windows
and rows of the program so far bring is kept: a window that new steps cut in two stays as a longer one. So the bound
never falls, but for what the solver's tolerances take for not binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from neaptide.linear.arrays import Flags, Floats
from neaptide.linear.tolerances import HALF, NEARLY, NOTHING
from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.bounds.joint_lifetimes import joint_profile
from neaptide.planner.recompute.bounds.joint_program import JointProgram, JointSolution, RoundedRow, Window
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.recompute.settings import SETTINGS

_MISSES: Final = 2  # rounds in a row that bring hardly anything are the last
_ROWS: Final = 8  # for whole numbers, that a round adds at each binding step
_DIVISOR_PARTS: Final = (
    1.0,
    2.0,
    3.0,
)  # divisors of such rows are sizes of storages held in part, over these
# Remainders of the room this close to whole are whole: they would be stretched by rounding errors. A row must be broken by
# as many multiples of its divisor.
_LEAST_PART: Final = 1e-3
# Coefficients and room give this share away, far more than floating point errs.
_SLACK: Final = 1e-12
# Divisors that are smaller than this share of the largest storage make rows that no solver takes exactly.
_LEAST_DIVISOR: Final = 1e-6


@dataclass(frozen=True, slots=True)
class JointAnswer:
    """A program that has been solved in fractions."""

    program: JointProgram
    solution: JointSolution


class JointRounds:
    """The rounds of one search.

    Attributes:
        best: the answer with the largest bound so far.
        is_infeasible: some program has no answer.
    """

    def __init__(self, tables: StepTables, budget_bytes: int, guard: LimitGuard | None) -> None:
        self.best: JointAnswer | None = None
        self.is_infeasible = False
        self._tables = tables
        self._budget = budget_bytes
        self._guard = guard

    def ask(
        self, positions: Sequence[int], windows: Iterable[Window] = (), rows: Iterable[RoundedRow] = ()
    ) -> JointAnswer | None:
        """The answer at some steps; None where there is none, where it would take too long, or where time is up."""
        if self.is_infeasible or (self._guard is not None and self._guard.check_now()):
            return None
        program = JointProgram(self._tables, positions, self._budget, windows=windows, rounded=rows)
        if program.size > 2 * SETTINGS.most_nodes and len(positions) > 1:
            return None
        solution = program.relax(None if self._guard is None else self._guard.remaining_s())
        self.is_infeasible = solution.is_infeasible
        if not solution.held:
            return None
        answer = JointAnswer(program, solution)
        if self.best is None or solution.bound > self.best.solution.bound:
            self.best = answer
        return answer

    def run(self, positions: Iterable[int]) -> None:
        """Grow the program of some positions, each with the window from it to the end."""
        end = len(self._tables.order)
        steps = set(positions)
        windows: set[Window] = {(position, end) for position in steps}
        rows: list[RoundedRow] = []
        misses = 0
        while misses < _MISSES:
            least = 0.0 if self.best is None else self.best.solution.bound
            answer = self.ask(sorted(steps), windows, rows)
            if answer is None:
                return
            program, solution = answer.program, answer.solution
            misses = 0 if solution.bound > least * (1.0 + SETTINGS.hardly_more) else misses + 1
            kept = program.binding(solution)
            added = worst_steps(self._tables, self._budget, answer, max(2, len(kept) // 2))
            half = -(-len(program.positions) // 2)
            broken = broken_windows(self._tables, program.positions, solution, half)
            new_rows = self._new_rows(program, solution)
            if not added and not broken and not new_rows:
                return
            steps = {*kept, *added}
            windows = {*program.binding_windows(), *broken, *_cut_in_two((*kept, end), added)}
            rows = [*program.binding_rows(), *new_rows]

    def _new_rows(self, program: JointProgram, solution: JointSolution) -> list[RoundedRow]:
        found: list[RoundedRow] = []
        for k, position in enumerate(program.positions):
            if solution.multipliers[k] > 0.0:
                held = solution.held[k]
                found += rounded_rows(self._tables, position, self._budget, held, _ROWS)
        return found


def worst_steps(tables: StepTables, budget_bytes: int, answer: JointAnswer, most: int) -> list[int]:
    """Steps at which an answer is above the budget, worst first, apart from each other, without its own."""
    program = answer.program
    profile = joint_profile(tables, program.positions, answer.solution)
    is_above = tables.profile > budget_bytes
    excess = np.where(is_above, profile - budget_bytes * (1.0 + NEARLY), 0.0)
    excess[list(program.positions)] = 0.0
    found: list[int] = []
    while len(found) < most and float(excess.max(initial=0.0)) > 0.0:
        worst = int(excess.argmax())
        found.append(worst)
        excess[max(worst - SETTINGS.apart, 0) : worst + SETTINGS.apart + 1] = 0.0
    return found


def _cut_in_two(ends: Sequence[int], added: Sequence[int]) -> list[Window]:
    """The windows between neighbours that new steps lie in."""
    return [
        (start, end) for start, end in pairwise(ends) if any(start < position < end for position in added)
    ]


def broken_windows(
    tables: StepTables, positions: Sequence[int], solution: JointSolution, most: int
) -> list[Window]:
    """The windows over several others whose rules an answer breaks most. O(steps^2 x size of the problem).

    What is used in a window, or held at its end, has to run again to the share that it is not held at the beginning;
    so has, in turn, what a node needs that runs again. Where that is more than runs again in all parts of the window,
    it is broken, by that many seconds.
    """
    ends = [*positions, len(tables.order)]
    operands: list[list[int]] = [[] for _ in tables.order]
    for node, storage in zip(*(array.tolist() for array in tables.repeat), strict=True):
        if tables.may_repeat[node] and tables.creator[storage] >= 0:
            operands[node].append(storage)
    least = NOTHING * float(tables.seconds.sum())
    found: list[tuple[float, Window]] = []
    for k, start in enumerate(positions):
        if k + 2 >= len(ends):
            break
        asked = _asked(tables, ends, k, solution, operands)
        again = np.cumsum(np.stack(solution.again[k:]), axis=0)[1:]
        broken = (np.maximum(asked - again, 0.0) * tables.seconds).sum(axis=1)
        found += [
            (-float(by), (start, end)) for by, end in zip(broken, ends[k + 2 :], strict=True) if by > least
        ]
    return [window for _, window in sorted(found)[:most]]


def _asked(
    tables: StepTables, ends: Sequence[int], k: int, solution: JointSolution, operands: list[list[int]]
) -> Floats:
    """By end of a longer window from the k-th step and by node, the share to which it has to run again."""
    start, count = ends[k], len(tables.order)
    made = tables.made_before(start)
    held = solution.held[k]
    asked = np.zeros((len(tables.position), len(ends) - k - 2))
    for column, end in enumerate(ends[k + 2 :]):
        later = tables.is_output.astype(np.float64) if end == count else solution.held[k + 2 + column]
        wanted = np.maximum(tables.used_within(start, end), later) - held
        storages = np.flatnonzero(made & (wanted > NOTHING))
        np.maximum.at(asked[:, column], tables.creator[storages], wanted[storages])
    for node in tables.order[:start][::-1].tolist():
        share = asked[node]
        if share.any():
            for storage in operands[node]:
                creator = asked[tables.creator[storage]]
                np.maximum(creator, share - held[storage], out=creator)
    return asked.T


def rounded_rows(
    tables: StepTables, position: int, budget_bytes: int, held: Floats, most: int
) -> list[RoundedRow]:
    """The rows of a step that an answer breaks most, in proportion to their length. O(divisors x storages).

    Rows that fractions break and whole numbers obey: bytes rounded to multiples of a storage's size. What is held across a
    step fits into its room. If nearly everything has the same size, as many as go into the room whole are held at most; in
    fractions a part of one more is. Mixed-integer rounding says the same for any sizes and any divisor: with the room's
    remainder f, the part of a coefficient above its whole multiple counts from f on, stretched (Nemhauser and Wolsey, "A
    recursive procedure to generate all cuts for 0-1 mixed integer programs", 1990). Storages that are mostly held count as
    what is dropped of them, which makes other rows of the same bytes. By storage, `held` is the share held across the step.
    """
    storages = np.flatnonzero(tables.made_before(position))
    sizes = tables.sizes[storages].astype(np.float64)
    shares = np.clip(held[storages], 0.0, 1.0)
    room = float(budget_bytes - int(tables.fixed_bytes[tables.order[position]]))
    in_part = (shares > NEARLY) & (shares < 1.0 - NEARLY) & (sizes > 0.0)
    divisors = np.unique(np.concatenate([sizes[in_part] / part for part in _DIVISOR_PARTS]))
    divisors = divisors[divisors >= _LEAST_DIVISOR * sizes.max(initial=0.0)]
    found: list[tuple[float, float, RoundedRow]] = []
    for is_dropped in (shares > HALF, shares >= 1.0 - NEARLY):
        for divisor in divisors.tolist():
            coefficients, upper = _rounded(sizes, room, divisor, is_dropped)
            excess = float(coefficients @ shares) - upper
            if excess > _LEAST_PART:
                row = RoundedRow(position, storages, coefficients * divisor, upper * divisor)
                found.append((excess / float(np.linalg.norm(coefficients)), divisor, row))
    found.sort(key=lambda entry: (-entry[0], entry[1]))
    return [row for _, _, row in found[:most]]


def _rounded(sizes: Floats, room: float, divisor: float, is_dropped: Flags) -> tuple[Floats, float]:
    """A row for whole shares x: coefficients and the most that their sum is; no row is zeros and zero.

    With y = 1 - x where `is_dropped`, else x, bytes say: sum of c y <= b, where c is the size, negative for what is
    dropped, and b the room less what is dropped of, both by the divisor. Then sum of F(c) y <= floor(b), where
    F(c) = floor(c) + max(frac(c) - f, 0) / (1 - f) and f = frac(b). Smaller c and larger b only weaken the bytes, so
    floating point errors are covered by some slack, and F is continuous where c passes a whole number.
    """
    signed = np.where(is_dropped, -sizes, sizes) / divisor
    signed -= _SLACK * np.maximum(np.abs(signed), 1.0)
    bound = (room - float(sizes[is_dropped].sum())) / divisor
    bound += _SLACK * max(abs(room), float(sizes.sum()), divisor) / divisor
    whole = np.floor(bound)
    remainder = bound - whole
    if not _LEAST_PART < remainder < 1.0 - _LEAST_PART:
        return np.zeros(len(sizes)), 0.0
    below = np.floor(signed)
    counted = below + np.maximum(signed - below - remainder, 0.0) / (1.0 - remainder)
    return np.where(is_dropped, -counted, counted), float(whole - counted[is_dropped].sum())
