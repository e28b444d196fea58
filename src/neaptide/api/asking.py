"""What the functions that plan have in common: options become one `Ask`, and a plan keeps to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from neaptide.ask import (
    BITWISE,
    BY_SHAPE,
    DEFAULT_STRATEGY,
    Ask,
    ByShape,
    ByTrials,
    Evicting,
    Mode,
    OneShape,
    Place,
    Points,
    WatchedSizes,
)
from neaptide.budget import Budget, check_unit
from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.errors import UsageError
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.options import asked_for, check_names, refuse_exclusions
from neaptide.outcome import Limits
from neaptide.planner.graphs.graph_search import check_strategy
from neaptide.planner.points.choices.decide import policy
from neaptide.planner.variants import check_host, check_variants, inner_strategy
from neaptide.plans import Plan
from neaptide.policy.costed_step import Progress
from neaptide.policy.plan_matching import same_budget
from neaptide.policy.points.arenas import in_arenas
from neaptide.policy.points.for_all_shapes import varies
from neaptide.policy.points.saved_plan import dims_of_plan
from neaptide.policy.prepared_step import PreparedStep, prepare
from neaptide.policy.searched_front import plans_to_try
from neaptide.report.profiling import over_budget, over_bytes
from neaptide.runtime.arena.plan import ArenaOptions, arena_options
from neaptide.runtime.comparing.trials import OpenChoice, TrialLimit
from neaptide.runtime.steps.arguments import check_arena
from neaptide.runtime.steps.planned_graph import PlannedVariant, StepPlan
from neaptide.settings import DEFAULT_TIME_LIMIT_S, DEFAULTS, check_setting
from neaptide.transform.rewrite import FORMER_NAMES
from neaptide.transform.rules import check_rules
from neaptide.transform.rules.fusion import FUSION

_CHECKED = ("seed", "work_limit", "workers", "numerics", "lowering", "checkpoints", "trials")


def ask_of(
    function: str,
    budget: Budget | str | int | None,
    options: Mapping[str, Any],
    kind: type[Any],
    *,
    task: str = "",
    **further: Any,
) -> Ask:
    """What the options of a function ask for, checked before anything is captured.

    Args:
        function: its name.
        budget: as it was given.
        options: by name.
        kind: typed dict of those that it takes.
        task: as for `refuse_exclusions`.
        further: named arguments of the function that may exclude some of them, as for `exclusions.asked_for`.

    Raises:
        UsageError: no such option, strategy or rule, a value that none can have, or things that exclude each other.
        InvalidBudget: no such budget.
    """
    check_names(function, options, kind.__optional_keys__)
    asked = budget if isinstance(budget, Budget) else Budget(peak=budget)
    given = {**options, **further, "budget": asked}
    check_unit(asked.peak)
    for name in _CHECKED:
        if given.get(name) is not None:
            check_setting(name, given[name])
    words = asked_for(given)
    strategy, numerics = given.get("strategy", DEFAULT_STRATEGY), given.get("numerics", BITWISE)
    if strategy == BY_SHAPE and "dynamic" in words:
        strategy = DEFAULT_STRATEGY
    check_planner(strategy, numerics, asked, atomic=given.get("atomic", False))
    if "eviction" in words:
        policy(given["eviction"])  # a misspelt name is told before the capture, which takes seconds
    refuse_exclusions(words, task=task)
    if "trials" in words:
        TrialLimit.of(asked)
    rewrites = tuple(
        FORMER_NAMES.get(rule, rule) if isinstance(rule, str) else rule for rule in given.get("rewrites", ())
    )
    check_rules(rule for rule in rewrites if isinstance(rule, str))
    if "inductor" in words:
        rewrites = (*(rule for rule in rewrites if rule != FUSION.name), FUSION.name)
    made = {
        "strategy": strategy,
        "rewrites": rewrites,
        "limits": Limits(
            given.get("time_limit_s", DEFAULT_TIME_LIMIT_S),
            given.get("work_limit"),
            given.get("seed", DEFAULTS.seed),
        ),
        "mode": _mode(given, words),
        "place": Place(options.get("device"), options.get("slow"), _may_vary(options)),
    }
    return Ask(
        asked, **{**{one.name: options[one.name] for one in fields(Ask) if one.name in options}, **made}
    )


def ask_of_plan(function: str, plan: Plan, options: Mapping[str, Any], kind: type[Any]) -> Ask:
    """What is asked of a step that runs under a plan, and of calls that the plan does not cover; arguments as of `ask_of`.

    Raises:
        UsageError: no such option, or an arena for a plan that cannot run in one.
    """
    check_names(function, options, kind.__optional_keys__)
    arena = arena_options(options.get("arena", False))
    check_arena(plan, arena=arena is not None)
    dims = dims_of_plan(plan, arena=arena is not None)
    return replace(
        same_budget(plan, options.get("time_limit_s", DEFAULT_TIME_LIMIT_S)),
        mode=OneShape(arena) if dims is None else Points(dims, arena),
        place=Place(None, options.get("slow"), plan.bits_may_vary and _may_vary(options)),
        checkpoints=plan.checkpoints,
    )


def check_planner(strategy: str, numerics: str, budget: Budget, *, atomic: bool = False) -> None:
    """Refuse a strategy that there is not, or that cannot do what is asked.

    Raises:
        UsageError: naming what to change.
    """
    check_strategy(inner_strategy(strategy), atomic=atomic)
    check_variants(strategy, numerics)
    check_host(strategy, budget)


def _may_vary(options: Mapping[str, Any]) -> bool:
    return bool(options.get("allow_nondeterministic", False))


def _mode(given: Mapping[str, Any], words: set[str]) -> Mode:
    """How a step runs, of arguments that do not exclude each other."""
    arena = arena_options(given.get("arena", False))
    if "eviction" in words:
        return Evicting(given["eviction"])
    if "dynamic" in words:
        return ByShape(given["dynamic"]) if "by_shape" in words else Points(given["dynamic"], arena)
    if "trials" in words:
        return ByTrials(given["trials"], arena)
    return WatchedSizes() if _watches_sizes(given, words) else OneShape(arena)


def _watches_sizes(given: Mapping[str, Any], words: set[str]) -> bool:
    """Whether dims that vary are found by watching calls: `auto` where nothing excludes it, True for that or an error."""
    dynamic = given.get("dynamic")
    if not dynamic:
        return False
    if dynamic not in (True, "auto"):
        raise UsageError(
            f"dynamic={dynamic!r} names no dim",
            next_step='write dims with their ranges, like dynamic={"batch": {0: (1, 64)}}, or "auto", True or False',
        )
    try:
        _refuse_watching(words, given["on_mismatch"])
    except UsageError:
        if dynamic is True:
            raise
        return False
    return True


def _refuse_watching(words: set[str], on_mismatch: str) -> None:
    refuse_exclusions({*words, "dynamic"} - {"arena"})
    others = {f'on_mismatch="{on_mismatch}"': on_mismatch != "replan", "an arena": "arena" in words}
    if asked := [what for what, is_asked in others.items() if is_asked]:
        raise UsageError(
            f"dynamic=True and {asked[0]} exclude each other",
            why="the dims that vary are found at calls that differ, which are planned again, for sizes without an end",
            next_step="name the dims with their ranges, or leave it out",
        )


def prepared_for(
    ask: Ask,
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    **how: Any,
) -> PreparedStep:
    """A step captured and costed as it is asked for; `how` is further told to `policy.prepared_step.prepare`.

    Raises:
        CaptureError: the step cannot be captured; names the user's line.
        UsageError: no device of that name, or a factory instead of a step.
    """
    captured = {"dynamic": ask.dims, "checkpoints": ask.checkpoints, **how}
    return prepare(step, args, kwargs, **_costs(ask), **captured)


def costed_for(ask: Ask, captured: CapturedStep, progress: Progress | None = None) -> PreparedStep:
    """A captured step with the costs that are asked for."""
    return PreparedStep(captured, progress=progress, **_costs(ask))


def slow_of(ask: Ask) -> SlowMemory:
    """Where storages wait."""
    return ask.place.slow or DEFAULT_SLOW_MEMORY


def _costs(ask: Ask) -> dict[str, Any]:
    return {"device": ask.place.device, "bits_may_vary": ask.place.bits_may_vary, "slow": slow_of(ask)}


def is_interrupted(ask: Ask) -> bool:
    """Whether the searches were asked to end, so that nothing is run after them."""
    return ask.interrupt is not None and ask.interrupt.is_set()


def check_varies(prepared: PreparedStep) -> None:
    """Refuse a step whose program holds for the shape of its example alone.

    Raises:
        UsageError: naming what fixes its sizes.
    """
    if not varies(prepared):
        raise UsageError(
            "the step is a program for this shape alone",
            why="; ".join(prepared.captured.steady.sizes.notes) or "no dim of its program varies",
            next_step="leave dynamic out, or capture it at another shape of the ranges",
        )


def plan_within_budget(prepared: PreparedStep, ask: Ask) -> StepPlan:
    """A plan that keeps to its budget.

    Raises:
        InfeasibleBudget: the best plan found does not.
    """
    found = prepared.plan(ask)
    error = over_budget(prepared, found)
    if error is not None:
        raise error
    return found


def open_choice(prepared: PreparedStep, ask: Ask) -> OpenChoice:
    """Plans for the limit and for others around it, to choose among when they run.

    A limit of time is held against what is measured then, so no predicted time is refused.

    Raises:
        InfeasibleBudget: the bytes of the best plan found are above its budget.
    """
    plans, planned_for = plans_to_try(prepared, ask)
    error = over_bytes(prepared, plans[0])
    if error is not None:
        raise error
    plans = tuple(replace(made, variant=placed(prepared, made.variant, ask.arena)) for made in plans)
    return OpenChoice(
        plans, planned_for, TrialLimit.of(ask.budget), prepared.problem().device, ask.limits.seed
    )


def placed(prepared: PreparedStep, variant: PlannedVariant, arena: ArenaOptions | None) -> PlannedVariant:
    """A variant inside arenas, where they are wanted."""
    return variant if arena is None else in_arenas(prepared, variant, arena)
