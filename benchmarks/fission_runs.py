"""Steps in parts, really run: `python benchmarks/fission_runs.py [--models gpt2 ...] [--latency 0 10] [--keep]`.

For models of the zoo and the steps of `fission_steps.py`, at the lowest peak within some more time:

* ours: `numerics="close"`, regions of the step in parts with recomputation inside and around;
* the naive combination: `strategy="micro_batch"`, the whole step in parts, each planned by itself;
* recomputation alone: `numerics="bitwise"`;

and beside them eager, eager micro-batching by hand (`hand_micro_batches.py`) and `torch.utils.checkpoint`
(`checkpoint_peers.py`). Of each kind one front of plans is made, for several predicted times; ours has for each of them the
best plan of each division too, as trials do. A program that two kinds come to is run once. All run in turns. By every other
round the plans of each kind are chosen: for each limit of time the lowest peak that measured within it, or the fastest
plan. Those are verified, and the other rounds are reported. Peaks are counted by the allocator's events, processor times are taken in one
process, whose heap keeps what is freed as in those of `neaptide compare`, and the ratio to eager within each round, of
whose three runs in a round the middle one counts; printed is the median of the rounds. A prediction is exact where the
peak of the storages and the peak with workspace are both the measured ones to the byte. Parameters are compared with
eager's after three steps, as the largest difference over the largest number of a tensor.

Below the table: whether ours is on or below the lowest peak that each of the others comes to within the limit of time, all
chosen in the same way. Times are noisy, so that each may be `TOLERANCE` above the limit; where plans are chosen, half of
that. Counted as well is how often ours is on or below any plan of the others that is reported within the limit, for
whichever limit it was chosen.

Costs of operations are measured anew for each step, in its own process. Searches take a limit of time, which a busy machine
needs more of; the JSON has it. Each step is kept in `parts` beside the
result as soon as it is measured, and `--keep` takes it from there. Steps that the result already has and that are not asked
for stay in it, so that several runs with other steps may write to one folder, also at once. What is in none of them is
named under `missing`.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import fission_steps
from bench_record import MIB, RESULTS, locked, recorded, save, table
from chosen_rounds import SEED, TOLERANCE, longest
from fission_field import NAIVE, OURS, measured
from model_rows import measured_rows
from neaptide import zoo
from neaptide.runtime.comparing.contestant_process import KEEPING_HEAP

ROUNDS: Final = 6
LATENCIES: Final = (0, 5, 10, 25)
NEAR: Final = (0.10, 0.05)
"""How near predicted seconds, and predicted ratios, have to be to the measured ones to be counted."""
PART_S: Final = 7200.0
NAMES: Final = (*zoo.names(), *fission_steps.NAMES)
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


def envelope(model: dict[str, Any]) -> list[dict[str, Any]]:
    """For each limit of time, ours beside the lowest peak of all others within it.

    Of the others' plans those count that were chosen for the limit, as of ours; `is_on_or_below_any` is of all that were
    reported within it.
    """
    ran = [row for row in model["programs"] if "cpu_ratio" in row]
    found = []
    for latency in model["latencies"]:
        ours = next(row for row in ran if row.get("kind") == OURS and latency in row["chosen_for"])
        within = [row for row in ran if row.get("kind") != OURS and row["cpu_ratio"] <= longest(latency)]
        others = [row for row in within if "kind" not in row or latency in row["chosen_for"]]
        least = min(others, key=_peak)
        naive = [row for row in others if row.get("kind") == NAIVE]
        in_time = ours["cpu_ratio"] <= longest(latency)
        found.append(
            {
                "latency": latency,
                "ours": ours["peak_share"],
                "ours_cpu_ratio": ours["cpu_ratio"],
                "is_tried": model.get("trial_rounds", 0) > 0,
                "least_other": least["program"],
                "least_other_share": least["peak_share"],
                "least_naive_share": min((row["peak_share"] for row in naive), default=None),
                "is_in_time": in_time,
                "is_on_or_below": in_time and _peak(ours) <= _peak(least),
                "is_on_or_below_any": in_time and _peak(ours) <= min(map(_peak, within)),
            }
        )
    return found


def _peak(row: dict[str, Any]) -> int:
    peak: int = row["measured_allocator_peak_bytes"]
    return peak


def on_or_below_line(rows: list[dict[str, Any]]) -> str:
    """How often ours is on or below the others, in words."""
    found = [one for model in rows if "failure" not in model for one in envelope(model)]
    same, any_plan = (sum(one[key] for one in found) for key in ("is_on_or_below", "is_on_or_below_any"))
    return (
        f"`close` is on or below all others within the same time in {same} of {len(found)} cases, and on or below every"
        f" plan of theirs that was reported within that time in {any_plan}."
    )


def collect(models: list[str], folder: Path, *, keep: bool, **asked: Any) -> list[dict[str, Any]]:
    """A row for each step; one that fails has its `failure`. Each is kept in a folder as soon as it is there."""
    options = [f"--{key.replace('_', '-')}={asked[key]}" for key in ("rounds", "time_limit")]
    options.append("--latency")
    options += [str(latency) for latency in asked["latencies"]]
    return measured_rows(
        "fission_runs.py",
        models,
        folder,
        size=asked["size"],
        options=options,
        keep=keep,
        timeout_s=PART_S,
        prefix="fission-tried-",
        environment=KEEPING_HEAP,
    )


def together(rows: list[dict[str, Any]], path: Path, size: str, rounds: int) -> dict[str, Any]:
    """The result with some rows, and with those of other steps that a result before it has."""
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    found = {row["spec"]: row for row in [*before, *rows]}
    order = {f"{name}@{size}": number for number, name in enumerate(NAMES)}
    everything = sorted(found.values(), key=lambda row: order.get(row["spec"], len(order)))
    settings = {"size": size, "tolerance_of_times": TOLERANCE, "missing": missing(everything, size)}
    return recorded(everything, seed=SEED, repeats=rounds, **settings)


def missing(rows: list[dict[str, Any]], size: str) -> dict[str, list[int]]:
    """By step, the limits of time that were not run at a size."""
    ran = {row["spec"]: row["latencies"] for row in rows if "failure" not in row}
    left = {
        name: [latency for latency in LATENCIES if latency not in ran.get(f"{name}@{size}", ())]
        for name in NAMES
    }
    return {name: latencies for name, latencies in left.items() if latencies}


def near(rows: list[dict[str, Any]]) -> tuple[int, int, int, int]:
    """How many predicted seconds are near the measured ones, of how many, baselines included; and ratios to eager.

    Seconds are told at the speed of the processor while the programs ran, where it was seen.
    """
    seconds: list[float] = []
    ratios: list[float] = []
    for model in rows:
        ran = [row for row in model.get("programs", ()) if "cpu_ratio" in row]
        factor = model.get("clock_factor", 1.0)
        if "predicted_baseline_seconds" in model:
            seconds.append(factor * model["predicted_baseline_seconds"] / ran[0]["cpu_seconds"])
        plans = [row for row in ran if "predicted_ratio" in row and "same_as" not in row]
        seconds += [
            factor * row["predicted_seconds"] / row["cpu_seconds"]
            for row in plans
            if "predicted_seconds" in row
        ]
        ratios += [row["predicted_ratio"] / row["cpu_ratio"] for row in plans]
    return (
        sum(abs(found - 1) <= NEAR[0] for found in seconds),
        len(seconds),
        sum(abs(found - 1) <= NEAR[1] for found in ratios),
        len(ratios),
    )


def near_line(rows: list[dict[str, Any]]) -> str:
    """The same in words."""
    seconds, of_seconds, ratios, of_ratios = near(rows)
    return (
        f"Predicted seconds are within {NEAR[0]:.0%} of the measured ones for {seconds} of {of_seconds} programs, "
        f"ratios to eager within {NEAR[1]:.0%} for {ratios} of {of_ratios}."
    )


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
    rows = result["rows"]
    return "\n".join([table(COLUMNS, lines), "", *verdicts, on_or_below_line(rows), near_line(rows), *others])


def cells(spec: str, row: dict[str, Any]) -> list[str]:
    """A row as it is printed."""
    is_run, is_plan = "cpu_ratio" in row, "kind" in row
    note = row.get("note", "") or "; ".join(row.get("rewrites", ()))
    if "same_as" in row:
        note = f"the program of {row['same_as']!r}"
    if is_plan and row.get("chosen_for"):
        note = f"for {', '.join(f'+{latency}' for latency in row['chosen_for'])} %: {note or 'as it is'}"
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
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="timed rounds that are reported; as many choose"
    )
    parser.add_argument("--time-limit", type=float, default=45.0, help="seconds of the front of ours")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--keep", action="store_true", help="take steps that an earlier run has measured")
    parser.add_argument("--one", metavar="SPEC", help="measure one step here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        with TemporaryDirectory() as folder:
            # Costs that were kept are those of a machine that did other things.
            os.environ["NEAPTIDE_CACHE_DIR"] = folder
            print(json.dumps(measured(asked.one, asked.rounds, asked.time_limit, asked.latency)))
        return
    rows = collect(
        asked.models,
        asked.output / "parts",
        keep=asked.keep,
        size=asked.size,
        rounds=asked.rounds,
        time_limit=asked.time_limit,
        latencies=asked.latency,
    )
    name = "fission_runs" if asked.size == "small" else f"fission_runs_{asked.size}"
    with locked(asked.output):
        result = together(rows, asked.output / f"{name}.json", asked.size, asked.rounds)
        save(name, result, asked.output)
    print(text(result))


if __name__ == "__main__":
    main()
