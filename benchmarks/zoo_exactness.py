"""Predicted beside measured on the zoo: `python benchmarks/zoo_exactness.py [--models gpt2 --sizes tiny]`.

For each model, size and precision, for the baseline program and for a plan: whether the predicted peak is the
measured one, how far the allocator's peak is from its prediction (and which operations make the difference),
whether all numbers have eager's bits after three steps, and what the plan costs. A budget below what the
planner can reach (at `tiny`, parameters are most of the peak) is replaced by the smallest that it can.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from bench_record import MIB, RESULTS, recorded, run_part, save, say, table
from neaptide import zoo

SEED = 0
PROGRAMS = ("baseline", "plan")
PRECISIONS = ("fp32", "bf16")
COLUMNS = (
    "model",
    "program",
    "peak (MiB)",
    "of baseline",
    "= measured",
    "allocator off by",
    "bits of eager",
    "time predicted",
    "measured",
    "capture (s)",
    "plan (s)",
)


def examine(spec: str, peak: str, repeats: int, time_limit_s: float) -> dict[str, Any]:
    """One model: what `neaptide.api.compare` does, with the plan at hand for a closer look."""
    import torch

    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.policy.prepared_step import prepare
    from neaptide.report.comparison import compare_programs
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.comparing.contestants import Measuring

    torch.set_num_threads(1)
    factory = zoo.factory(spec)
    step, batch = contestants.build(factory, SEED)
    prepared = prepare(step, (batch,), name=spec)
    prepared.prices()
    began = time.perf_counter()
    found = prepared.plan(Ask(Budget(peak=peak), limits=Limits(time_s=time_limit_s, seed=SEED)))
    plan_seconds = time.perf_counter() - began
    predicted = found.plan.program("steady").predictions
    compared = compare_programs(
        factory,
        prepared,
        {"plan": found},
        Measuring(repeats, seed=SEED),
        plan_seconds=plan_seconds,
    )
    eager, baseline = compared.row("eager"), compared.row("baseline")
    schedules = {"baseline": prepared.baseline_variant(), "plan": found.variant}
    programs = {}
    for name in PROGRAMS:
        row = compared.row(name)
        measured, with_workspace = row.measured_allocator_peak_bytes, row.predicted_peak_with_workspace_bytes
        assert measured is not None and with_workspace is not None  # noqa: PT018 - everything was run
        programs[name] = {
            "predicted_peak_bytes": row.predicted_peak_bytes,
            "measured_peak_bytes": row.measured_peak_bytes,
            "is_exact": row.predicted_peak_bytes == row.measured_peak_bytes,
            "predicted_peak_with_workspace_bytes": with_workspace,
            "measured_allocator_peak_bytes": measured,
            "allocator_difference": measured / with_workspace - 1,
            "allocator_difference_by": []
            if measured == with_workspace
            else named_differences(factory, prepared, schedules[name]),
            "bitwise_equal": row.bitwise_equal,
            "max_abs_diff": row.max_abs_diff,
            "peak_ratio": with_workspace / predicted.baseline_peak_with_workspace_bytes,
            "predicted_time_ratio": _ratio(row.predicted_step_seconds, baseline.predicted_step_seconds),
            "measured_time_ratio": _ratio(row.step_cpu_seconds, baseline.step_cpu_seconds),
            "recomputed": row.recomputed,
            "moved_updates": row.moved_updates,
            "status": row.status,
        }
    return {
        "spec": spec,
        "programs": programs,
        "eager_peak_bytes": eager.measured_peak_bytes,
        "persistent_bytes": baseline.persistent_bytes,
        "lower_bound_bytes": compared.lower_bound_bytes,
        "budget_bytes": compared.budget_bytes,
        "budget_is_reached": predicted.peak_with_workspace_bytes <= (compared.budget_bytes or 0),
        "capture_seconds": compared.capture_seconds,
        "plan_seconds": plan_seconds,
        "operations": len(prepared.captured.steady.graph.nodes),
        "unknown_ops": prepared.captured.steady.unknown_ops,
        "notes": compared.notes,
    }


def named_differences(factory: Any, prepared: Any, variant: Any) -> list[str]:
    """The operations that allocate otherwise in the program than alone."""
    from neaptide.runtime.comparing import contestants
    from op_allocations import workspace_differences

    contestant = contestants.planned_contestant("", factory, SEED, contestants.rebind(variant))
    contestant.run()
    graph = prepared.captured.steady.graph
    return workspace_differences(
        contestant.run, graph, variant.graphs[0].schedule, prepared.prices().workspace
    )


def collect(
    models: list[str],
    sizes: list[str],
    precisions: list[str],
    *,
    peak: str,
    repeats: int,
    time_limit_s: float,
) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows = []
    for size in sizes:
        for precision in precisions:
            for model in models:
                spec = f"{model}@{size},{precision}"
                say(spec)
                settings = (f"--peak={peak}", f"--repeats={repeats}", f"--time-limit={time_limit_s}")
                rows.append(
                    {"spec": spec} | run_part("zoo_exactness.py", "--one", spec, *settings, timeout_s=900)
                )
    return recorded(rows, seed=SEED, repeats=repeats, peak=peak, time_limit_s=time_limit_s)


def as_lines(row: dict[str, Any]) -> list[list[str]]:
    if "failure" in row:
        return [[row["spec"], "failed", *["-"] * (len(COLUMNS) - 2)]]
    lines = []
    for name in PROGRAMS:
        program = row["programs"][name]
        is_plan = name == "plan"
        furthest = max(program["max_abs_diff"].values(), default=0.0)
        lines.append(
            [
                row["spec"],
                name,
                f"{program['predicted_peak_bytes'] / MIB:.2f}",
                f"{program['peak_ratio']:.1%}",
                "yes" if program["is_exact"] else f"no, {program['measured_peak_bytes']:,} B",
                f"{program['allocator_difference']:+.3%}",
                "yes" if program["bitwise_equal"] else f"no, {furthest:.1e}",
                f"{program['predicted_time_ratio']:.2f}",
                "-" if program["measured_time_ratio"] is None else f"{program['measured_time_ratio']:.2f}",
                "" if is_plan else f"{row['capture_seconds']:.1f}",
                f"{row['plan_seconds']:.1f}" if is_plan else "",
            ]
        )
    return lines


def text(result: dict[str, Any]) -> str:
    rows = result["rows"]
    parts = [table(COLUMNS, [line for row in rows for line in as_lines(row)])]
    for row in rows:
        if "failure" in row:
            parts.append(f"{row['spec']} failed: {row['failure']}")
            continue
        for name in PROGRAMS:
            program = row["programs"][name]
            parts += [
                f"{row['spec']} {name}, allocator: {cause}" for cause in program["allocator_difference_by"]
            ]
        parts += [f"{row['spec']}: {note}" for note in row["notes"]]
    return "\n".join(parts)


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(zoo.names()), choices=zoo.names())
    parser.add_argument("--sizes", nargs="*", default=["tiny", "small"], choices=["tiny", "small"])
    parser.add_argument("--precisions", nargs="*", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--peak", default="70%", help="budget of the plans")
    parser.add_argument("--repeats", type=int, default=3, help="timed steps of each program; 0 for none")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of each search")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="examine one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(examine(asked.one, asked.peak, asked.repeats, asked.time_limit)))
        return
    result = collect(
        asked.models,
        asked.sizes,
        asked.precisions,
        peak=asked.peak,
        repeats=asked.repeats,
        time_limit_s=asked.time_limit,
    )
    print(text(result))
    save("zoo_exactness", result, asked.output)


if __name__ == "__main__":
    main()
