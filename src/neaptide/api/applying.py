"""Steps that run under a plan: one that there is, or one that is made when they are first called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from neaptide.api.asking import (
    ask_of,
    ask_of_plan,
    open_choice,
    placed,
    plan_within_budget,
    prepared_for,
    slow_of,
)
from neaptide.ask import RUNS, Ask, ByTrials, Evicting, LeaveOut, WatchedSizes
from neaptide.budget import Budget
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.options import ApplyOptions, StepOptions
from neaptide.plans import Plan
from neaptide.policy.plan_matching import fits, matched, warn_of_left_out
from neaptide.policy.points.for_all_shapes import evicting_variant, for_all_shapes, for_seen_shapes, varies
from neaptide.policy.points.seen_sizes import SeenDims, SeenSizes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.steps.arguments import OnMismatch, Remake, check_on_mismatch, check_plan
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.settings import DEFAULTS, check_setting, verified_calls

Step = Callable[..., Any]


def apply(
    plan: Plan | str | Path,
    step: Step,
    *,
    state: Any = None,
    on_mismatch: OnMismatch = "replan",
    verify: bool | str | None = DEFAULTS.verify,
    strict: bool = DEFAULTS.strict,
    **options: Unpack[ApplyOptions],
) -> PlannedStep:
    """A callable that runs a step under a plan; `plan.apply(step)` is the same.

    The step is captured at the first call and must be the program that the plan was made for. The plan is then checked
    beside it: its order must be legal, and its bytes those that the step gives.

    Args:
        plan: made here, on another machine, or the path of its file.
        step: the training step, on the user's own module and optimizer.
        state: see `profile`.
        on_mismatch: what later calls do whose shapes, flags or hyper-parameters differ: `replan` within the same
            bytes, run the step as it is (`eager`), or raise `StepMismatch` (`error`).
        verify: as for `compile_step`.
        strict: as for `compile_step`.
        **options: see `neaptide.options.ApplyOptions`.

    Raises:
        UsageError: neither a plan nor a path, or an unknown `on_mismatch`.
        PlanError: there is no such file, or it is no plan; at the first call: it is not legal for this step, or its
            numbers are not this step's.
        PlanMismatch: at the first call: the step is another program; says what differs.
        InfeasibleBudget: at a later call of other shapes: no plan within the same bytes was found.
    """
    check_on_mismatch(on_mismatch)
    check_setting("strict", strict)
    checked = check_plan(plan)
    ask = ask_of_plan("apply", checked, options, ApplyOptions)
    making = _Making(step, state, ask, {"name": checked.name}, checked)
    given: dict[str, Any] = {"on_mismatch": on_mismatch, "verify": verify, "strict": strict}
    made = making.planned_step(**given)
    given |= options
    made.remake = _remake(partial(apply, checked, **given), state)
    return made


def compile_step(
    step: Step,
    *,
    budget: Budget | str | int,
    state: Any = None,
    on_mismatch: OnMismatch = "replan",
    verify: bool | str | None = DEFAULTS.verify,
    strict: bool = DEFAULTS.strict,
    **options: Unpack[StepOptions],
) -> PlannedStep:
    """A callable that plans a step when it is first called, and runs it under the plan from then on.

    Example: `fast = neaptide.compile_step(step, budget="60%")`, then `loss = fast(batch)` in the training loop.
    The search ends once it has taken longer than it can save in 100 steps. Calls of other shapes are planned when they first
    come. They may use the bytes that the first plan was allowed, so a small last batch need not reach a share of its own; a
    share such as `"60%"` gives a larger batch that share of its own baseline.

    The first call of each program is verified: eager runs before it on the same objects, which are put back from a file, and
    the bits of all results and of all state are compared. That takes about as long as another step, and no byte beyond the
    budget: what autograd saves waits in the file. Where it does not fit, a line of the log says so. A difference is a
    `NumericsWarning` that names the first operation that differs, and the call is eager's. `counts` tells what it cost.

    Args:
        step: as for `plan`.
        budget: as for `plan`.
        state: as for `plan`.
        on_mismatch: as for `apply`.
        verify: `first`; `every 100`: each hundredth planned call as well; `never`; None: as `NEAPTIDE_VERIFY` says.
        strict: a difference is a `NumericsError`.
        **options: see `neaptide.options.StepOptions`.

    Raises:
        UsageError: an option, strategy, rule or policy that there is not, or options that exclude each other; at the first
            call: `dynamic` does not fit its arguments.
        InfeasibleBudget: at a call: no plan within its bytes was found.
    """
    check_on_mismatch(on_mismatch)
    check_setting("strict", strict)
    asked: StepOptions = {"dynamic": "auto", **options}
    ask = ask_of("compile_step", budget, asked, StepOptions, on_mismatch=on_mismatch)
    ask = replace(ask, explains=False, limits=replace(ask.limits, runs=RUNS))
    how = {"progress": options.get("progress"), "replans": on_mismatch == "replan"}
    given: dict[str, Any] = {"on_mismatch": on_mismatch, "verify": verify, "strict": strict}
    made = _Making(step, state, ask, how).planned_step(**given)
    given |= options
    made.remake = _remake(partial(compile_step, budget=budget, **given), state)
    return made


@dataclass
class _Making:
    """Plans a step for each kind of call, when the first of them comes: under the plan that there is, or anew.

    The first capture must fit the plan; later ones that do not are planned for the same bytes. `how` is further told to
    `prepare`.
    """

    step: Step
    state: Any
    ask: Ask
    how: Mapping[str, Any]
    plan: Plan | None = None
    has_begun: bool = False  # under the plan
    first_bytes: int = 0  # that the first plan was allowed, where there was none before
    latest: CapturedStep | None = None

    def __post_init__(self) -> None:
        self.leave_out = _warn_once()
        watches = isinstance(self.ask.mode, WatchedSizes)
        self.seen = SeenSizes(self.step, of_shape=self.ask.budget.is_share) if watches else None

    def planned_step(
        self, *, on_mismatch: OnMismatch, verify: bool | str | None, strict: bool
    ) -> PlannedStep:
        """What is called in place of the step."""
        verified = verified_calls(verify)
        slow = slow_of(self.ask)
        return PlannedStep(
            self.step, self.make, on_mismatch=on_mismatch, verify=verified, strict=strict, slow=slow
        )

    def make(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], changing: frozenset[str]
    ) -> PlannedVariant:
        if self.seen is None:
            return self._make(args, kwargs, changing, None)
        return self.seen.planned(partial(self._make, args, kwargs, changing), args, kwargs)

    def _make(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        changing: frozenset[str],
        seen: SeenDims | None,
    ) -> PlannedVariant:
        dynamic = self.ask.dims if seen is None else seen.dynamic
        captured = {"state": self.state, "changing": changing, "dynamic": dynamic, "like": self.latest}
        prepared = prepared_for(self.ask, self.step, args, kwargs, **captured, **self.how)
        if self.plan is not None:
            return self._under(self.plan, prepared)
        self.latest = prepared.captured
        leave_out = self.leave_out if self.first_bytes else None
        ask = replace(self.ask, least_bytes=self.first_bytes, leave_out=leave_out)
        if seen is not None and varies(prepared):
            return for_seen_shapes(prepared, ask, seen.shapes)
        variant, allowed = _planned(prepared, ask)
        self.first_bytes = self.first_bytes or allowed
        return variant

    def _under(self, plan: Plan, prepared: PreparedStep) -> PlannedVariant:
        is_of_plan = fits(plan, prepared.captured) or not self.has_begun
        if not is_of_plan or (self.ask.dims is not None and not varies(prepared)):
            return _planned(prepared, replace(self.ask, leave_out=self.leave_out))[0]
        found = matched(plan, prepared, self.ask.limits.time_s)
        self.has_begun = True
        return placed(prepared, found, self.ask.arena)


def _planned(prepared: PreparedStep, ask: Ask) -> tuple[PlannedVariant, int]:
    """What runs, and the bytes that it was allowed."""
    if varies(prepared):
        variant = placed(prepared, for_all_shapes(prepared, ask), ask.arena)
        return variant, variant.graphs[0].limit_bytes
    if isinstance(ask.mode, Evicting):
        variant = evicting_variant(prepared, ask, ask.mode.policy)
        return variant, variant.graphs[0].limit_bytes
    if isinstance(ask.mode, ByTrials):
        choice = open_choice(prepared, ask)
        found = choice.plans[0]
        return replace(found.variant, choice=choice), found.plan.programs[0].budget_bytes
    found = plan_within_budget(prepared, ask)
    return placed(prepared, found.variant, ask.arena), found.plan.programs[0].budget_bytes


def _remake(make: Callable[..., PlannedStep], state: Any) -> Remake:
    """How a copy of a step is planned: as the step was, with a copy of the state that was named."""
    return lambda step, copied: make(step, state=copied(state))


def _warn_once() -> LeaveOut:
    """Warns of each rule the first time that a rewrite of it is left out."""
    told: set[str] = set()

    def warn(rule: str, why: str) -> None:
        if rule not in told:
            told.add(rule)
            warn_of_left_out(rule, why)

    return warn
