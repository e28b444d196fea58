"""The check of one program: its plans run on fresh objects, and what comes of it in one word.

For each budget the peak that was predicted and the one that was measured must be the same to the byte, and after three
steps everything that can be reached from the step must have eager's bits: losses, gradients, parameters, buffers,
optimizer state, random states, and the user's own Python values. Two checkers look: `runtime.comparing.verification`, which sees
the gradients of every step, and `programs.reachable`, which shares no code with the capture.
"""

from __future__ import annotations

import gc
import random
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
import torch

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import InvalidBudget, NeaptideError, NumericsError, PlanMismatch
from neaptide.outcome import Limits
from neaptide.policy.prepared_step import PreparedStep, prepare
from neaptide.report.comparison import compare_programs
from neaptide.report.model import Comparison, ComparisonRow
from neaptide.report.profiling import over_budget
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestants import Measuring
from neaptide.runtime.steps.planned_graph import StepPlan
from neaptide.runtime.steps.planned_step import PlannedStep
from programs.program import Factory, Program
from programs.reachable import Snapshot

SEED: Final = 0
STEPS: Final = 3
SHARE: Final = "75%"
LOWEST: Final = "min"
# Enough for the searches to move and repeat operations of a program of a few hundred; how good the plans are is not
# checked here.
LIMITS: Final = Limits(time_s=0.5, work=400, seed=SEED)
# Scratch is measured on operations that run alone; between others a kernel may find its memory laid out otherwise.
ALLOCATOR_TOLERANCE: Final = 1.01
_DIFFERENCES_TOLD: Final = 4


class Outcome(StrEnum):
    """How a program ends. The first three are answers, the others are faults."""

    EXACT = "exact"  # the bytes as predicted, the bits of eager, within the budget
    FLOOR = "floor"  # the same, but the budget cannot be reached: refused with the lowest peak, and that plan is exact
    REFUSED = "refused"  # with line, reason and fix
    DIFFERENT = "different"  # other numbers than eager, and nobody said so
    INEXACT = "inexact"  # another peak than predicted
    UNEXPLAINED = "unexplained"  # refused without line, reason or fix
    CRASH = "crash"  # anything else
    UNSTEADY = "unsteady"  # eager itself does not do the same twice: a fault of the program, not of the plan


ANSWERS: Final = (Outcome.EXACT, Outcome.FLOOR, Outcome.REFUSED)


@dataclass
class Checked:
    """What a check found.

    Attributes:
        name: of the program.
        outcome: in one word.
        told: why, where it is no plain `exact`.
        operations: of the program of every later step.
        eager_peak_bytes: measured.
        baseline_peak_bytes: predicted, and measured, of the program in its own order.
        peaks: by budget: predicted bytes, and that share of the baseline's.
        seconds: of the processor, for the whole check.
    """

    name: str
    outcome: Outcome
    told: str = ""
    operations: int = 0
    eager_peak_bytes: int = 0
    baseline_peak_bytes: int = 0
    peaks: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


class _Ended(Exception):
    def __init__(self, outcome: Outcome, told: str) -> None:
        super().__init__(told)
        self.outcome, self.told = outcome, told


def check(program: Program, limits: Limits = LIMITS, budgets: tuple[str, ...] = (SHARE, LOWEST)) -> Checked:
    """Check a program at each budget. Whatever happens is a result, no exception."""
    began = time.process_time()
    checked = Checked(program.name, Outcome.EXACT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the program's author is warned of is not checked here
        try:
            _check(program.factory, checked, limits, budgets)
        except _Ended as end:
            checked.outcome, checked.told = end.outcome, end.told
        except NeaptideError as error:
            checked.outcome, checked.told = outcome_of(error), error.render()
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            checked.outcome = Outcome.CRASH
            checked.told = f"{type(error).__name__}: {error} | {_place(error)}"
    gc.collect()
    checked.seconds = time.process_time() - began
    return checked


def _check(plain: Factory, checked: Checked, limits: Limits, budgets: tuple[str, ...]) -> None:
    def factory() -> tuple[Callable[..., Any], Any]:
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002 - what users' code draws from
        return plain()

    expected = _after_eager(factory)
    _differ_not(_after_eager(factory), expected, Outcome.UNSTEADY, "two eager runs")
    step, batch = contestants.build(factory, SEED)
    prepared = prepare(step, (batch,), name=checked.name)
    checked.operations = len(prepared.captured.steady.graph.nodes)
    plans, floors = _plans(prepared, limits, budgets)
    compared = compare_programs(factory, prepared, plans, Measuring(0, seed=SEED))
    checked.eager_peak_bytes = compared.row("eager").measured_peak_bytes or 0
    checked.baseline_peak_bytes = compared.row("baseline").predicted_peak_bytes or 0
    for name in ("baseline", *plans):
        _check_row(compared, compared.row(name), checked)
    for name in plans.keys() - floors.keys():
        _check_budget(plans[name], compared.row(name))
    for name, found in plans.items():
        _differ_not(_after_planned(factory, found), expected, Outcome.DIFFERENT, f"{name} and eager")
    if SHARE in floors:
        checked.outcome, checked.told = Outcome.FLOOR, floors[SHARE]


def _plans(
    prepared: PreparedStep, limits: Limits, budgets: tuple[str, ...]
) -> tuple[dict[str, StepPlan], dict[str, str]]:
    """A plan for each budget, and what is said of those that are out of reach; theirs is the lowest found."""
    plans, floors = {}, {}
    for name in budgets:
        plans[name] = prepared.plan(Ask(_budget(name), limits=limits))
        error = over_budget(prepared, plans[name])
        if error is not None:
            if not _is_full(error):
                raise error
            floors[name] = error.render()
    return plans, floors


def _budget(name: str) -> Budget:
    try:
        return Budget(peak=name)
    except InvalidBudget:
        return Budget(peak=1)


def _check_row(compared: Comparison, row: ComparisonRow, checked: Checked) -> None:
    checked.peaks[row.name] = row.predicted_peak_bytes or 0
    if not row.bitwise_equal:
        notes = [note for note in compared.notes if "differs from eager" in note]
        raise _Ended(Outcome.DIFFERENT, f"{row.name}: {'; '.join(notes)} {row.max_abs_diff}")
    if row.predicted_peak_bytes != row.measured_peak_bytes:
        told = f"{row.name}: predicted {row.predicted_peak_bytes:,}, measured {row.measured_peak_bytes:,}"
        raise _Ended(Outcome.INEXACT, told)


def _check_budget(found: StepPlan, row: ComparisonRow) -> None:
    """What the allocator saw, scratch included, is within the bytes that were allowed."""
    allowed = found.plan.programs[0].budget_bytes
    measured = row.measured_allocator_peak_bytes or 0
    # Where numbers are drawn again, the generator's state is a tensor for a moment, as it is on the way to the plan's copy.
    if measured > allowed * ALLOCATOR_TOLERANCE + torch.get_rng_state().nbytes:
        raise _Ended(Outcome.INEXACT, f"{row.name}: allowed {allowed:,}, the allocator saw {measured:,}")


def _after_eager(factory: Factory) -> Snapshot:
    step, batch = contestants.build(factory, SEED)
    return _after(step, batch, step)


def _after_planned(factory: Factory, found: StepPlan) -> Snapshot:
    step, batch = contestants.build(factory, SEED)
    variant = contestants.rebind(found.variant)(step, batch)
    return _after(step, batch, PlannedStep(step, contestants.never_again, variant, on_mismatch="error"))


def _after(step: Callable[..., Any], batch: Any, run: Callable[..., Any]) -> Snapshot:
    torch.manual_seed(SEED + 1)
    results = [run(batch) for _ in range(STEPS)]
    return Snapshot({"step": step, "batch": batch, "results": results})


def _differ_not(found: Snapshot, expected: Snapshot, outcome: Outcome, who: str) -> None:
    differences = found.differences(expected)
    if differences:
        more = len(differences) - _DIFFERENCES_TOLD
        told = "; ".join(differences[:_DIFFERENCES_TOLD]) + (f" and {more} more" if more > 0 else "")
        raise _Ended(outcome, f"{who} differ at {told}")


def outcome_of(error: NeaptideError) -> Outcome:
    """An answer names line, reason and fix. What the classes for our own faults say is none."""
    is_ours = error.exit_code == NeaptideError.exit_code or isinstance(error, (NumericsError, PlanMismatch))
    if is_ours:
        return Outcome.CRASH
    return Outcome.REFUSED if _is_full(error) else Outcome.UNEXPLAINED


def _is_full(error: NeaptideError) -> bool:
    return bool(error.where and error.why and error.next_step)


def _place(error: BaseException) -> str:
    return " < ".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)[-5:])
    )
