"""What runs at a shape: which of some programs of one step, and in how many parts its loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from neaptide.planner.points.choices.decide import Policy, least_cost_cover, script_rank
from neaptide.planner.points.parts import numbers_of_parts, part_lengths, tried
from neaptide.planner.points.plan import Decision, Decisions, PointPlan

_CHOICES_REMEMBERED: Final = 4096

Shape: TypeAlias = Mapping[str, int]
_Option: TypeAlias = tuple[int, Shape]
_Rank: TypeAlias = tuple[int, float, int]


class Choice:
    """Chooses once for each shape and budget: the program, and the lengths of its parts, that keep to the budget in the fewest seconds.

    Of those that are as fast, the one with the lower peak is taken, then the first. Where none keeps to the budget, the one
    with the lowest peak.
    """

    def __init__(self, plans: Sequence[PointPlan], policy: Policy = least_cost_cover) -> None:
        self.decisions = tuple(Decisions(plan, policy) for plan in plans)
        self._parts = [part_lengths(plan.shaped.graph) for plan in plans]
        self._known: dict[tuple[tuple[tuple[str, int], ...], int], _Option] = {}

    def chosen(self, shape: Shape, budget_bytes: int) -> _Option:
        """The number of the program that runs, and all its dims. One look-up for a shape that was seen under this budget."""
        if len(self.decisions) == 1 and not self._parts[0]:
            return 0, shape
        key = (tuple(shape.items()), budget_bytes)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _CHOICES_REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._fastest(shape, budget_bytes)
        return found

    def at(self, shape: Shape, budget_bytes: int) -> Decision:
        """What is decided for a shape, in the program that runs; see `chosen`."""
        number, binding = self.chosen(shape, budget_bytes)
        return self.decisions[number].of(binding, budget_bytes)

    def rank(self, shape: Shape, budget_bytes: int) -> _Rank:
        """How good a shape is served, less is better: bytes above the budget, seconds of the run, its peak."""
        return self._rank(self.chosen(shape, budget_bytes), budget_bytes)

    def _fastest(self, shape: Shape, budget_bytes: int) -> _Option:
        """Most parts first: they mostly keep the budget at once, and the others need not search for long."""
        options = list(self._options(shape, budget_bytes))
        ranks: dict[int, _Rank] = {}
        for number in reversed(range(len(options))):
            above, seconds, _ = min(ranks.values(), default=(1, 0.0, 0))
            ranks[number] = self._rank(options[number], budget_bytes, None if above else seconds)
        return options[min(sorted(ranks), key=ranks.__getitem__)]

    def _options(self, shape: Shape, budget_bytes: int) -> Iterator[_Option]:
        for number, (decisions, parts) in enumerate(zip(self.decisions, self._parts, strict=True)):
            bindings = (
                [{**shape, **lengths} for lengths in numbers_of_parts(parts, shape)] if parts else [shape]
            )
            peaks = (decisions.plan.shaped.at(binding).peak_bytes for binding in bindings)
            yield from ((number, bindings[index]) for index in tried(peaks, budget_bytes))

    def _rank(self, option: _Option, budget_bytes: int, to_beat: float | None = None) -> _Rank:
        number, binding = option
        decisions = self.decisions[number]
        made = decisions.of(binding, budget_bytes, to_beat)
        above, spent = script_rank(made.script, made.sizes, budget_bytes, decisions.plan.host)
        return above, made.sizes.seconds + spent, made.script.peak_bytes
