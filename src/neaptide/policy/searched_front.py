"""Several plans of one step, for several limits: time against memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.ask import CLOSE, Ask, ByTrials
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.outcome import Limits, Stopwatch
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.met import MetPlans, for_limit
from neaptide.planner.variants.planning import LEAST_SHARE
from neaptide.planner.variants.price import Goal
from neaptide.planner.variants.variant import Division
from neaptide.plans import PlannedProgram, TriedVariant
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing.trials import described_limit, other_budgets
from neaptide.runtime.steps.planned_graph import PlannedGraph, StepPlan

# Of what a search for the usual program alone gets, what one gets that has the first steps to plan as well.
_WITH_FIRST_STEPS: Final = 1.5
# Of the limits for a front, what the search for the lowest peak gets.
_LOWEST_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True)
class VariantFront:
    """Plans by the time that they take."""

    points: tuple[TriedVariant, ...]
    baseline_peak_bytes: int
    baseline_seconds: float

    def overhead(self, seconds: float) -> float:
        """How much longer than the baseline, as a fraction of it; 0 for a baseline that takes no time."""
        return seconds / self.baseline_seconds - 1.0 if self.baseline_seconds else 0.0


def searched_front(prepared: PreparedStep, ask: Ask, count: int) -> VariantFront:
    """Plans of the usual program, none both lower and faster than another.

    The first search is for the lowest peak; the others are within limits of time in even steps from the baseline's to that
    plan's. Each plan that is met counts for every limit, so peaks never rise with the time that is allowed.

    Args:
        ask: of all searches together; their budget is not looked at.
        count: of searches, at least 2.
    """
    if count < 2:
        raise UsageError(f"a front cannot have {count} points", next_step="ask for at least two")
    limits, met = _with_regions_found(prepared, ask), MetPlans()

    def search(longest: float | None, share: float) -> PlannedProgram:
        wanted = replace(ask, budget=Budget("min", latency=longest), limits=limits.part(share))
        return prepared.plan_program(0, wanted, prepared.allowed(wanted, 0, None), met=met)[0]

    found = search(None, _LOWEST_SHARE)
    made = found.predictions
    plans = _all_met(found)
    least, most = made.baseline_seconds, max(made.seconds, made.baseline_seconds)
    for number in range(count - 1):
        longest = least + (most - least) * number / (count - 1)
        plans += _all_met(search(longest, (1.0 - _LOWEST_SHARE) / (count - 1)))
    peak = made.baseline_peak_with_workspace_bytes
    return VariantFront(undominated([TriedVariant("program order", peak, least), *plans]), peak, least)


def undominated(plans: Iterable[TriedVariant]) -> tuple[TriedVariant, ...]:
    """Plans of which none is both as low and as fast as another, the fastest first. O(n log n)."""
    front: list[TriedVariant] = []
    for plan in sorted(plans, key=lambda plan: (plan.seconds, plan.peak_bytes)):
        if not front or plan.peak_bytes < front[-1].peak_bytes:
            front.append(plan)
    return tuple(front)


def _all_met(program: PlannedProgram) -> list[TriedVariant]:
    """All plans that a search met, the one that it chose among them."""
    if program.parts is not None:
        return list(program.parts.tried)
    made = program.predictions
    return [TriedVariant(program.strategy, made.peak_with_workspace_bytes, made.seconds)]


@dataclass(frozen=True, slots=True)
class FoundPlans:
    """Plans of one step for several budgets.

    Attributes:
        otherwise: for the first few of the budgets, as many as were asked for, the best plan of each other division than that;
            of plans that keep the budget.
    """

    best: tuple[StepPlan, ...]
    otherwise: tuple[Mapping[Division, StepPlan], ...]

    def named(self, budgets: Sequence[str]) -> list[tuple[str, StepPlan]]:
        """All plans, each with what it was planned for; the best ones come first."""
        found = list(zip(budgets, self.best, strict=True))
        for words, plans in zip(budgets, self.otherwise, strict=False):
            found += [(f"{words}, {division.value}", made) for division, made in plans.items()]
        return found


def plans_for(
    prepared: PreparedStep, ask: Ask, others: Sequence[Budget], *, otherwise_for: int = 0
) -> FoundPlans:
    """The plan that is asked for, and for each of some other budgets one whose usual program is searched within that.

    Each search begins with what those before it met, and each plan counts for all budgets that it keeps. The programs of the first steps are the same in all, as they are asked for.

    Args:
        others: for the usual program alone.
        otherwise_for: of how many of the budgets, the one that is asked for first, to tell the best plan of each other division.
    """
    ask = replace(ask, limits=_with_regions_found(prepared, ask))
    first = _WITH_FIRST_STEPS if prepared.captured.first else 1.0
    # The search for what is asked for comes first, when nothing was met yet: it has another turn in the end.
    turns = 1 if others and ask.numerics == CLOSE else 0
    share, met = 1 / (first + len(others) + turns), MetPlans()
    asked = prepared.plan(replace(ask, limits=ask.limits.part(first * share)), met)
    wanted = replace(ask, limits=ask.limits.part(share))
    searched = [(asked.plan.programs[0], asked.variant.graphs[0])]
    budgets = (_at_kept_clock(ask.budget, asked.plan.budget.clock_factor), *others)
    for budget in (*others, *budgets[:turns]):
        inside = replace(wanted, budget=budget)
        searched.append(prepared.plan_program(0, inside, prepared.allowed(inside, 0, None), met=met))
    found: list[StepPlan] = []
    otherwise: list[Mapping[Division, StepPlan]] = []
    for number, budget in enumerate(budgets):
        inside = replace(wanted, budget=budget)
        goal = Goal.of(budget, prepared.allowed(inside, 0, None), searched[0][0].predictions.baseline_seconds)
        own = searched[number]
        program, graph = min([own, *searched], key=lambda one: goal.rank_of(one[0]))
        if program is not own[0]:
            program = for_limit(program, goal)
        found.append(_with_usual(asked, program, graph))
        if number < otherwise_for:
            laid_out = replace(inside, limits=inside.limits.part(LEAST_SHARE))
            otherwise.append(_divided_otherwise(prepared, laid_out, asked, goal, met, graph.division))
    return FoundPlans(tuple(found), tuple(otherwise))


def _divided_otherwise(
    prepared: PreparedStep,
    ask: Ask,
    asked: StepPlan,
    goal: Goal,
    met: MetPlans,
    division: Division,
) -> dict[Division, StepPlan]:
    """Of plans that were met, and that are divided otherwise than `division`, the best that keeps a limit; of each way."""
    found = {}
    for other in (one for one in Division if one is not division):
        plan = met.best_of(other, goal)
        if plan is None or goal.rank_of(plan.found.program)[0]:
            continue
        found[other] = _with_usual(asked, *prepared.usual_program_of(ask, goal.allowed, plan))
    return found


def _at_kept_clock(budget: Budget, clock_factor: float) -> Budget:
    """A budget whose limit in seconds is one at the speed that costs are kept at."""
    return budget if budget.seconds is None else replace(budget, latency=budget.seconds / clock_factor)


def _with_usual(asked: StepPlan, program: PlannedProgram, graph: PlannedGraph) -> StepPlan:
    """A plan of a step with another plan of its usual program."""
    # What it may use is what was asked for: fewer bytes were a wish of ours.
    allowed = asked.plan.programs[0].budget_bytes
    program = replace(program, budget_bytes=allowed)
    plan = replace(asked.plan, programs=(program, *asked.plan.programs[1:]))
    return StepPlan(plan, replace(asked.variant, graphs=(graph, *asked.variant.graphs[1:]), plan=plan))


def _with_regions_found(prepared: PreparedStep, ask: Ask) -> Limits:
    """What is left of the limits when the regions are found that may run in parts; at least half."""
    if ask.numerics != CLOSE:
        return ask.limits
    watch = Stopwatch()
    planned = prepared.rewritten(0, ask.rewrites, ask.leave_out)
    choices = prepared.choices(planned)
    choices.after(choices.begun(planned.graph))
    time_s = ask.limits.time_s
    took = watch.seconds() if time_s is None else min(watch.seconds(), time_s / 2)
    return ask.limits.after(took)


def plans_to_try(prepared: PreparedStep, ask: Ask) -> tuple[tuple[StepPlan, ...], tuple[str, ...]]:
    """Plans for the limit and for others around it that are worth a run, and what each was planned for, in words.

    The search for the limit itself comes first. Of a limit of bytes only those plans are returned that are predicted to
    keep it; where none does, the plan that was asked for alone. After them come, for the limit itself, the best of the
    plans that are divided in other ways.

    Args:
        ask: by trials, with a limit in its budget.
    """
    assert isinstance(ask.mode, ByTrials)
    seconds = baseline(prepared.problem()).seconds
    budget, _ = prepared.at_kept_clock(ask.budget)
    others = other_budgets(
        budget, ask.mode.count, seconds, prepared.allowed(ask, 0, None) + prepared.bytes_beside
    )
    words = [described_limit(budget, seconds) for budget in (budget, *others)]
    named = plans_for(prepared, ask, others, otherwise_for=1).named(words)
    fitting = [(told, made) for told, made in named if _fits(made.plan.programs[0])] or named[:1]
    kept = [fitting[index] for index in distinct([made for _, made in fitting])]
    return tuple(made for _, made in kept), tuple(told for told, _ in kept)


def distinct(plans: Sequence[StepPlan]) -> tuple[int, ...]:
    """Which of some plans are worth a run: each program once, and none that another is predicted to beat. O(n^2).

    A plan is beaten by one that is divided in the same way and is predicted to be no higher and no slower: between others
    predictions tell less. The first of equals stays.
    """
    divisions = [found.variant.graphs[0].division for found in plans]
    programs = [found.plan.programs[0] for found in plans]
    kept: list[int] = []
    for index, program in enumerate(programs):
        others = [
            other
            for place, other in enumerate(programs)
            if place != index and divisions[place] is divisions[index]
        ]
        if any(is_same_program(programs[place], program) for place in kept):
            continue
        if not any(_beats(other, program) for other in others):
            kept.append(index)
    return tuple(kept)


def _fits(program: PlannedProgram) -> bool:
    return program.predictions.peak_with_workspace_bytes <= program.budget_bytes


def is_same_program(one: PlannedProgram, other: PlannedProgram) -> bool:
    """Whether the same operations run in the same order, whatever the plans were asked for."""
    return _what_runs(one) == _what_runs(other)


def _what_runs(program: PlannedProgram) -> tuple[object, ...]:
    return program.fingerprint, program.rewrites, program.sequence, program.bodies, program.offloads


def _beats(one: PlannedProgram, other: PlannedProgram) -> bool:
    a, b = one.predictions, other.predictions
    ours = a.peak_with_workspace_bytes, a.seconds
    theirs = b.peak_with_workspace_bytes, b.seconds
    return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]
