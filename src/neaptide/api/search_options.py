"""What the functions that plan have in common: what is asked of the search, and a plan that keeps to it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from neaptide.exclusions import asked_for, refuse_exclusions
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget, check_unit
from neaptide.planner.graph_search import check_strategy
from neaptide.planner.variants import check_host, check_variants, inner_strategy
from neaptide.report.profiling import over_budget, over_bytes
from neaptide.runtime.arena_plan import ArenaOptions, arena_options
from neaptide.runtime.arena_variant import in_arenas
from neaptide.runtime.open_choice import OpenChoice
from neaptide.runtime.planned_graph import PlannedVariant
from neaptide.runtime.prepared_step import PreparedStep
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.searched_front import plans_to_try
from neaptide.runtime.step_plan import StepPlan
from neaptide.runtime.trials import TrialLimit
from neaptide.settings import DEFAULTS, check_setting
from neaptide.transform.rewrite import Rewrite
from neaptide.transform.rules import check_rules


def search_options(
    budget: Budget | str | int,
    strategy: str,
    time_limit_s: float | None,
    work_limit: int | None,
    seed: int,
    atomic: bool,
    interrupt: threading.Event | None,
    rewrites: Sequence[str | Rewrite] = (),
    numerics: str = DEFAULTS.numerics,
    workers: int | None = DEFAULTS.workers,
    trials: int | None = None,
    in_place: bool = DEFAULTS.in_place,
) -> SearchOptions:
    """What is asked of a search, checked by the table of settings.

    Raises:
        UsageError: no such strategy or rule, or a seed or a limit that none can be, or things that exclude each other.
        InvalidBudget: no such budget.
    """
    asked = budget if isinstance(budget, Budget) else Budget(peak=budget)
    check_unit(asked.peak)
    check_strategy(inner_strategy(strategy), atomic=atomic)
    check_setting("seed", seed)
    if work_limit is not None:
        check_setting("work_limit", work_limit)
    if workers is not None:
        check_setting("workers", workers)
    limits = Limits(time_s=time_limit_s, work=work_limit, seed=seed)
    check_setting("numerics", numerics)
    check_variants(strategy, numerics, atomic=atomic)
    check_host(strategy, asked)
    if trials is not None:
        check_setting("trials", trials)
        TrialLimit.of(asked)
    refuse_exclusions(
        asked_for(
            strategy=strategy,
            numerics=numerics,
            budget=asked,
            atomic=atomic,
            rewrites=bool(rewrites),
            trials=trials is not None,
        )
    )
    check_rules(rule for rule in rewrites if isinstance(rule, str))
    return SearchOptions(
        asked,
        strategy,
        limits,
        atomic,
        interrupt,
        rewrites=tuple(rewrites),
        numerics=numerics,
        workers=workers,
        trials=trials,
        in_place=in_place,
    )


def plan_within_budget(prepared: PreparedStep, options: SearchOptions) -> StepPlan:
    """A plan that keeps to its budget.

    Raises:
        InfeasibleBudget: the best plan found does not.
    """
    found = prepared.plan(options)
    error = over_budget(prepared, found)
    if error is not None:
        raise error
    return found


def open_choice(
    prepared: PreparedStep, options: SearchOptions, arena: bool | ArenaOptions = False
) -> OpenChoice:
    """Plans for the limit and for others around it, to choose among when they run.

    A limit of time is held against what is measured then, so no predicted time is refused.

    Raises:
        InfeasibleBudget: the bytes of the best plan found are above its budget.
    """
    plans, planned_for = plans_to_try(prepared, options)
    error = over_bytes(prepared, plans[0])
    if error is not None:
        raise error
    plans = tuple(replace(made, variant=placed(prepared, made.variant, arena)) for made in plans)
    limit = TrialLimit.of(options.budget)
    return OpenChoice(plans, planned_for, limit, prepared.captured_on, options.limits.seed)


def placed(prepared: PreparedStep, variant: PlannedVariant, arena: bool | ArenaOptions) -> PlannedVariant:
    """A variant inside arenas, where they are wanted."""
    options = arena_options(arena)
    return variant if options is None else in_arenas(prepared, variant, options)
