"""How long a user waits at first: `python benchmarks/first_touch.py`.

`import neaptide` and `neaptide --help` in fresh processes (median wall time; the import less that of a bare
interpreter), and capture and planning of two models once everything is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench_record import RESULTS, part_environment, recorded, run_part, save, say, table

SEED = 0
REPEATS = 11
MODELS = ("gpt2@small", "resnet50@small")
PEAK = "60%"
COMMANDS = {
    "bare interpreter": ("-c", "pass"),
    "import neaptide": ("-c", "import neaptide"),
    "neaptide --help": ("-m", "neaptide", "--help"),
}


def command_seconds(repeats: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, processor) seconds of each command, in turns; a first round that is not counted fills the file caches."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for round_number in range(repeats + 1):
        for name, arguments in COMMANDS.items():
            began, before = time.perf_counter(), os.times()
            subprocess.run(
                [sys.executable, *arguments],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=part_environment(),
            )
            wall, after = time.perf_counter() - began, os.times()
            cpu = sum(after[2:4]) - sum(before[2:4])  # of children, user and system
            if round_number:
                times[name].append((wall, cpu))
    return times


def first_plan(spec: str, peak: str, time_limit_s: float) -> dict[str, Any]:
    """Seconds of capture, of costing its operations, and of planning, after the imports."""
    import torch

    from neaptide import zoo
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.policy.prepared_step import prepare
    from neaptide.runtime.comparing import contestants

    torch.set_num_threads(1)
    contestants.build(zoo.factory(spec.partition("@")[0]), SEED)  # imports what the model is made of
    step, batch = contestants.build(zoo.factory(spec), SEED)
    prepared = prepare(step, (batch,), name=spec)
    began, cpu_began = time.perf_counter(), time.process_time()
    for index in range(len(prepared.captured.programs)):
        prepared.problem(index)
    costed = time.perf_counter()
    found = prepared.plan(Ask(Budget(peak=peak), limits=Limits(time_s=time_limit_s, seed=SEED)))
    planned = time.perf_counter()
    predicted = found.plan.program("steady").predictions
    return {
        "name": f"capture + plan {spec}",
        "seconds": prepared.captured.seconds + planned - began,
        "capture_seconds": prepared.captured.seconds,
        "cost_seconds": costed - began,
        "plan_seconds": planned - costed,
        "cost_and_plan_cpu_seconds": time.process_time() - cpu_began,
        "operations": len(prepared.captured.steady.graph.nodes),
        "peak_ratio": predicted.peak_with_workspace_bytes / predicted.baseline_peak_with_workspace_bytes,
    }


def collect(*, repeats: int, models: tuple[str, ...] = MODELS, time_limit_s: float = 20.0) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    say("imports")
    times = command_seconds(repeats)
    bare = statistics.median(wall for wall, _ in times["bare interpreter"])
    rows: list[dict[str, Any]] = []
    for name, seconds in times.items():
        walls, cpus = zip(*seconds, strict=True)
        median = statistics.median(walls)
        rows.append(
            {
                "name": name,
                "seconds": median - bare if name == "import neaptide" else median,
                "median_wall_seconds": median,
                "median_cpu_seconds": statistics.median(cpus),
                "wall_seconds": walls,
            }
        )
    for spec in models:
        say(spec)
        found = run_part("first_touch.py", "--one", spec, f"--time-limit={time_limit_s}", timeout_s=600)
        rows.append({"name": f"capture + plan {spec}"} | found)
    return recorded(rows, seed=SEED, repeats=repeats, peak=PEAK, time_limit_s=time_limit_s)


def text(result: dict[str, Any]) -> str:
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["name"], "failed", row["failure"]])
        elif "capture_seconds" in row:
            parts = f"capture {row['capture_seconds']:.1f}, operations {row['cost_seconds']:.1f}, "
            parts += f"plan {row['plan_seconds']:.1f}; peak {row['peak_ratio']:.1%}"
            lines.append([row["name"], f"{row['seconds']:.1f} s", parts])
        else:
            lines.append(
                [
                    row["name"],
                    f"{row['seconds'] * 1e3:.0f} ms",
                    f"wall {row['median_wall_seconds'] * 1e3:.0f} ms, CPU {row['median_cpu_seconds'] * 1e3:.0f} ms",
                ]
            )
    return table(("what", "time", "of which"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=REPEATS, help="fresh processes for each command")
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="specifications of the zoo")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="capture and plan one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(first_plan(asked.one, PEAK, asked.time_limit)))
        return
    result = collect(repeats=asked.repeats, models=tuple(asked.models), time_limit_s=asked.time_limit)
    print(text(result))
    save("first_touch", result, asked.output)


if __name__ == "__main__":
    main()
