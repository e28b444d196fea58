"""Replays that count as work by their length."""

from __future__ import annotations

from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.replays import Closure, Replays


class ChargedReplays(Replays):
    """Replays whose closures are charged to a guard by their length.

    Near the lowest peak each of them repeats half the program, so that tries are no measure of the work.
    """

    def __init__(self, evaluator: Evaluator, guard: LimitGuard) -> None:
        super().__init__(evaluator)
        self._guard = guard

    def closure(
        self, storage: int, before: int, *, hold_share: float = 0.0, hold_from: int | None = None
    ) -> Closure:
        """The closure of `Replays`; charged with a try for each `nodes_per_try` nodes of it."""
        found = super().closure(storage, before, hold_share=hold_share, hold_from=hold_from)
        if work := len(found.nodes) // SETTINGS.nodes_per_try:
            self._guard.exhausted(work)
        return found
