"""Plans of one step that run in turns with the step itself: which of them to take, on the user's own objects at the first usual call, or apart.

Predicted seconds are off by up to a seventh either way (`docs/explanation/seconds.md`), and a plan on the wrong side of a
limit is the wrong plan. So plans for several predicted limits are run, and the limit is held against what was measured.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import torch

from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.plans import FASTEST, LEAST_PEAK, NONE_WITHIN, Reason, TrialRow, TrialsRecord
from neaptide.runtime.calls.state_copy import StateCopy
from neaptide.runtime.comparing.contestant_process import rivals
from neaptide.runtime.comparing.contestants import Factory, never_again, trial_times
from neaptide.runtime.measuring.timing import Step, StepTimes, interleaved, median_ratio
from neaptide.runtime.saving.scratch_file import ScratchFile
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, StepPlan
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.settings import MOST_TRIALS
from neaptide.units import format_bytes

ROUNDS: Final = 5
"""Timed steps of each plan, by default."""

# Predicted limits over the one asked for, in the order in which they are worth a search. Times are off by a seventh at
# most as a rule, and what is predicted too slow is as common as what is predicted too fast.
_TIMES: Final = (1.0, 1.15, 0.9, 1.3, 1.07, 0.95, 1.22)
# Fewer bytes than allowed: another plan, which may be the faster one when it runs.
_PEAKS: Final = (1.0, 0.9, 0.8, 0.7, 0.95, 0.85, 0.6)
assert len(_TIMES) == len(_PEAKS) == MOST_TRIALS

Clock = Literal["processor", "wall"]


@dataclass(frozen=True, slots=True)
class TrialLimit:
    """What measured times are held against; with neither, the plans are for a limit of bytes that all keep to."""

    longest_ratio: float | None = None  # of the time of what they ran beside
    longest_seconds: float | None = None  # of a step

    @staticmethod
    def of(budget: Budget) -> TrialLimit:
        """The limit that a budget sets."""
        if budget.peak is not None and not budget.is_min:
            return TrialLimit()
        if budget.latency is None:
            raise UsageError(
                "plans are tried against a limit, and the budget sets none",
                next_step='give a latency such as "+10%", or a peak such as "60%"',
            )
        if budget.seconds is None:
            return TrialLimit(longest_ratio=budget.resolve_latency(1.0))
        return TrialLimit(longest_seconds=budget.seconds)

    @property
    def is_of_time(self) -> bool:
        """Whether it limits time."""
        return self.longest_ratio is not None or self.longest_seconds is not None

    def choose(self, rows: Sequence[TrialRow]) -> tuple[int, Reason]:
        """Which of some plans to take, and why; at least one is needed. O(plans).

        Within a limit of time the least peak, and of equal ones the fastest; where none is within it, the fastest. For a
        limit of bytes the fastest. The first of equals.
        """
        everything = range(len(rows))
        fastest = min(everything, key=lambda index: rows[index].measured_ratio)
        if not self.is_of_time:
            return fastest, FASTEST
        within = [index for index in everything if self._holds(rows[index])]
        if not within:
            return fastest, NONE_WITHIN
        least = min(within, key=lambda index: (rows[index].predicted_peak_bytes, rows[index].measured_ratio))
        return least, LEAST_PEAK

    def _holds(self, row: TrialRow) -> bool:
        if self.longest_ratio is not None:
            return row.measured_ratio <= self.longest_ratio
        return self.longest_seconds is None or row.measured_seconds <= self.longest_seconds


def tried(
    found: StepPlan, planned_for: str, took: Sequence[float], beside: Sequence[float], seed: int
) -> TrialRow:
    """A plan that was run: its seconds, and those of what it ran beside, in the same rounds."""
    made, measured = found.plan.programs[0].predictions, median_ratio(took, beside, seed=seed)
    return TrialRow(
        planned_for,
        made.peak_with_workspace_bytes,
        made.seconds / made.baseline_seconds if made.baseline_seconds else 1.0,
        measured.ratio,
        measured.low,
        measured.high,
        statistics.median(took),
    )


def decide(
    plans: Sequence[StepPlan],
    rows: Sequence[TrialRow],
    limit: TrialLimit,
    *,
    beside: str,
    clock: Clock,
    rounds: int,
) -> StepPlan:
    """The plan to take, with a record of all of them; `beside` is what ran with them, in words."""
    chosen, reason = limit.choose(rows)
    longest = limit.longest_ratio, limit.longest_seconds
    record = TrialsRecord(beside, clock, rounds, tuple(rows), chosen, reason, *longest)
    found = plans[chosen]
    steady, *first = found.plan.programs
    plan = replace(found.plan, programs=(replace(steady, trials=record), *first))
    return StepPlan(plan, replace(found.variant, plan=plan))


def clock_of(device: str) -> Clock:
    """What a step on a device is timed with: where it has one thread of a processor, other programs do not count."""
    alone = device.partition(":")[0] == "cpu" and torch.get_num_threads() == 1
    return "processor" if alone else "wall"


def other_budgets(
    budget: Budget, count: int, baseline_seconds: float, allowed_bytes: int
) -> tuple[Budget, ...]:
    """Budgets around the one asked for, whose plans are tried beside its own."""
    if budget.peak is not None and not budget.is_min:
        sizes = [max(int(share * allowed_bytes), 1) for share in _PEAKS[1:count]]
        return tuple(replace(budget, peak=size, outside_bytes=0) for size in sizes)
    longest = budget.resolve_latency(baseline_seconds)
    assert longest is not None
    return tuple(replace(budget, latency=share * longest) for share in _TIMES[1:count])


def described_limit(budget: Budget, baseline_seconds: float) -> str:
    """What a plan that is tried was planned for, in words."""
    if budget.peak is not None and not budget.is_min:
        return f"a peak of {budget.peak if isinstance(budget.peak, str) else format_bytes(budget.peak)}"
    longest = budget.resolve_latency(baseline_seconds)
    assert longest is not None
    return f"{longest / baseline_seconds:.2f} of the time of program order"


def seconds_by(times: StepTimes, clock: Clock) -> tuple[float, ...]:
    """Seconds of each timed step by one clock."""
    return times.cpu_s if clock == "processor" else times.wall_s


logger = logging.getLogger(__name__)

BESIDE_STEP: Final = "the step as it is"
BESIDE_ORDER: Final = "the step in program order, without its host code"
BESIDE_FIRST: Final = "the plan for the limit itself"
_BESIDE: Final = "beside"


@dataclass(frozen=True)
class OpenChoice:
    """Some plans of one capture, the first of them for the limit itself."""

    plans: tuple[StepPlan, ...]
    planned_for: tuple[str, ...]
    limit: TrialLimit
    device: str
    seed: int
    rounds: int = ROUNDS

    def settle(
        self, step: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> PlannedVariant:
        """Run all plans in turns with the step, put everything back, and say which plan is taken.

        Host code after the program is not run: what it does cannot be undone. The ratios are then to the step in program
        order. For a limit of bytes the step as it is may not fit, and they are to the first plan.
        """
        captured = self.plans[0].variant.captured
        runs = {
            str(index): _runner(step, found.variant, args, kwargs) for index, found in enumerate(self.plans)
        }
        beside, other = self._beside(step, captured, args, kwargs)
        if other is not None:
            runs[_BESIDE] = other
        with captured.first_writes.done(), ScratchFile(self.plans[0].variant.slow) as file:
            copy = StateCopy(captured, args, kwargs, file)
            try:
                times = interleaved(runs, self.rounds, before_each=1, synchronize=_synchronize(self.device))
            finally:
                copy.put_back()
        return self._decided(times, beside).variant

    def settle_apart(self, factory: Factory, seed: int, *, own_processes: bool = False) -> StepPlan:
        """The same, each program on fresh objects of its own."""
        with rivals(factory, seed, own_processes=own_processes) as make:
            runs = [make(str(index), found.variant) for index, found in enumerate(self.plans)]
            if not self.limit.is_of_time:
                return self._decided(trial_times(runs, self.rounds), BESIDE_FIRST)
            return self._decided(trial_times([*runs, make(_BESIDE, None)], self.rounds), BESIDE_STEP)

    def _decided(self, times: Mapping[str, StepTimes], beside: str) -> StepPlan:
        """The plan that is taken, told in the log."""
        clock = clock_of(self.device)
        reference = seconds_by(times.get(_BESIDE, times["0"]), clock)
        rows = [
            tried(found, words, seconds_by(times[str(index)], clock), reference, self.seed)
            for index, (found, words) in enumerate(zip(self.plans, self.planned_for, strict=True))
        ]
        decided = decide(self.plans, rows, self.limit, beside=beside, clock=clock, rounds=self.rounds)
        _tell(decided)
        return decided

    def _beside(
        self,
        step: Callable[..., Any],
        captured: CapturedStep,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[str, Step | None]:
        """What runs in turns with the plans, in words and as it runs; None where that is the first plan."""
        if not self.limit.is_of_time:
            return BESIDE_FIRST, None
        if captured.host is None:
            return BESIDE_STEP, lambda: step(*args, **kwargs)
        order = PlannedVariant(captured, tuple(map(PlannedGraph.captured, captured.programs)))
        return BESIDE_ORDER, _runner(step, order, args, kwargs)


def _runner(
    step: Callable[..., Any], variant: PlannedVariant, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Step:
    """The programs of a variant on the user's objects, without host code after them."""
    alone = replace(variant, captured=replace(variant.captured, host=None), choice=None)
    runner = PlannedStep(step, never_again, alone, on_mismatch="error")
    return lambda: runner(*args, **kwargs)


def _synchronize(device: str) -> Step | None:
    return partial(torch.cuda.synchronize, device) if device.partition(":")[0] == "cuda" else None


def _tell(decided: StepPlan) -> None:
    record = decided.plan.programs[0].trials
    assert record is not None
    for row in record.rows:
        logger.info(
            "planned for %s: predicted %.3f, measured %.3f (%.3f to %.3f) of the time of %s",
            row.planned_for,
            row.predicted_ratio,
            row.measured_ratio,
            row.measured_ratio_low,
            row.measured_ratio_high,
            record.beside,
        )
    taken = record.rows[record.chosen]
    if record.reason == NONE_WITHIN:
        logger.warning(
            "none of %d plans measured within the limit of time; the fastest takes %.3f of the time of %s",
            len(record.rows),
            taken.measured_ratio,
            record.beside,
        )
    else:
        logger.info("taken: the plan for %s", taken.planned_for)
