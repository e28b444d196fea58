"""The cases of `ablation.py`: each solves one problem with a whole portfolio, then without each of its stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import ablation_rooms
import ablation_settings
from ablation_settings import recompute_solver, within_row
from layout_cases import CHALLENGING_CAPACITY, network_problem, problem_of
from neaptide.layout import best_layout as layouts
from neaptide.layout.minimalloc_csv import read_csv
from neaptide.layout.problem import LayoutProblem
from neaptide.outcome import Limits
from neaptide.planner import portfolio as sequences
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.order import portfolio as orders
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.recompute_form import from_json as step_from_json
from neaptide_corpus.layouts import pipelined, random_layout, staggered, training_shaped
from neaptide_corpus.random_orders import gnp, layered, local, random_order, wide
from neaptide_corpus.recompute_forms import FAMILIES
from neaptide_corpus.training_networks import TRAINING_STEPS
from order_cases import EARLIER_OPTIMA
from order_cases import problem_of as problem_of_order
from recompute_cases import PUBLISHED, generated

Case = tuple[str, ...]
Row = dict[str, Any]
WHOLE: Final = "nothing"
"""What the whole portfolio is without."""
_MIXED: Final = (1, 16, 64)  # alignments
_LAYOUTS: Final[Mapping[str, Callable[[int, int], Iterable[Any]]]] = MappingProxyType(
    {
        "training": partial(training_shaped, alignment=64),
        "pipelined": partial(pipelined, alignment=64),
        "staggered": staggered,
        "mixed": partial(random_layout, alignments=_MIXED),
    }
)
_ORDERS: Final[Mapping[str, Callable[[int, int], Any]]] = MappingProxyType(
    {
        "gnp": gnp,
        "local": local,
        "layered": layered,
        "random": lambda nodes, seed: random_order(seed, nodes),
        "wide": wide,
    }
)
_LAYOUT_SIZES: Final = {"training": 2000, "pipelined": 500, "staggered": 101, "mixed": 60}
_ORDER_NODES: Final = 120
_STEP_NODES: Final = 300
_SHARES: Final = ("0.7", "0.45", "0.3")


STAGES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "recompute": sequences.STAGES,
        "recompute_settings": tuple(ablation_settings.RECOMPUTE),
        "layout": tuple(dict.fromkeys(layouts.STAGES)),
        "order": orders.STAGES,
        **{room: tuple(changed) for room, changed in ablation_rooms.CHANGED.items()},
    }
)
"""By room, what is switched off or changed in turn."""
WORK: Final[Mapping[str, int]] = MappingProxyType(
    {
        "recompute": 20_000,
        "recompute_settings": 6_000,
        "layout": 200_000,
        "order": 50_000,
        **ablation_rooms.WORK,
    }
)
"""By room, units of work of one search: changes tried, nodes, states."""


def cases(room: str, folder: Path | None, seeds: Sequence[int]) -> list[Case]:
    """The recorded instances of a room, those in a folder where there is one, and generated ones of some seeds."""
    if room in ablation_rooms.CHANGED:
        return ablation_rooms.cases(room)
    if room == "recompute_settings":
        cases = ablation_settings.RECOMPUTE_CASES
        return [case for case in cases if folder is not None or case[0] != "instance"]
    if room == "recompute":
        recorded = [] if folder is None else [("instance", *case) for case in PUBLISHED]
        fresh = [
            ("generated", family, str(_STEP_NODES), str(seed), share)
            for seed in seeds
            for family in FAMILIES
            for share in _SHARES
        ]
    elif room == "layout":
        recorded = [("network", name) for name in EARLIER_OPTIMA]
        found = () if folder is None else sorted((folder / "minimalloc").glob("*.csv"))
        recorded += [("challenging", path.stem) for path in found]
        fresh = [
            ("generated", family, str(size), str(seed))
            for seed in seeds
            for family, size in _LAYOUT_SIZES.items()
        ]
    else:
        recorded = [("network", name) for name in EARLIER_OPTIMA]
        recorded += [("training", name) for name in TRAINING_STEPS]
        fresh = [("generated", family, str(_ORDER_NODES), str(seed)) for seed in seeds for family in _ORDERS]
    return [*recorded, *fresh]


def ablate(room: str, case: Case, folder: Path | None, work: int) -> Row:
    """By what is left out: value, bound, work and CPU seconds. Smaller values are better."""
    solve = _SOLVERS[room](case, folder)
    rows = {}
    for stage in (WHOLE, *STAGES[room]):
        began = time.process_time()
        found = solve(Limits(work=work), () if stage == WHOLE else (stage,))
        rows[stage] = found | {"cpu_seconds": time.process_time() - began}
    return {"without": rows}


_Solve = Callable[[Limits, tuple[str, ...]], Row]


def _recompute(case: Case, folder: Path | None) -> _Solve:
    """Seconds above the baseline's as a share; where the budget is missed, bytes above it as a share, and `missed`."""
    kind, *rest = case
    step: StepProblem
    if kind == "instance":
        assert folder is not None
        step = step_from_json((folder / "remat" / f"{rest[0]}.json").read_bytes())
    else:
        step = generated(rest[0], int(rest[1]), int(rest[2]))
    before = baseline(step)
    budget = int(float(rest[-1]) * before.peak_with_workspace_bytes)

    def solve(limits: Limits, without: tuple[str, ...]) -> Row:
        outcome = sequences.plan_sequence(step, budget, limits, without=without)
        return within_row(outcome, before, budget)

    return solve


def _layout(case: Case, folder: Path | None) -> _Solve:
    """Bytes of the arena."""
    problem = _layout_problem(case, folder)
    capacity = CHALLENGING_CAPACITY if case[0] == "challenging" else None

    def solve(limits: Limits, without: tuple[str, ...]) -> Row:
        outcome = layouts.best_layout(problem, limits, without=without)
        found = outcome.require()
        assert found.layout is not None
        return {
            "value": found.layout.arena_bytes,
            "missed": capacity is not None and found.layout.arena_bytes > capacity,
            "bound": found.lower_bound_bytes,
            "proved": found.certificate.is_optimal,
            "work": outcome.work,
        }

    return solve


def _layout_problem(case: Case, folder: Path | None) -> LayoutProblem:
    kind, name, *rest = case
    if kind == "challenging":
        assert folder is not None
        path = folder / "minimalloc" / f"{name}.csv"
        return read_csv(path.read_text(encoding="utf-8"), path=str(path))
    if kind == "generated":
        return problem_of(_LAYOUTS[name](int(rest[0]), int(rest[1])), " ".join(case))
    return network_problem(name, Limits(work=WORK["order"]))


def _order(case: Case, folder: Path | None) -> _Solve:
    """Bytes of the peak."""
    del folder
    kind, name, *rest = case
    problem = (
        from_mapping(_ORDERS[name](int(rest[0]), int(rest[1])))
        if kind == "generated"
        else problem_of_order(kind, name)
    )

    def solve(limits: Limits, without: tuple[str, ...]) -> Row:
        outcome = orders.best_order(problem, limits, without=without)
        found = outcome.require()
        return {
            "value": found.peak_bytes,
            "missed": False,
            "bound": found.order_lower_bound_bytes,
            "proved": found.certificate.is_optimal,
            "work": outcome.work,
        }

    return solve


_SOLVERS: Final[Mapping[str, Callable[[Case, Path | None], _Solve]]] = MappingProxyType(
    {
        "recompute": _recompute,
        "recompute_settings": recompute_solver,
        "layout": _layout,
        "order": _order,
        **ablation_rooms.SOLVERS,
    }
)
