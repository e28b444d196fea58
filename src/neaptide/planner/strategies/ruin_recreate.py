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
_SHARES: Final = (0.05, 0.1, 0.2, 0.4)
_SLACKS: Final = (0.0, 0.0, 0.1, 0.5)
_NOISE: Final = 0.5
_NODE_ROUNDS: Final = 80_000  # rounds x nodes: a few seconds in all, whatever the size
_MOST_MISSES: Final = 40  # rounds in a row without an improvement


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
    for _ in range(_NODE_ROUNDS // max(step.node_count, 1)):
        is_spent = misses >= _MOST_MISSES or guard.work >= SETTINGS.polish_tries
        if is_spent or guard.check_now() is not None or len(best.sequence) == step.node_count:
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
    factors = noisy_factors(problem.step, _NOISE, draw.randrange(2**32))
    search = GreedyRecompute(problem, guard, factors, draw.choice(_SLACKS), evaluator)
    units = recompute_units(search.evaluator)
    count = max(1, int(draw.choice(_SHARES) * len(units)))
    if draw.random() < 0.5:
        first = draw.randrange(len(units))
        chosen = units[first : first + count]
    else:
        chosen = draw.sample(units, count)
    for unit in chosen:
        search.take_back(unit.creator, unit.before)
    search.repair()
    return search.evaluator
