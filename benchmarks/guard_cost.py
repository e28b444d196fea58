"""What the guards of a planned step cost at each call: `python benchmarks/guard_cost.py [--models gpt2] [--against SRC]`.

A call that fits is compared with its capture many times; printed is the median processor time, as it is and as a share
of the processor time of one eager step. It is taken with warm caches, and right after a step, when they hold what the
step worked on. With `--against`, the neaptide of another source tree takes turns in processes of its own; the ratios
are those of the pairs, their median. One thread.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_record import RESULTS, recorded, run_part, save, say, table

SEED = 0
REPEATS = 400
STEPS = 15
PAIRS = 5  # of processes, with `--against`
MODELS = ("gpt2", "resnet50")
COLUMNS = ("model", "guards (us)", "after a step (us)", "step (s)", "share of the step")
BESIDE = ("against (us)", "ratio", "after a step (us)", "ratio")


def measure(spec: str, repeats: int, source: str) -> dict[str, Any]:
    """The guards of one model and its eager step, by the neaptide in `source` where that is given."""
    if source:
        sys.path.insert(0, source)
    import torch

    from neaptide import zoo
    from neaptide.frontends.torch_step import capture_step
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
    from neaptide.runtime.steps.planned_step import PlannedStep

    torch.set_num_threads(1)
    step, batch = contestants.build(zoo.factory(spec), SEED)
    captured = capture_step(step, (batch,), name=spec)
    variant = PlannedVariant(captured, tuple(map(PlannedGraph.captured, captured.programs)))
    runner = PlannedStep(step, contestants.never_again, variant, on_mismatch="error")
    for _ in range(2):
        runner(batch)
    gc.disable()

    def guards() -> None:
        runner._select((batch,), {})  # noqa: SLF001 - what a call does before it runs is no public function

    steps, behind = [], []
    for _ in range(STEPS):
        steps.append(seconds(lambda: runner(batch)))
        behind.append(seconds(guards))
    return {
        "guard_seconds": statistics.median(seconds(guards) for _ in range(repeats)),
        "guard_seconds_behind_a_step": statistics.median(behind),
        "step_cpu_seconds": statistics.median(steps),
    }


def seconds(call: Callable[[], Any]) -> float:
    """Processor time of this thread."""
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1e9


def collect(models: list[str], *, size: str, repeats: int, against: str) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows = []
    for model in models:
        spec = f"{model}@{size}"
        runs: dict[str, list[dict[str, Any]]] = {"": []} | ({against: []} if against else {})
        for _ in range(PAIRS):
            for source, found in runs.items():
                say(f"{spec} {source}")
                options = ("--one", spec, "--source", source, f"--repeats={repeats}")
                found.append(run_part("guard_cost.py", *options, timeout_s=900))
        rows.append({"spec": spec} | row(runs[""], runs.get(against) if against else None))
    return recorded(rows, seed=SEED, repeats=repeats, size=size, processes=PAIRS)


def row(runs: list[dict[str, Any]], others: list[dict[str, Any]] | None) -> dict[str, Any]:
    """What is kept of the runs of one model, and of those of the other source tree."""
    failures = [run["failure"] for run in (*runs, *(others or ())) if "failure" in run]
    if failures:
        return {"failure": failures[0]}
    kept = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    for key in ("guard_seconds", "guard_seconds_behind_a_step") if others else ():
        kept[f"against_{key}"] = statistics.median(run[key] for run in others or ())
        pairs = zip(runs, others or (), strict=True)
        kept[f"ratio_of_{key}"] = statistics.median(now[key] / then[key] for now, then in pairs)
    return kept


def text(result: dict[str, Any]) -> str:
    """The table, and below it what failed."""
    is_beside = any("against_guard_seconds" in row for row in result["rows"])
    columns = COLUMNS + (BESIDE if is_beside else ())
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], "failed", *["-"] * (len(columns) - 2)])
            continue
        line = [
            row["spec"],
            f"{row['guard_seconds'] * 1e6:.0f}",
            f"{row['guard_seconds_behind_a_step'] * 1e6:.0f}",
            f"{row['step_cpu_seconds']:.3f}",
            f"{row['guard_seconds_behind_a_step'] / row['step_cpu_seconds']:.3%}",
        ]
        for key in ("guard_seconds", "guard_seconds_behind_a_step") if is_beside else ():
            line += [f"{row[f'against_{key}'] * 1e6:.0f}", f"{row[f'ratio_of_{key}']:.2f}"]
        lines.append(line)
    failures = [f"{row['spec']} failed: {row['failure']}" for row in result["rows"] if "failure" in row]
    return "\n".join([table(columns, lines), *failures])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="of the zoo")
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="times that the guards of a call are read"
    )
    parser.add_argument("--against", default="", metavar="SRC", help="folder with another neaptide")
    parser.add_argument("--source", default="", help="folder with the neaptide that is measured by --one")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.repeats, asked.source)))
        return
    result = collect(asked.models, size=asked.size, repeats=asked.repeats, against=asked.against)
    print(text(result))
    save("guard_cost", result, asked.output)


if __name__ == "__main__":
    main()
