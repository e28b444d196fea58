"""What the guards of a planned step cost at each call: `python benchmarks/guard_cost.py [--models gpt2 resnet50]`.

A call that fits is compared with its capture many times; printed is the median processor time, as it is and as a share
of the processor time of one eager step. One thread, one process a model.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_record import RESULTS, recorded, run_part, save, say, table
from neaptide import zoo

SEED = 0
REPEATS = 400
STEPS = 5
MODELS = ("gpt2", "resnet50")
COLUMNS = ("model", "guards (us)", "of which choosing a program (us)", "step (s)", "share of the step")


def measure(spec: str, repeats: int) -> dict[str, Any]:
    """The guards of one model, and its eager step."""
    import torch

    from neaptide.frontends.torch_step import capture_step
    from neaptide.ir.schedule import Schedule
    from neaptide.runtime import contestants
    from neaptide.runtime.planned_step import PlannedStep, PlannedVariant

    torch.set_num_threads(1)
    step, batch = contestants.build(zoo.factory(spec), SEED)
    captured = capture_step(step, (batch,), name=spec)
    variant = PlannedVariant(captured, tuple(Schedule.program_order(p.graph) for p in captured.programs))
    runner = PlannedStep(step, contestants.never_again, variant, on_mismatch="error")
    for _ in range(2):
        runner(batch)
    chosen = runner._variants[-1]  # noqa: SLF001 - what a call does before it runs is no public function
    gc.disable()
    guards = median_seconds(lambda: runner._select((batch,), {}), repeats)  # noqa: SLF001
    choosing = median_seconds(chosen.program_now, repeats)
    gc.enable()
    return {
        "spec": spec,
        "guard_seconds": guards,
        "choosing_seconds": choosing,
        "step_cpu_seconds": median_seconds(lambda: step(batch), STEPS),
    }


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Processor time of this thread."""
    times = []
    for _ in range(repeats):
        began = time.thread_time_ns()
        call()
        times.append(time.thread_time_ns() - began)
    return statistics.median(times) / 1e9


def collect(models: list[str], *, size: str, repeats: int) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows = []
    for model in models:
        spec = f"{model}@{size}"
        say(spec)
        found = run_part("guard_cost.py", "--one", spec, f"--repeats={repeats}", timeout_s=900)
        rows.append({"spec": spec} | found)
    return recorded(rows, seed=SEED, repeats=repeats, size=size)


def text(result: dict[str, Any]) -> str:
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], "failed", *["-"] * (len(COLUMNS) - 2)])
            continue
        lines.append(
            [
                row["spec"],
                f"{row['guard_seconds'] * 1e6:.0f}",
                f"{row['choosing_seconds'] * 1e6:.0f}",
                f"{row['step_cpu_seconds']:.3f}",
                f"{row['guard_seconds'] / row['step_cpu_seconds']:.3%}",
            ]
        )
    failures = [f"{row['spec']} failed: {row['failure']}" for row in result["rows"] if "failure" in row]
    return "\n".join([table(COLUMNS, lines), *failures])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=zoo.names())
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="times that the guards of a call are read"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.repeats)))
        return
    result = collect(asked.models, size=asked.size, repeats=asked.repeats)
    print(text(result))
    save("guard_cost", result, asked.output)


if __name__ == "__main__":
    main()
