"""Recomputation really run: `python benchmarks/recompute_zoo.py [MODEL ...] [--size small]`.

For each model of the zoo, the whole step with its optimizer: plans for 75, 50, 25 and 10 % of the way from the lowest
peak found up to eager's, and beside them `torch.utils.checkpoint` by block, by about sqrt(n) segments, and selectively
(`checkpoint_peers.py` says what the blocks are), each with a plan of ours for the very peak that it measured. Peaks
are counted by the allocator's events, numbers are compared with eager bit by bit over three steps, and processor times
are taken in turns in one process, the ratio within each round; printed are the median of the rounds and its bootstrap
interval (95 %). A peer's losses are compared with eager's; what it does to a batch norm's statistics is its own affair.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_record import MIB, RESULTS, recorded, run_part, save, say, table
from neaptide import zoo

SEED = 0
ROUNDS = 15
SHARES = (75, 50, 25, 10)
STEPS = 3
TIME_LIMIT_S = 20.0
COLUMNS = (
    "model",
    "program",
    "budget (MiB)",
    "peak (MiB)",
    "held",
    "same bits",
    "CPU ratio",
    "95 % interval",
    "note",
)


def measure(spec: str, rounds: int, work: int | None) -> dict[str, Any]:
    """One model: all its programs, measured in this process."""
    import torch

    from neaptide.outcome import Limits
    from neaptide.planner.budget import Budget
    from neaptide.runtime import contestants
    from neaptide.runtime.prepared_step import SearchOptions, StepPlan, prepare
    from neaptide.runtime.timing import interleaved, median_ratio
    from neaptide.runtime.verification import verify_eager, verify_planned

    torch.set_num_threads(1)
    factory = zoo.factory(spec)
    step, batch = contestants.build(factory, SEED)
    prepared = prepare(step, (batch,), name=spec)
    del step, batch
    limits = Limits(time_s=None if work else TIME_LIMIT_S, work=work, seed=SEED)
    expected = verify_eager(factory, SEED)

    def planned(budget_bytes: int) -> StepPlan:
        return prepared.plan(SearchOptions(Budget(budget_bytes), limits=limits))

    least = planned(prepared.problem().lower_bound_bytes).plan.programs[0]
    lowest = least.predictions.peak_with_workspace_bytes
    eager = contestants.eager_contestant(factory, SEED)
    eager.run()
    memory = {"eager": contestants.measure_step(eager.run, eager.resident)}
    runners = {"eager": eager.run}
    highest = memory["eager"].measured_allocator_peak_bytes
    rows: list[dict[str, Any]] = [{"program": "eager", "budget_bytes": None, "bitwise_equal": True}]

    def add_plan(name: str, budget_bytes: int) -> None:
        found = planned(budget_bytes)
        made = contestants.planned_contestant(name, factory, SEED, contestants.rebind(found.variant))
        made.run()
        outcome, _ = verify_planned(factory, SEED, contestants.rebind(found.variant), expected)
        memory[name], runners[name] = contestants.measure_step(made.run, made.resident), made.run
        steady = found.plan.programs[0]
        rows.append(
            {
                "program": name,
                "budget_bytes": budget_bytes,
                "bitwise_equal": outcome.bitwise_equal,
                "predicted_peak_bytes": steady.predictions.peak_with_workspace_bytes,
                "predicted_ratio": steady.predictions.seconds / steady.predictions.baseline_seconds,
                "recomputations": len(steady.moves.recomputations),
                "strategy": steady.strategy,
            }
        )

    for share in SHARES:
        add_plan(f"plan {share} %", lowest + (highest - lowest) * share // 100)
    for name, found in peers(factory).items():
        row = {"program": name, "budget_bytes": None, "note": found.note, "bitwise_equal": found.same_losses}
        rows.append(row)
        if found.run is None or found.resident is None:
            continue
        memory[name] = contestants.measure_step(found.run, found.resident)
        runners[name] = found.run
        if memory[name].measured_allocator_peak_bytes >= lowest and found.same_losses:
            add_plan(f"plan as {name}", memory[name].measured_allocator_peak_bytes)
    gc.collect()
    times = interleaved(runners, rounds)
    for row in rows:
        name = row["program"]
        if name not in memory:
            continue
        ratio = median_ratio(times[name].cpu_s, times["eager"].cpu_s, seed=SEED)
        peak = memory[name].measured_allocator_peak_bytes
        row |= {
            "measured_allocator_peak_bytes": peak,
            "measured_peak_bytes": memory[name].measured_peak_bytes,
            "cpu_seconds": statistics.median(times[name].cpu_s),
            "cpu_ratio": ratio.ratio,
            "cpu_ratio_low": ratio.low,
            "cpu_ratio_high": ratio.high,
            "is_held": None if row["budget_bytes"] is None else peak <= row["budget_bytes"],
        }
    for row in rows:
        twin = f"plan as {row['program']}"
        if twin in times:
            against = median_ratio(times[twin].cpu_s, times[row["program"]].cpu_s, seed=SEED)
            row["plan_against_peer"] = [against.ratio, against.low, against.high]
    return {"spec": spec, "lowest_peak_bytes": lowest, "eager_peak_bytes": highest, "programs": rows}


class Peer:
    """A checkpointed model ready to run, or why there is none.

    Attributes:
        run: one step; None where it cannot be run.
        resident: tensors that live before a step.
        same_losses: its losses are eager's, to the bit.
        note: number of blocks or segments, or what went wrong.
    """

    def __init__(self, factory: Callable[[], Any], wrap: Callable[[Any], int], expected: list[float]) -> None:
        from neaptide.frontends.state_finder import find_state
        from neaptide.runtime import contestants
        from neaptide.runtime.binding import state_tensors

        self.run: Callable[[], Any] | None = None
        self.resident: Callable[[], Any] | None = None
        self.same_losses = False
        self.note = ""
        step, batch = contestants.build(factory, SEED)
        count = wrap(step)
        if not count:
            self.note = "no blocks"
            return
        self.note = f"{count} parts"
        try:
            losses = [float(step(batch)) for _ in range(STEPS)]
        except Exception as error:  # noqa: BLE001 - whatever a model that is taken apart does
            self.note = f"cannot be run so: {(str(error).splitlines() or [type(error).__name__])[0][:80]}"
            return
        self.same_losses = losses == expected
        if not self.same_losses:
            self.note += "; other losses than eager"
        state = find_state(step)
        self.resident = lambda: [*state_tensors(state), *batch.values()]
        self.run = lambda: step(batch)


def peers(factory: Callable[[], Any]) -> dict[str, Peer]:
    """The peers of a model by name."""
    from checkpoint_peers import PEERS
    from neaptide.runtime import contestants

    step, batch = contestants.build(factory, SEED)
    expected = [float(step(batch)) for _ in range(STEPS)]
    return {name: Peer(factory, wrap, expected) for name, wrap in PEERS.items()}


def collect(models: list[str], *, size: str, rounds: int, work: int | None) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows = []
    for model in models:
        spec = f"{model}@{size}"
        say(spec)
        options = [f"--rounds={rounds}", *([f"--work={work}"] if work else [])]
        rows.append({"spec": spec} | run_part("recompute_zoo.py", "--one", spec, *options, timeout_s=3600))
    return recorded(rows, seed=SEED, repeats=rounds, size=size, work=work, time_limit_s=TIME_LIMIT_S)


def text(result: dict[str, Any]) -> str:
    """The table, and what failed."""
    lines, failures = [], []
    for model in result["rows"]:
        if "failure" in model:
            failures.append(f"{model['spec']} failed: {model['failure']}")
            continue
        for row in model["programs"]:
            is_run = "cpu_ratio" in row
            note = row.get("note", "")
            if "plan_against_peer" in row:
                note += "; ours takes {:.3f} ({:.3f} to {:.3f}) of its time".format(*row["plan_against_peer"])
            lines.append(
                [
                    model["spec"],
                    row["program"],
                    "-" if row["budget_bytes"] is None else f"{row['budget_bytes'] / MIB:.2f}",
                    f"{row['measured_allocator_peak_bytes'] / MIB:.2f}" if is_run else "-",
                    {True: "yes", False: "NO", None: "-"}[row.get("is_held")],
                    "yes" if row["bitwise_equal"] else "no",
                    f"{row['cpu_ratio']:.3f}" if is_run else "-",
                    f"{row['cpu_ratio_low']:.3f} to {row['cpu_ratio_high']:.3f}" if is_run else "-",
                    note,
                ]
            )
    return "\n".join([table(COLUMNS, lines), *failures])


def is_met(model: dict[str, Any]) -> bool:
    """Whether all plans of a model keep their budget and eager's bits, and none is slower than the peer it is put beside."""
    return "failure" not in model and all(
        row.get("is_held") is not False
        and (row["bitwise_equal"] or not row["program"].startswith("plan"))
        and row.get("plan_against_peer", [0.0])[0] < 1.0
        for row in model["programs"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names of zoo models; by default all")
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed steps of each program, in turns")
    parser.add_argument("--work", type=int, help="limit each search by work instead of by time")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.rounds, asked.work)))
        return 0
    models = asked.models or list(zoo.names())
    result = collect(models, size=asked.size, rounds=asked.rounds, work=asked.work)
    print(text(result))
    save("recompute_zoo", result, asked.output)
    return int(not all(map(is_met, result["rows"])))


if __name__ == "__main__":
    sys.exit(main())
