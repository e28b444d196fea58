"""Planning models at their published size without their bytes: `python benchmarks/paper_planning.py`.

Each model is built on the meta device in a fresh process and planned for a preset of a card; nothing is run, so all
peaks are predictions. Printed beside them: seconds, and the most memory that the process held.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from bench_record import GIB, RESULTS, recorded, run_part, save, say, table
from neaptide import zoo

SEED = 0
PEAK = "60%"
DEVICES = ("rtx3090", "a100-80g", "h200")
MAIN_MODEL = "gptneo"
DEEP_MODEL = "llama@paper,layers=32"
COLUMNS = (
    "model",
    "device",
    "operations",
    "baseline (GiB)",
    "plan (GiB)",
    "of baseline",
    "fits",
    "time predicted",
    "above the bound",
    "capture (s)",
    "plan (s)",
    "process (GiB)",
)


def plan_on_meta(spec: str, device: str, peak: str, time_limit_s: float) -> dict[str, Any]:
    """One model for one card."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.cost.host import high_water_mark_bytes
    from neaptide.frontends.torch_step import capture_step
    from neaptide.outcome import Limits
    from neaptide.policy.prepared_step import PreparedStep

    step, batch = zoo.factory(spec, device="meta")()
    prepared = PreparedStep(capture_step(step, (batch,), name=spec), device=device)
    began = time.perf_counter()
    found = prepared.plan(Ask(Budget(peak=peak), limits=Limits(time_s=time_limit_s, seed=SEED)))
    plan_seconds = time.perf_counter() - began
    program = found.plan.program("steady")
    predicted = program.predictions
    bound = program.termination.bound
    is_met = predicted.peak_with_workspace_bytes <= program.budget_bytes
    above = predicted.seconds - bound if is_met and bound is not None else None
    return {
        "spec": spec,
        "device": device,
        "operations": len(prepared.captured.steady.graph.nodes),
        "baseline_peak_with_workspace_bytes": predicted.baseline_peak_with_workspace_bytes,
        "plan_peak_with_workspace_bytes": predicted.peak_with_workspace_bytes,
        "budget_bytes": program.budget_bytes,
        "lower_bound_bytes": predicted.lower_bound_bytes,
        "capacity_bytes": prepared.device.usable_bytes,
        "predicted_time_ratio": predicted.seconds / predicted.baseline_seconds,
        "share_above_bound": None if above is None else above / predicted.baseline_seconds,
        "status": program.termination.reason,
        "unknown_ops": prepared.captured.steady.unknown_ops,
        "capture_seconds": prepared.captured.seconds,
        "plan_seconds": plan_seconds,
        "process_peak_bytes": high_water_mark_bytes(),
    }


def cases(models: list[str], devices: list[str]) -> list[tuple[str, str]]:
    """The largest model for every card, the others for the first; a name without a size is one at its published size."""
    return [(m, d) for m in models for d in (devices if m == MAIN_MODEL else devices[:1])]


def collect(models: list[str], devices: list[str], *, peak: str, time_limit_s: float) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows = []
    for model, device in cases(models, devices):
        spec = model if "@" in model else f"{model}@paper"
        say(f"{spec} for {device}")
        settings = (f"--devices={device}", f"--peak={peak}", f"--time-limit={time_limit_s}")
        found = run_part("paper_planning.py", "--one", spec, *settings, timeout_s=900)
        rows.append({"spec": spec, "device": device} | found)
    return recorded(rows, seed=SEED, repeats=1, peak=peak, time_limit_s=time_limit_s)


def text(result: dict[str, Any]) -> str:
    lines, failures = [], []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], row["device"], "failed", *["-"] * (len(COLUMNS) - 3)])
            failures.append(f"{row['spec']} for {row['device']} failed: {row['failure']}")
            continue
        baseline, plan = row["baseline_peak_with_workspace_bytes"], row["plan_peak_with_workspace_bytes"]
        fits = [bytes_needed <= row["capacity_bytes"] for bytes_needed in (baseline, plan)]
        mark = row["process_peak_bytes"]
        lines.append(
            [
                row["spec"],
                row["device"],
                str(row["operations"]),
                f"{baseline / GIB:.2f}",
                f"{plan / GIB:.2f}",
                f"{plan / baseline:.1%}",
                {(True, True): "yes", (False, True): "with the plan"}.get((fits[0], fits[1]), "no"),
                f"{row['predicted_time_ratio']:.2f}",
                "-" if row["share_above_bound"] is None else f"{row['share_above_bound']:.2%}",
                f"{row['capture_seconds']:.1f}",
                f"{row['plan_seconds']:.1f}",
                "-" if mark is None else f"{mark / GIB:.2f}",
            ]
        )
    return "\n".join([table(COLUMNS, lines), *failures])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="*", default=[*zoo.names(), DEEP_MODEL], help="names, or specs of the zoo"
    )
    parser.add_argument("--devices", nargs="*", default=list(DEVICES), help="presets; see `neaptide devices`")
    parser.add_argument("--peak", default=PEAK, help="budget of the plans")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="plan one model here, for the first device; print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(plan_on_meta(asked.one, asked.devices[0], asked.peak, asked.time_limit)))
        return
    result = collect(asked.models, asked.devices, peak=asked.peak, time_limit_s=asked.time_limit)
    print(text(result))
    save("paper_planning", result, asked.output)


if __name__ == "__main__":
    main()
