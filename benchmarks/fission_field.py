"""The programs of one step that `fission_runs.py` compares, made and measured in one process."""

from __future__ import annotations

import gc
import logging
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import fission_steps
from bench_record import say
from chosen_rounds import SEED, chosen_for, measured_beside, parted, rounds_of_both, tried
from neaptide import zoo

if TYPE_CHECKING:
    from neaptide.cost.timing.call_clock import ClockNormalisation
    from neaptide.plans import PlannedProgram
    from neaptide.runtime.comparing.contestants import Contestant, Measured
    from neaptide.runtime.steps.planned_graph import PlannedVariant, StepPlan

PARTS: Final = (2, 4, 8, 16)
STEPS: Final = 3
LOSS_TOLERANCE: Final = 1e-3
OURS: Final = "ours"
NAIVE: Final = "micro_batch"
RECOMPUTE: Final = "recompute"
EAGER: Final = ("eager", "eager, a third later", "eager, two thirds later")
SEARCHES: Final = {
    RECOMPUTE: ("default", "bitwise"),
    NAIVE: ("micro_batch", "close"),
    OURS: ("default", "close"),
}
# Predicted times over program order's for which plans of each kind are made. The first one is for first steps too. The least
# and the greatest are for steps that measure slower or faster than they are predicted. In between they lie about as far apart
# as predictions are from what is measured, and a little below the limits that are reported.
FRONT: Final = (1.1, 0.94, 0.97, 0.99, 1.01, 1.04, 1.06, 1.15, 1.24, 1.4)
# Of the time for a front of ours, what each gets: most of what they plan is priced once.
SHARES: Final = {RECOMPUTE: 0.4, NAIVE: 0.4, OURS: 1.0}


class Listener(logging.Handler):
    """Keeps what is said."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Field:
    """The programs of one step, made and measured in this process."""

    def __init__(self, spec: str, time_limit_s: float) -> None:
        from neaptide.planner.strategies.program_order import baseline
        from neaptide.policy import searched_variant
        from neaptide.policy.prepared_step import prepare
        from neaptide.runtime.comparing import contestants
        from neaptide.runtime.comparing.verification import verify_eager

        self.spec, self.time_limit_s = spec, time_limit_s
        own = spec.partition("@")[0] in fission_steps.NAMES
        self.factory = fission_steps.factory(spec) if own else zoo.factory(spec)
        self.rows: list[dict[str, Any]] = []
        self.runners: list[Contestant] = []
        self.eager: list[Contestant] = []
        self.fronts: dict[str, dict[str, Any]] = {}
        self.plan_runners: list[Contestant] = []
        self.makers: dict[str, Callable[..., PlannedVariant]] = {}
        self.plans: dict[str, PlannedProgram] = {}
        self.losses = losses_of(*contestants.build(self.factory, SEED))
        self.expected = verify_eager(self.factory, SEED)
        step, batch = contestants.build(self.factory, SEED)
        self.prepared = prepare(step, (batch,), name=spec)
        self.baseline_seconds = baseline(self.prepared.problem()).seconds
        self.normalisation: ClockNormalisation | None = None
        self.tried: list[str] = []
        searched_variant.logger.addHandler(Listener(self.tried))  # it says which variants were planned
        searched_variant.logger.setLevel(logging.INFO)

    def add_eager(self) -> None:
        """The step as it is, several times: what else the machine does while eager runs is in the ratio of every program."""
        from neaptide.runtime.comparing import contestants

        self.eager = [contestants.eager_contestant(self.factory, SEED, name) for name in EAGER]
        self.rows.append({"program": EAGER[0]})

    def add_micro_batches(self) -> None:
        """The step in parts by hand."""
        from hand_micro_batches import CannotSplitError, by_hand
        from neaptide.runtime.comparing import contestants

        for parts in PARTS:
            name = f"eager in {parts}"
            try:
                step, batch = contestants.build(self.factory, SEED)
                losses = losses_of(by_hand(self.spec, step, batch, parts))
                step, batch = contestants.build(self.factory, SEED)
                run = by_hand(self.spec, step, batch, parts)
            except CannotSplitError as reason:
                self.rows.append({"program": name, "note": str(reason)})
                continue
            self._add_peer(name, step, batch, run, losses)

    def add_checkpoints(self) -> None:
        """`torch.utils.checkpoint` in three ways."""
        from checkpoint_peers import PEERS
        from neaptide.runtime.comparing import contestants

        for name, wrap in PEERS.items():
            step, batch = contestants.build(self.factory, SEED)
            count = wrap(step)
            if not count:
                self.rows.append({"program": name, "note": "no blocks"})
                continue
            try:
                losses = losses_of(step, batch)
            except Exception as error:  # noqa: BLE001 - whatever a model that is taken apart does
                said = (str(error).splitlines() or [type(error).__name__])[0][:80]
                self.rows.append({"program": name, "note": f"cannot be run so: {said}"})
                continue
            step, batch = contestants.build(self.factory, SEED)
            wrap(step)
            self._add_peer(name, step, batch, lambda step=step, batch=batch: step(batch), losses)

    def _add_peer(
        self, name: str, step: Callable[..., Any], batch: Any, run: Callable[[], Any], losses: list[float]
    ) -> None:
        """A program that takes part where its losses are eager's."""
        from neaptide.frontends.state.state_finder import find_state
        from neaptide.runtime.calls.binding import state_tensors
        from neaptide.runtime.comparing.contestants import Contestant

        away = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, self.losses, strict=True))
        if not away <= LOSS_TOLERANCE:
            self.rows.append({"program": name, "note": f"another loss than eager's, by {away:.1e}"})
            return
        state = find_state(step)
        self.runners.append(Contestant(name, run, lambda: [*state_tensors(state), *batch.values()]))
        self.rows.append({"program": name, "loss_difference": away})

    def add_front(self, kind: str) -> None:
        """Plans of one kind for several predicted times, each program once, ready to run."""
        from neaptide.budget import Budget
        from neaptide.outcome import Limits
        from neaptide.policy.prepared_step import Ask
        from neaptide.policy.searched_front import distinct, plans_for

        strategy, numerics = SEARCHES[kind]
        limits = Limits(time_s=SHARES[kind] * self.time_limit_s, seed=SEED)
        # The limit of the plan that is asked for is a share: seconds would be held at the speed of the moment. Those of the
        # others are not.
        asked, *others = FRONT
        budgets = [
            Budget(None, latency=f"+{100 * (asked - 1):.6g}%"),
            *(Budget(None, latency=ratio * self.baseline_seconds) for ratio in others),
        ]
        self.tried.clear()
        began = time.monotonic()
        found = plans_for(
            self.prepared,
            Ask(budgets[0], strategy, limits, numerics=numerics, workers=1),
            budgets[1:],
            otherwise_for=len(budgets) if kind == OURS else 0,
        )
        say(f"  {kind}: {len(found.best)} plans in {time.monotonic() - began:.0f} s")
        plans = found.named([f"{ratio:.2f}" for ratio in FRONT])
        kept = distinct([made for _, made in plans])
        for index in kept:
            self._add_plan(kind, *plans[index])
        self.fronts[kind] = {
            "seconds": round(time.monotonic() - began, 1),
            "planned_for": list(FRONT),
            "kept": [plans[index][0] for index in kept],
            "tried": list(self.tried),
        }

    def _add_plan(self, kind: str, planned_for: str, found: StepPlan) -> None:
        """Make a plan ready to run; a program that is there already runs once."""
        from neaptide.policy.searched_front import is_same_program
        from neaptide.runtime.comparing import contestants

        name = f"{kind} for {planned_for}"
        steady = found.plan.programs[0]
        made = steady.predictions
        row: dict[str, Any] = {
            "program": name,
            "kind": kind,
            "planned_for": planned_for,
            "predicted_peak_bytes": made.peak_bytes,
            "predicted_peak_with_workspace_bytes": made.peak_with_workspace_bytes,
            "predicted_seconds": made.seconds,
            "predicted_ratio": made.seconds / made.baseline_seconds,
            "rewrites": [described(rewrite) for rewrite in steady.rewrites],
        }
        say(f"  {name}: {row['predicted_ratio']:.3f} predicted, {row['rewrites'] or 'as it is'}")
        self.rows.append(row)
        same = next((other for other, made in self.plans.items() if is_same_program(made, steady)), None)
        if same is not None:
            row["same_as"] = same
            return
        self.plans[name] = steady
        self.makers[name] = contestants.rebind(found.variant)
        runner = contestants.planned_contestant(name, self.factory, SEED, self.makers[name])
        self.plan_runners.append(runner)

    def verify(self) -> None:
        """Compare the numbers of the plans that were chosen with eager's."""
        from neaptide.runtime.comparing.verification import verify_planned

        theirs = self.expected.tensors["parameters"]
        for row in self.rows:
            if not row.get("chosen_for") or "kind" not in row:
                continue
            make = self.makers[row.get("same_as", row["program"])]
            outcome, record = verify_planned(self.factory, SEED, make, self.expected)
            row |= {
                "agrees": outcome.agrees,
                "bitwise_equal": outcome.bitwise_equal,
                "max_abs_diff": outcome.max_abs_diff,
                "worst": outcome.worst,
                "parameter_difference": max(
                    difference(tensor, theirs[key]) for key, tensor in record.tensors["parameters"].items()
                ),
            }

    def measure(self, rounds: int, latencies: list[int]) -> None:
        """Peaks and times of all programs, in turns; of plans those are reported that are chosen."""
        from neaptide.cost.timing.call_clock import ClockNormalisation
        from neaptide.runtime.comparing import contestants

        gc.collect()
        clock, seen = self.prepared.clock, []
        assert clock is not None
        everything = spread(self.eager, [*self.runners, *self.plan_runners])
        found = contestants.measure(
            everything, rounds_of_both(rounds), between=lambda: seen.append(clock.reference_now_s())
        )
        found |= {EAGER[0]: middle([found[name] for name in EAGER])}
        self.normalisation = ClockNormalisation(clock.reference_s, statistics.median(seen)) if seen else None
        trial, reported = parted(found)
        self._choose(trial, latencies)
        for row in self.rows:
            name = row.get("same_as", row["program"])
            if name not in reported or ("kind" in row and not row["chosen_for"]):
                continue
            row.update(measured_beside(reported[name], reported[EAGER[0]]))
            if "predicted_peak_bytes" in row:
                row["predicted_above"] = row["predicted_peak_bytes"] - row["measured_peak_bytes"]
                row["predicted_with_workspace_above"] = (
                    row["predicted_peak_with_workspace_bytes"] - row["measured_allocator_peak_bytes"]
                )

    def _choose(self, found: Mapping[str, Measured], latencies: list[int]) -> None:
        """Keep of each kind of plans those that measure best within a limit each."""
        kinds: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            if "kind" in row:
                kinds.setdefault(row["kind"], []).append(row)
        for rows in kinds.values():
            trials = []
            for row in rows:
                ran = found[row.get("same_as", row["program"])]
                trials.append(tried(row["predicted_peak_with_workspace_bytes"], ran, found[EAGER[0]]))
                row["trial_cpu_ratio"] = trials[-1].measured_ratio
            for row, chosen in zip(rows, chosen_for(trials, latencies), strict=True):
                row["chosen_for"] = chosen


def spread(few: list[Contestant], many: list[Contestant]) -> list[Contestant]:
    """Some programs, with about as many of the others between each two of them."""
    width = -(-len(many) // len(few))
    return [one for number, first in enumerate(few) for one in (first, *many[number * width :][:width])]


def middle(found: list[Measured]) -> Measured:
    """One program that ran several times a round: the middle of its times in each."""
    times = [one.times for one in found]
    walls = [statistics.median(each) for each in zip(*(one.wall_s for one in times if one), strict=True)]
    cpus = [statistics.median(each) for each in zip(*(one.cpu_s for one in times if one), strict=True)]
    assert found[0].times is not None
    return replace(found[0], times=replace(found[0].times, wall_s=tuple(walls), cpu_s=tuple(cpus)))


def losses_of(run: Callable[..., Any], *args: Any) -> list[float]:
    """What the first few steps return."""
    import torch

    torch.manual_seed(SEED + 1)
    return [float(run(*args)) for _ in range(STEPS)]


def difference(found: Any, expected: Any) -> float:
    """Largest difference of two tensors over the largest number of the second."""
    if found.numel() == 0:
        return 0.0
    largest = float(expected.double().abs().max())
    return float((found.double() - expected.double()).abs().max()) / max(largest, 1e-30)


def described(rewrite: Any) -> str:
    """A rewrite in few words."""
    settings = dict(rewrite.settings)
    if "parts" not in settings:
        return f"{rewrite.rule} at {len(rewrite.nodes)}"
    of = f"of {settings['length']}" if "length" in settings else "that overlap"
    return f"{len(rewrite.nodes)} operations in {settings['parts']} parts {of}"


def measured(spec: str, rounds: int, time_limit_s: float, latencies: list[int]) -> dict[str, Any]:
    """One step: all its programs, measured in this process."""
    import torch

    torch.set_num_threads(1)
    field = Field(spec, time_limit_s)
    field.add_eager()
    field.add_micro_batches()
    field.add_checkpoints()
    for kind in SEARCHES:
        field.add_front(kind)
    field.measure(rounds, latencies)
    field.verify()
    return {
        "spec": spec,
        "time_limit_s": time_limit_s,
        "latencies": latencies,
        "rounds": rounds,
        "trial_rounds": rounds,
        "predicted_baseline_seconds": field.baseline_seconds,
        # How many times as long the processor took as at the speed of predicted seconds.
        "clock_factor": 1.0 if field.normalisation is None else field.normalisation.factor,
        "fronts": field.fronts,
        "programs": field.rows,
    }
