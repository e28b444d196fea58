"""Seconds and bytes that verifying each program's first call takes: `python benchmarks/verification_cost.py`.

Each zoo model at `small` is planned for 70 % of its peak by `compile_step`, which runs eager in front of each program's
first call. Its seconds are told in steps of eager, and the peak of each such call beside its budget. All calls run while
the allocator's events are recorded, eager's steps as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_record import MIB, RESULTS, recorded, run_part, save, say, table

SEED = 0
PEAK = "70%"
PLAN_S = 5.0
CALLS = 3
EAGER_STEPS = 3


def part(spec: str) -> dict[str, Any]:
    """One model: eager's steps, then planned calls."""
    import torch
    from torch.utils import _pytree as pytree

    import neaptide
    from neaptide import zoo
    from neaptide.cost.cards import allocator_events
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.measuring.meter import storage_bytes

    def recorded_call(run: Callable[[], Any], persistent: list[torch.Tensor]) -> tuple[float, int]:
        before, began = storage_bytes(persistent), time.perf_counter()
        peak = allocator_events.record(run, persistent=persistent).peak_bytes(before)
        return time.perf_counter() - began, peak

    torch.set_num_threads(1)
    step, batch = contestants.build(zoo.factory(spec), SEED)
    eager = [recorded_call(lambda: step(batch), [])[0] for _ in range(EAGER_STEPS)]
    step, batch = contestants.build(zoo.factory(spec), SEED)
    fast = neaptide.compile_step(step, budget=PEAK, time_limit_s=PLAN_S, strict=True)
    tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    calls = []
    for _ in range(CALLS):
        program = fast._select((batch,), {})[1]  # noqa: SLF001 (plans before the recording begins)
        verified = fast.counts.verified
        calls_before, seconds_before = verified.calls, verified.seconds
        _, peak = recorded_call(lambda: fast(batch), [*fast.persistent(), *tensors])
        if verified.calls > calls_before:
            calls.append(
                {
                    "program": program.index,
                    "seconds": verified.seconds - seconds_before,
                    "peak_bytes": peak,
                    "budget_bytes": fast.plan.programs[program.index].budget_bytes,
                    "file_bytes": verified.file_bytes,
                }
            )
    return {
        "model": spec,
        "eager_s": statistics.median(eager),
        "calls": calls,
        "left_out": fast.counts.verified.left_out,
    }


def told(row: dict[str, Any]) -> list[list[str]]:
    """Rows of the table: one for each verified call."""
    if "failure" in row or not row["calls"]:
        return [[row["model"], row.get("failure") or row["left_out"], "", "", ""]]
    return [
        [
            row["model"],
            str(call["program"]),
            f"{call['seconds'] / row['eager_s']:.2f}",
            f"{call['peak_bytes'] / MIB:.2f} of {call['budget_bytes'] / MIB:.2f}",
            f"{call['file_bytes'] / MIB:.1f}",
        ]
        for call in row["calls"]
    ]


def main() -> None:
    """All models, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names in the zoo; by default all")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--part", metavar="SPEC", help="measure it here and print JSON")
    asked = parser.parse_args()
    if asked.part:
        print(json.dumps(part(asked.part)))
        return
    from neaptide import zoo

    rows = []
    for name in asked.models or zoo.names():
        spec = f"{name}@small"
        say(spec)
        rows.append({"model": spec, **run_part(Path(__file__).name, "--part", spec, timeout_s=600)})
        say(json.dumps(rows[-1]))
    save("verification_cost", recorded(rows, seed=SEED, repeats=1, peak=PEAK), asked.output)
    columns = ("model", "program", "steps of eager", "peak of the call, MiB", "in a file, MiB")
    print(table(columns, [line for row in rows for line in told(row)]))


if __name__ == "__main__":
    main()
