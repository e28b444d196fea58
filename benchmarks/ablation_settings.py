"""Settings of searches halved and doubled: what `ablation.py` changes in rooms whose names end in `settings`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from neaptide.outcome import Limits
from neaptide.planner import portfolio as sequences
from neaptide.planner.recompute import settings as recompute
from neaptide.planner.recompute.curve.curve import recompute_curve
from neaptide.planner.recompute.curve.least_memory import least_memory
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.recompute_form import from_json
from recompute_cases import generated

Case = tuple[str, ...]
Row = dict[str, Any]
_FACTORS: Final = {"half": 0.5, "twice": 2.0}
_CURVE_SHARES: Final = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
RECOMPUTE_CASES: Final[tuple[Case, ...]] = (
    ("instance", "gpt12", "0.23"),
    ("instance", "resnet16", "0.35"),
    ("budget", "residual", "100", "2", "0.6"),
    ("budget", "layered", "60", "1", "0.6"),
    ("least", "residual", "60", "1", "1.1"),
    ("least", "skips", "60", "1", "1.1"),
    ("curve", "layered", "60", "1"),
    ("curve", "small_ops", "60", "1"),
)
"""A budget, the lowest peak within some times the baseline's time, or a curve: problems that end unproved."""


def changed(settings: Any) -> dict[str, Any]:
    """By `FIELD half` and `FIELD twice`, settings with that field changed; of several numbers each. Counts stay above 0."""
    found = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        for name, factor in _FACTORS.items():
            found[f"{field.name} {name}"] = replace(settings, **{field.name: _scaled(value, factor)})
    return found


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_scaled(number, factor) for number in value)
    return max(int(factor * value), min(value, 1)) if isinstance(value, int) else factor * value


RECOMPUTE: Final[Mapping[str, Any]] = MappingProxyType(changed(recompute.SETTINGS))


@contextmanager
def other_settings(usual: Any, chosen: Any) -> Iterator[None]:
    """Other settings for every search of a room: each of its modules reads the one object, by whatever name."""
    readers = [
        (module, name)
        for label, module in list(sys.modules.items())
        if label.startswith("neaptide.")
        for name, value in list(vars(module).items())
        if value is usual
    ]
    try:
        for module, name in readers:
            vars(module)[name] = chosen
        yield
    finally:
        for module, name in readers:
            vars(module)[name] = usual


def recompute_solver(case: Case, folder: Path | None) -> Callable[[Limits, tuple[str, ...]], Row]:
    """What solves a case, with one setting changed where one is named."""
    kind, name, *rest = case
    if kind == "instance":
        assert folder is not None
        step = from_json((folder / "remat" / f"{name}.json").read_bytes())
    else:
        step = generated(name, int(rest[0]), int(rest[1]))
    answer = {"least": _least, "curve": _curve}.get(kind, _within)

    def solve(limits: Limits, without: tuple[str, ...]) -> Row:
        with other_settings(recompute.SETTINGS, RECOMPUTE[without[0]] if without else recompute.SETTINGS):
            return answer(step, rest[-1], limits)

    return solve


def _within(step: StepProblem, share: str, limits: Limits) -> Row:
    """Seconds above the baseline's as a share; where the budget is missed, bytes above it as a share, and `missed`."""
    before = baseline(step)
    budget = int(float(share) * before.peak_with_workspace_bytes)
    outcome = sequences.plan_sequence(step, budget, limits)
    return within_row(outcome, before, budget)


def within_row(outcome: Any, before: Any, budget: int) -> Row:
    """The answer of a search for the least time within a budget, against the baseline."""
    plan = outcome.require()
    above = plan.peak_with_workspace_bytes - budget
    bound = outcome.termination.bound
    return {
        "value": above / budget if above > 0 else plan.seconds / before.seconds - 1.0,
        "missed": above > 0,
        "bound": None if above > 0 or bound is None else bound / before.seconds - 1.0,
        "proved": outcome.termination.is_proved,
        "work": outcome.work,
    }


def _least(step: StepProblem, times: str, limits: Limits) -> Row:
    """The lowest peak within so many times the baseline's seconds, as a share of the baseline's peak."""
    before = baseline(step)
    outcome = least_memory(step, float(times) * before.seconds, limits)
    bound = outcome.termination.bound
    return {
        "value": outcome.require().peak_with_workspace_bytes / before.peak_with_workspace_bytes,
        "missed": False,
        "bound": None if bound is None else bound / before.peak_with_workspace_bytes,
        "proved": outcome.termination.is_proved,
        "work": outcome.work,
    }


def _curve(step: StepProblem, _seed: str, limits: Limits) -> Row:
    """Mean over budgets of the seconds above the baseline's, as a share; above the peak where one is not reached."""
    before = baseline(step)
    peak = before.peak_with_workspace_bytes
    outcome = recompute_curve(step, [int(share * peak) for share in _CURVE_SHARES], limits=limits)
    points = outcome.require().points
    shares = [
        point.seconds / before.seconds - 1.0 if point.is_reached else point.peak_bytes / point.budget_bytes
        for point in points
    ]
    return {
        "value": sum(shares) / len(shares),
        "missed": False,
        "bound": None,
        "proved": outcome.termination.is_proved,
        "work": outcome.work,
    }
