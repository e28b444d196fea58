"""One choice of a plan for another, each tried exactly and kept where it is faster and fits.

What is recomputed is held instead, or waits on the host; what waits there is recomputed instead, or held. What then does
not fit waits on the host in its place. This is a descent: it ends where no single change is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from neaptide.outcome import LimitGuard
from neaptide.planner.offload.carried import Carried
from neaptide.planner.offload.gaps import GapKey, IdleGap
from neaptide.planner.recompute.units import RecomputeUnit, recompute_units
from neaptide.schedule.changes import Insert
from neaptide.schedule.instances import TO_END

_Candidate = TypeVar("_Candidate")
_MOST_SWEEPS: Final = 8
_MISSES: Final = 40
"""Exchanges in a row that bring nothing end a sweep."""


def descend(carried: Carried, guard: LimitGuard, tries: LimitGuard) -> None:
    """Change a plan within the budget while single changes make it faster. O(tries x what `Carried.change` takes)."""
    for _ in range(_MOST_SWEEPS):
        before = carried.seconds()
        units = recompute_units(carried.evaluator)
        units.sort(key=lambda unit: (-unit.seconds / max(unit.nbytes, 1), unit.before, unit.creator))
        _each(units, lambda unit: _not_again(carried, unit, guard), guard, tries)
        if carried.placed().times.waits:
            _each(_by_price(carried), lambda key: _not_away(carried, key, guard), guard, tries)
        if carried.seconds() >= before or guard.check_now() or tries.check_now():
            return


def _each(
    candidates: Iterable[_Candidate],
    is_better: Callable[[_Candidate], bool],
    guard: LimitGuard,
    tries: LimitGuard,
) -> None:
    """Try each, until some in a row bring nothing."""
    misses = 0
    for candidate in candidates:
        if misses > _MISSES or guard.exhausted() or tries.exhausted():
            return
        misses = 0 if is_better(candidate) else misses + 1


def _not_again(carried: Carried, unit: RecomputeUnit, guard: LimitGuard) -> bool:
    """Hold what a recomputation makes, or have it or others wait on the host."""
    removal = carried.replays.removal(unit.creator, unit.before)
    if removal is None or unit.creator not in removal.nodes:
        return False
    made = carried.evaluator.problem.created[unit.creator]
    return carried.change(removal, guard, made=made)


def _not_away(carried: Carried, key: GapKey, guard: LimitGuard) -> bool:
    """Recompute what waits on the host, or hold it."""
    if key not in carried.chosen:
        return False
    insertion = _again_for(carried, key)
    if insertion is not None and carried.change(insertion, guard, without=key):
        return True
    return carried.change(None, guard, without=key)


def _again_for(carried: Carried, key: GapKey) -> Insert | None:
    """The repetitions that bring a storage back for the end of its gap."""
    storage, _, following = key
    if following == TO_END or carried.evaluator.problem.state_bytes[storage]:
        return None
    before = carried.evaluator.anchor_of(following)
    closure = carried.replays.closure(storage, before)
    return carried.replays.insertion(closure, before) if closure.nodes and not closure.refusal else None


def _by_price(carried: Carried) -> list[GapKey]:
    """The gaps that are filled, with those that cost least to recompute for their bytes first."""
    problem = carried.evaluator.problem
    gaps = [gap for gap in carried.filled() if not gap.is_between]

    def price(gap: IdleGap) -> float:
        is_state = problem.state_bytes[gap.storage] > 0
        return math.inf if is_state else problem.repeat_seconds[problem.creator[gap.storage]] / gap.nbytes

    gaps.sort(key=price)
    return [gap.key for gap in gaps]
