"""Large-neighbourhood search on the recomputations: take some back, come down again at other prices, keep what is better.

After Schrimpf et al. 2000 (ruin and recreate). What is taken back is a run of neighbours in time, which frees the
choice around one step, or a random sample, which frees a little everywhere.
"""

from __future__ import annotations

import random
import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.recomputations import recompute_units
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute, noisy_factors
from neaptide.schedule.evaluate import Evaluator

NAME: Final = "ruin_recreate"


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start, which has recomputations, with better ones. Never worse than the start by `PlannedSequence.rank`.

    All choices are drawn with `limits.seed`. O(rounds x (drops + recomputations) x steps).
    """
    guard = LimitGuard(limits, interrupt)
    step = problem.step
    draw = random.Random(limits.seed)  # noqa: S311 - no secrets here
    reached = Evaluator(step, problem.first_sequence())
    start = PlannedSequence.of(reached, NAME)
    best = start
    misses = 0
    # What a round takes back is drawn: one that does not help says less than elsewhere.
    most_misses = 10 * SETTINGS.misses
    while misses < most_misses and guard.work < SETTINGS.polish_tries:
        if guard.check_now() is not None or len(best.sequence) == step.node_count:
            break
        evaluator = _round(problem, reached.copy(), guard, draw)
        found = PlannedSequence.of(evaluator, NAME)
        if found.rank(problem.budget_bytes) < best.rank(problem.budget_bytes):
            best, reached, misses = found, evaluator, 0
        else:
            misses += 1
    return guard.finish(best, best=best.seconds)


def _round(
    problem: PlanningProblem, evaluator: Evaluator, guard: LimitGuard, draw: random.Random
) -> Evaluator:
    """Ruin a part of a sequence and build it up again."""
    factors = noisy_factors(problem.step, SETTINGS.ruin_noise, draw.randrange(2**32))
    search = GreedyRecompute(problem, guard, factors, draw.choice(SETTINGS.ruin_slacks), evaluator)
    units = recompute_units(search.evaluator)
    count = max(1, int(draw.choice(SETTINGS.ruin_shares) * len(units)))
    if draw.random() < 0.5:
        first = draw.randrange(len(units))
        chosen = units[first : first + count]
    else:
        chosen = draw.sample(units, count)
    for unit in chosen:
        search.take_back(unit.creator, unit.before)
    search.repair()
    return search.evaluator
