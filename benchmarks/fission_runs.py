"""Steps in parts, really run: `python benchmarks/fission_runs.py [--models gpt2 ...] [--latency 0 10] [--keep]`.

For models of the zoo and the steps of `fission_steps.py`, at the lowest peak within some more time:

* ours: `numerics="close"`, regions of the step in parts with recomputation inside and around;
* the naive combination: `strategy="micro_batch"`, the whole step in parts, each planned by itself;
* recomputation alone: `numerics="bitwise"`;

and beside them eager, eager micro-batching by hand (`hand_micro_batches.py`) and `torch.utils.checkpoint`
(`checkpoint_peers.py`). Peaks are counted by the allocator's events, processor times are taken in turns in one process,
and the ratio to eager within each round; printed is the median of the rounds. A prediction is exact where the peak of the
storages and the peak with workspace are both the measured ones to the byte. Parameters are compared with eager's after
three steps, as the largest difference over the largest number of a tensor.

Below the table: whether ours is on or below the lowest peak of all others that were run and are within the limit of
time. Times are noisy, so that each may be `TOLERANCE` above the limit.

Searches take a limit of time, which a busy machine needs more of; the JSON has it. Each model is kept in `parts` beside
the result as soon as it is measured, and `--keep` takes it from there. What was not asked for is named under `missing`.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fission_steps
from bench_record import MIB, RESULTS, recorded, save, say, table
from model_rows import measured_rows
from neaptide import zoo

if TYPE_CHECKING:
    from neaptide.runtime.contestants import Contestant
    from neaptide.runtime.step_plan import StepPlan

SEED: Final = 0
ROUNDS: Final = 7
LATENCIES: Final = (0, 5, 10, 25)
PARTS: Final = (2, 4, 8, 16)
TOLERANCE: Final = 0.03
STEPS: Final = 3
PART_S: Final = 7200.0
LOSS_TOLERANCE: Final = 1e-3
NAMES: Final = (*zoo.names(), *fission_steps.NAMES)
OURS: Final = "ours"
NAIVE: Final = "micro_batch"
RECOMPUTE: Final = "recompute"
SEARCHES: Final = {
    RECOMPUTE: ("default", "bitwise"),
    NAIVE: ("micro_batch", "close"),
    OURS: ("default", "close"),
}
COLUMNS: Final = (
    "step",
    "program",
    "peak (MiB)",
    "of eager's",
    "CPU of eager's",
    "95 % interval",
    "predicted",
    "exact",
    "parameters",
    "note",
)


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
        from neaptide.runtime import contestants, searched_variant
        from neaptide.runtime.prepared_step import prepare
        from neaptide.runtime.verification import verify_eager

        self.spec, self.time_limit_s = spec, time_limit_s
        own = spec.partition("@")[0] in fission_steps.NAMES
        self.factory = fission_steps.factory(spec) if own else zoo.factory(spec)
        self.rows: list[dict[str, Any]] = []
        self.runners: list[Contestant] = []
        self.losses = losses_of(*contestants.build(self.factory, SEED))
        self.expected = verify_eager(self.factory, SEED)
        step, batch = contestants.build(self.factory, SEED)
        self.prepared = prepare(step, (batch,), name=spec)
        self.tried: list[str] = []
        searched_variant.logger.addHandler(Listener(self.tried))  # it says which variants were planned
        searched_variant.logger.setLevel(logging.INFO)

    def add_eager(self) -> None:
        """The step as it is."""
        from neaptide.runtime import contestants

        self.runners.append(contestants.eager_contestant(self.factory, SEED))
        self.rows.append({"program": "eager"})

    def add_micro_batches(self) -> None:
        """The step in parts by hand."""
        from hand_micro_batches import CannotSplitError, by_hand
        from neaptide.runtime import contestants

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
        from neaptide.runtime import contestants

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
        from neaptide.frontends.state_finder import find_state
        from neaptide.runtime.binding import state_tensors
        from neaptide.runtime.contestants import Contestant

        away = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, self.losses, strict=True))
        if not away <= LOSS_TOLERANCE:
            self.rows.append({"program": name, "note": f"another loss than eager's, by {away:.1e}"})
            return
        state = find_state(step)
        self.runners.append(Contestant(name, run, lambda: [*state_tensors(state), *batch.values()]))
        self.rows.append({"program": name, "loss_difference": away})

    def add_plan(self, kind: str, latency: int) -> None:
        """Plan, verify, and take part; a plan that an earlier row has already is not run twice."""
        from neaptide.runtime import contestants
        from neaptide.runtime.verification import verify_planned

        name = f"{kind} +{latency} %"
        self.tried.clear()
        began = time.monotonic()
        found = self._planned(kind, latency)
        steady = found.plan.programs[0]
        made = steady.predictions
        row: dict[str, Any] = {
            "program": name,
            "kind": kind,
            "latency": latency,
            "plan_seconds": round(time.monotonic() - began, 1),
            "predicted_peak_bytes": made.peak_bytes,
            "predicted_peak_with_workspace_bytes": made.peak_with_workspace_bytes,
            "predicted_ratio": made.seconds / made.baseline_seconds,
            "rewrites": [described(rewrite) for rewrite in steady.rewrites],
            "tried": list(self.tried),
        }
        say(f"  {name}: {row['plan_seconds']} s, {row['rewrites'] or 'as it is'}")
        self.rows.append(row)
        same = next((r for r in self.rows if r.get("_plan") == found.plan.programs), None)
        if same is not None:
            row["same_as"] = same["program"]
            return
        row["_plan"] = found.plan.programs
        make = contestants.rebind(found.variant)
        outcome, record = verify_planned(self.factory, SEED, make, self.expected)
        theirs = self.expected.tensors["parameters"]
        row["agrees"], row["bitwise_equal"] = outcome.agrees, outcome.bitwise_equal
        row["max_abs_diff"], row["worst"] = outcome.max_abs_diff, outcome.worst
        row["parameter_difference"] = max(
            difference(tensor, theirs[key]) for key, tensor in record.tensors["parameters"].items()
        )
        self.runners.append(contestants.planned_contestant(name, self.factory, SEED, make))

    def _planned(self, kind: str, latency: int) -> StepPlan:
        from neaptide.outcome import Limits
        from neaptide.planner.budget import Budget
        from neaptide.runtime.prepared_step import SearchOptions

        strategy, numerics = SEARCHES[kind]
        limits = Limits(time_s=self.time_limit_s, seed=SEED)
        return self.prepared.plan(
            SearchOptions(Budget(None, latency=f"+{latency}%"), strategy, limits, numerics=numerics)
        )

    def measure(self, rounds: int) -> None:
        """Peaks and times of all, in turns, into the rows."""
        from neaptide.runtime import contestants
        from neaptide.runtime.timing import median_ratio

        gc.collect()
        found = contestants.measure(self.runners, rounds)
        eager = found["eager"]
        for row in self.rows:
            row.pop("_plan", None)
            name = row.get("same_as", row["program"])
            if name not in found:
                continue
            memory, times = found[name].memory, found[name].times
            assert times is not None
            assert eager.times is not None
            ratio = median_ratio(times.cpu_s, eager.times.cpu_s, seed=SEED)
            row |= {
                "measured_peak_bytes": memory.measured_peak_bytes,
                "measured_allocator_peak_bytes": memory.measured_allocator_peak_bytes,
                "peak_share": memory.measured_allocator_peak_bytes
                / eager.memory.measured_allocator_peak_bytes,
                "cpu_seconds": statistics.median(times.cpu_s),
                "cpu_ratio": ratio.ratio,
                "cpu_ratio_low": ratio.low,
                "cpu_ratio_high": ratio.high,
            }
            if "predicted_peak_bytes" in row:
                row["predicted_above"] = row["predicted_peak_bytes"] - row["measured_peak_bytes"]
                row["predicted_with_workspace_above"] = (
                    row["predicted_peak_with_workspace_bytes"] - row["measured_allocator_peak_bytes"]
                )


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
    return f"{len(rewrite.nodes)} operations in {settings['parts']} parts of {settings['length']}"


def measured(spec: str, rounds: int, time_limit_s: float, latencies: list[int]) -> dict[str, Any]:
    """One step: all its programs, measured in this process."""
    import torch

    torch.set_num_threads(1)
    field = Field(spec, time_limit_s)
    field.add_eager()
    field.add_micro_batches()
    field.add_checkpoints()
    for latency in latencies:
        for kind in SEARCHES:
            field.add_plan(kind, latency)
    field.measure(rounds)
    return {"spec": spec, "time_limit_s": time_limit_s, "latencies": latencies, "programs": field.rows}


def envelope(model: dict[str, Any]) -> list[dict[str, Any]]:
    """For each limit of time, ours beside the lowest peak of all others within it."""
    ran = [row for row in model["programs"] if "cpu_ratio" in row]
    found = []
    for latency in model["latencies"]:
        longest = (1 + latency / 100) * (1 + TOLERANCE)
        ours = next(row for row in ran if row.get("kind") == OURS and row["latency"] == latency)
        others = [row for row in ran if row.get("kind") != OURS and row["cpu_ratio"] <= longest]
        least = min(others, key=lambda row: row["measured_allocator_peak_bytes"])
        naive = [row for row in others if row.get("kind") == NAIVE]
        in_time = ours["cpu_ratio"] <= longest
        lower = ours["measured_allocator_peak_bytes"] <= least["measured_allocator_peak_bytes"]
        found.append(
            {
                "latency": latency,
                "ours": ours["peak_share"],
                "ours_cpu_ratio": ours["cpu_ratio"],
                "least_other": least["program"],
                "least_other_share": least["peak_share"],
                "least_naive_share": min((row["peak_share"] for row in naive), default=None),
                "is_in_time": in_time,
                "is_on_or_below": in_time and lower,
            }
        )
    return found


def collect(models: list[str], folder: Path, *, keep: bool, **asked: Any) -> dict[str, Any]:
    """All rows; a step that fails is a row with its `failure`. Each is kept in a folder as soon as it is there."""
    options = [f"--rounds={asked['rounds']}", f"--time-limit={asked['time_limit_s']}", "--latency"]
    options += [str(latency) for latency in asked["latencies"]]
    rows = measured_rows(
        "fission_runs.py",
        models,
        folder,
        size=asked["size"],
        options=options,
        keep=keep,
        timeout_s=PART_S,
        prefix="fission-",
    )
    settings = {name: value for name, value in asked.items() if name != "rounds"}
    settings |= {"tolerance_of_times": TOLERANCE, "missing": missing(rows)}
    return recorded(rows, seed=SEED, repeats=asked["rounds"], **settings)


def missing(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """By step, the limits of time that were not run."""
    ran = {row["spec"].partition("@")[0]: row["latencies"] for row in rows if "failure" not in row}
    left = {name: [latency for latency in LATENCIES if latency not in ran.get(name, ())] for name in NAMES}
    return {name: latencies for name, latencies in left.items() if latencies}


def left_out(missing: dict[str, list[int]]) -> str:
    """What was not run, in words: steps by the limits of time that they lack."""
    lacking: dict[tuple[int, ...], list[str]] = {}
    for name, latencies in missing.items():
        lacking.setdefault(tuple(latencies), []).append(name)
    return "; ".join(
        f"{', '.join(names)} at {', '.join(f'+{latency}' for latency in latencies)} %"
        for latencies, names in lacking.items()
    )


def text(result: dict[str, Any]) -> str:
    """The table, the lower envelopes, and what failed or is missing."""
    lines, verdicts, others = [], [], []
    for model in result["rows"]:
        if "failure" in model:
            others.append(f"{model['spec']} failed: {model['failure']}")
            continue
        lines += [cells(model["spec"], row) for row in model["programs"]]
        verdicts += [verdict(model["spec"], found) for found in envelope(model)]
    if result["settings"]["missing"]:
        others.append(f"not run: {left_out(result['settings']['missing'])}")
    return "\n".join([table(COLUMNS, lines), "", *verdicts, *others])


def cells(spec: str, row: dict[str, Any]) -> list[str]:
    """A row as it is printed."""
    is_run, is_plan = "cpu_ratio" in row, "kind" in row
    note = row.get("note", "") or "; ".join(row.get("rewrites", ()))
    if "same_as" in row:
        note = f"the program of {row['same_as']!r}"
    agreed = {True: "", False: " NO"}[row.get("agrees", True)]
    return [
        spec,
        row["program"],
        f"{row['measured_allocator_peak_bytes'] / MIB:.2f}" if is_run else "-",
        f"{row['peak_share']:.3f}" if is_run else "-",
        f"{row['cpu_ratio']:.3f}" if is_run else "-",
        f"{row['cpu_ratio_low']:.3f} to {row['cpu_ratio_high']:.3f}" if is_run else "-",
        f"{row['predicted_ratio']:.3f}" if is_plan else "-",
        exactness(row) if is_plan and is_run else "-",
        f"{row['parameter_difference']:.1e}{agreed}" if "parameter_difference" in row else "-",
        note,
    ]


def exactness(row: dict[str, Any]) -> str:
    """Whether the predicted peak is the measured one, or by how many bytes it is above."""
    storages, workspace = row["predicted_above"], row["predicted_with_workspace_above"]
    return "yes" if not storages and not workspace else f"{storages:+d} / {workspace:+d}"


def verdict(spec: str, found: dict[str, Any]) -> str:
    """Ours beside all others, in a line."""
    said = "on or below all others" if found["is_on_or_below"] else "NOT on or below all others"
    if not found["is_in_time"]:
        said = "NOT in time"
    return (
        f"{spec} +{found['latency']} %: ours {found['ours']:.3f} of eager's peak in {found['ours_cpu_ratio']:.3f} of"
        f" its time, the least of the others {found['least_other_share']:.3f} ({found['least_other']}): {said}"
        f" (times may be {TOLERANCE:.0%} above the limit)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument(
        "--latency", nargs="*", type=int, default=list(LATENCIES), help="per cent of more time"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed rounds")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--keep", action="store_true", help="take steps that an earlier run has measured")
    parser.add_argument("--one", metavar="SPEC", help="measure one step here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.one, asked.rounds, asked.time_limit, asked.latency)))
        return
    result = collect(
        asked.models,
        asked.output / "parts",
        keep=asked.keep,
        size=asked.size,
        rounds=asked.rounds,
        time_limit_s=asked.time_limit,
        latencies=asked.latency,
    )
    print(text(result))
    save("fission_runs" if asked.size == "small" else f"fission_runs_{asked.size}", result, asked.output)


if __name__ == "__main__":
    main()
