"""Which of some programs of one step runs at a shape: one as it is, others with regions in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from neaptide.planner.points.decide import Policy, least_cost_cover, script_rank
from neaptide.planner.points.plan import Decision, Decisions, PointPlan

_CHOICES_REMEMBERED: Final = 4096


class Choice:
    """Chooses once for each shape and budget: the program that keeps to the budget in the fewest seconds.

    Of programs that are as fast, the one with the lower peak is taken, then the first. Where none keeps to the budget, the
    one with the lowest peak.

    Args:
        plans: of programs that do the same; at least one.
        policy: how each decides.

    Attributes:
        decisions: of each program.
    """

    def __init__(self, plans: Sequence[PointPlan], policy: Policy = least_cost_cover) -> None:
        self.decisions = tuple(Decisions(plan, policy) for plan in plans)
        self._known: dict[tuple[tuple[tuple[str, int], ...], int], int] = {}

    def number(self, shape: Mapping[str, int], budget_bytes: int) -> int:
        """Which program runs. One look-up for a shape that was seen under this budget.

        Args:
            shape: what the arguments tell.
            budget_bytes: highest peak with workspace.

        Raises:
            SymbolicError: a dim has no value.
        """
        if len(self.decisions) == 1:
            return 0
        key = (tuple(shape.items()), budget_bytes)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _CHOICES_REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._chosen(shape, budget_bytes)
        return found

    def _chosen(self, shape: Mapping[str, int], budget_bytes: int) -> int:
        """Those with regions in parts first: they mostly keep the budget at once, and the others need not search for long."""
        ranks: dict[int, tuple[int, float, int]] = {}
        for number in reversed(range(len(self.decisions))):
            above, seconds, _ = min(ranks.values(), default=(1, 0.0, 0))
            to_beat = None if above else seconds
            ranks[number] = self._rank(self.decisions[number], shape, budget_bytes, to_beat)
        return min(sorted(ranks), key=ranks.__getitem__)

    def at(self, shape: Mapping[str, int], budget_bytes: int) -> Decision:
        """What is decided for a shape, in the program that runs; see `number`."""
        return self.decisions[self.number(shape, budget_bytes)].at(shape, budget_bytes)

    def rank(self, shape: Mapping[str, int], budget_bytes: int) -> tuple[int, float, int]:
        """How good a shape is served, less is better: bytes above the budget, seconds of the run, its peak."""
        return self._rank(self.decisions[self.number(shape, budget_bytes)], shape, budget_bytes)

    def _rank(
        self,
        decisions: Decisions,
        shape: Mapping[str, int],
        budget_bytes: int,
        to_beat: float | None = None,
    ) -> tuple[int, float, int]:
        made = decisions.at(shape, budget_bytes, to_beat)
        above, spent = script_rank(made.script, made.sizes, budget_bytes, decisions.plan.host)
        return above, made.sizes.seconds + spent, made.script.peak_bytes
