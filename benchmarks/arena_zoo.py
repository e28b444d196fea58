"""What running inside an arena costs and holds: `python benchmarks/arena_zoo.py [--models gpt2] [--budget 75%]`.

The same plan without and with an arena, in turns, so that a slow minute hits both. The ratio of processor times is
taken within each pair; printed are the median of the pairs and its bootstrap interval (95 %). Peaks are counted by
the allocator's events and stand beside what was predicted; `growth` is by how much the resident pages of the process
at their most grow after the first usual step, without and with an arena. One thread, one process a model.
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

from bench_record import MIB, RESULTS, recorded, save, table
from model_rows import measured_rows
from neaptide import zoo
from neaptide.policy.points.arenas import in_arenas
from neaptide.runtime.arena.plan import Copies

SEED = 0
PAIRS = 41
STEPS_WATCHED = 5
MOST_RATIO = 1.05
COLUMNS = (
    "model",
    "plain step (s)",
    "CPU ratio",
    "95 % interval",
    "arena (MiB)",
    "live",
    "outside",
    "written",
    "copied",
    "copied (MiB)",
    "peak, predicted",
    "measured",
    "plain peak",
    "growth",
    "same bits",
    "bars met",
)


def measure(spec: str, pairs: int, budget: str | None, copies: Copies, *, in_place: bool) -> dict[str, Any]:
    """One model: the same plan on objects of their own, without and with an arena."""
    import torch

    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.policy.prepared_step import prepare
    from neaptide.runtime.arena.plan import ArenaOptions
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.comparing.verification import verify_eager, verify_planned
    from neaptide.runtime.measuring.timing import interleaved, median_ratio

    torch.set_num_threads(1)
    factory = zoo.factory(spec)
    step, batch = contestants.build(factory, SEED)
    prepared = prepare(step, (batch,), name=spec)
    plain = prepared.baseline_variant()
    if budget is not None:
        plain = prepared.plan(Ask(Budget(budget), limits=Limits(work=2000, seed=SEED))).variant
    began = time.perf_counter()
    inside = in_arenas(prepared, plain, ArenaOptions(copies, in_place=in_place))
    plan_seconds = time.perf_counter() - began
    report = inside.graphs[0].arena.report
    del step, batch
    outcome, _ = verify_planned(factory, SEED, contestants.rebind(inside), verify_eager(factory, SEED))
    gc.collect()
    runners, memory, growth = {}, {}, {}
    for name, variant in (("arena", inside), ("plain", plain)):
        made = contestants.planned_contestant(name, factory, SEED, contestants.rebind(variant))
        made.run()
        growth[name] = high_water_growth(made.run)
        memory[name] = contestants.measure_step(made.run, made.persistent)
        runners[name] = made.run
    times = interleaved(runners, pairs)
    ratio = median_ratio(times["arena"].cpu_s, times["plain"].cpu_s, seed=SEED)
    measured = memory["arena"].measured_allocator_peak_bytes
    return {
        "spec": spec,
        "budget": budget,
        "plain_cpu_seconds": statistics.median(times["plain"].cpu_s),
        "arena_cpu_seconds": statistics.median(times["arena"].cpu_s),
        "cpu_ratio": ratio.ratio,
        "cpu_ratio_low": ratio.low,
        "cpu_ratio_high": ratio.high,
        "confidence": ratio.confidence,
        "arena_bytes": report.arena_bytes,
        "live_bytes": report.live_bytes,
        "certificate": report.certificate,
        "outside_peak_bytes": report.outside_peak_bytes,
        "outside_by_reason": by_reason(report.outside),
        "written": report.written,
        "copied": report.copied,
        "copied_bytes": report.copied_bytes,
        "copy_seconds": report.copy_seconds,
        "persistent_bytes": report.persistent_bytes,
        "predicted_peak_bytes": report.peak_bytes,
        "measured_peak_bytes": memory["arena"].measured_peak_bytes,
        "predicted_peak_with_workspace_bytes": report.peak_with_workspace_bytes,
        "measured_allocator_peak_bytes": measured,
        "plain_allocator_peak_bytes": memory["plain"].measured_allocator_peak_bytes,
        "high_water_growth_bytes": growth["arena"],
        "plain_high_water_growth_bytes": growth["plain"],
        "bitwise_equal": outcome.bitwise_equal,
        "plan_seconds": plan_seconds,
        "met": {
            "peak": measured <= report.peak_with_workspace_bytes,
            "bits": outcome.bitwise_equal,
            "time": ratio.ratio <= MOST_RATIO,
        },
    }


def high_water_growth(run: Callable[[], object]) -> int | None:
    """Bytes by which the process's high-water mark grows after a first usual step; None where it is not told."""
    from neaptide.cost import host

    host.reset_high_water_mark()
    run()
    before = host.high_water_mark_bytes()
    for _ in range(STEPS_WATCHED):
        run()
    after = host.high_water_mark_bytes()
    return None if before is None or after is None else after - before


def by_reason(outside: Any) -> list[dict[str, Any]]:
    """Storages that are outside, by operation and reason: how many and their bytes, the most first."""
    found: dict[tuple[str, str], list[int]] = {}
    for storage in outside:
        found.setdefault((storage.op, storage.reason), []).append(storage.nbytes)
    rows = [
        {"op": op, "reason": reason, "storages": len(sizes), "bytes": sum(sizes)}
        for (op, reason), sizes in found.items()
    ]
    return sorted(rows, key=lambda row: -row["bytes"])


def collect(models: list[str], *, size: str, pairs: int, options: list[str]) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows = measured_rows(
        "arena_zoo.py", models, size=size, options=[f"--pairs={pairs}", *options], timeout_s=1200
    )
    return recorded(rows, seed=SEED, repeats=pairs, size=size, options=options)


def text(result: dict[str, Any]) -> str:
    """The table, and what failed."""
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], "failed", *["-"] * (len(COLUMNS) - 2)])
            continue
        sizes = ("predicted_peak_with_workspace_bytes", "measured_allocator_peak_bytes")
        missed = [name for name, met in row["met"].items() if not met]
        growth = (row["plain_high_water_growth_bytes"], row["high_water_growth_bytes"])
        lines.append(
            [
                row["spec"],
                f"{row['plain_cpu_seconds']:.3f}",
                f"{row['cpu_ratio']:.3f}",
                f"{row['cpu_ratio_low']:.3f} to {row['cpu_ratio_high']:.3f}",
                *(f"{row[key] / MIB:.2f}" for key in ("arena_bytes", "live_bytes", "outside_peak_bytes")),
                str(row["written"]),
                str(row["copied"]),
                f"{row['copied_bytes'] / MIB:.1f}",
                *(f"{row[key] / MIB:.2f}" for key in (*sizes, "plain_allocator_peak_bytes")),
                " / ".join("-" if nbytes is None else f"{nbytes / MIB:.1f}" for nbytes in growth),
                "yes" if row["bitwise_equal"] else "no",
                "all" if not missed else f"not {', '.join(missed)}",
            ]
        )
    failures = [f"{row['spec']} failed: {row['failure']}" for row in result["rows"] if "failure" in row]
    return "\n".join([table(COLUMNS, lines), *failures])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(zoo.names()), choices=zoo.names())
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument("--pairs", type=int, default=PAIRS, help="timed pairs of steps")
    parser.add_argument("--budget", help="of the plan, such as 75%%; by default program order")
    parser.add_argument("--copies", default="cheap", choices=["cheap", "all", "none"])
    parser.add_argument("--in-place", action="store_true", help="results on top of operands")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        row = measure(asked.one, asked.pairs, asked.budget, asked.copies, in_place=asked.in_place)
        print(json.dumps(row))
        return 0
    options = [f"--copies={asked.copies}"]
    options += [f"--budget={asked.budget}"] if asked.budget else []
    options += ["--in-place"] if asked.in_place else []
    result = collect(asked.models, size=asked.size, pairs=asked.pairs, options=options)
    print(text(result))
    save("arena_zoo", result, asked.output)
    return int(any("failure" in row or not all(row["met"].values()) for row in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
