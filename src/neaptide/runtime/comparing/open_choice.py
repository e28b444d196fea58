"""Plans of one step, of which one is taken by what they take: on the user's own objects at the first usual call, or apart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from neaptide.frontends.programs.captured import CapturedStep
from neaptide.plans import NONE_WITHIN
from neaptide.runtime.calls.state_copy import StateCopy
from neaptide.runtime.comparing.contestant_process import rivals
from neaptide.runtime.comparing.contestants import Factory, never_again, trial_times
from neaptide.runtime.comparing.trials import ROUNDS, TrialLimit, clock_of, decide, seconds_by, tried
from neaptide.runtime.measuring.timing import Step, StepTimes, interleaved
from neaptide.runtime.saving.scratch_file import ScratchFile
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, StepPlan
from neaptide.runtime.steps.planned_step import PlannedStep

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

        Host code behind the program is not run: what it does cannot be undone. The ratios are then to the step in program
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
    """The programs of a variant on the user's objects, without host code behind them."""
    alone = replace(variant, captured=replace(variant.captured, host=None), choice=None)
    runner = PlannedStep(step, never_again, alone, on_mismatch="error")
    return lambda: runner(*args, **kwargs)


def _synchronize(device: str) -> Step | None:
    return torch.cuda.synchronize if device.partition(":")[0] == "cuda" else None


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
