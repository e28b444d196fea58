"""The same search over variants with one process and with several: `python benchmarks/side_by_side.py [SPEC ...]`.

Steps of the zoo and of `fission_steps`, captured and planned for the preset `rtx3090` with a limit of work: the plans are the
same, which is checked. The searches take turns. Wall time says little on a busy machine, so the load is recorded, and
processor time beside it: that of the search's own process, and that of the workers. On free cores a search takes about its own,
and of the workers' what falls to one of them.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fission_steps
import neaptide.zoo
from bench_record import RESULTS, recorded, save
from neaptide.cost.host import usable_cores

if TYPE_CHECKING:
    from neaptide.policy.prepared_step import PreparedStep

SEED: Final = 0
DEVICE: Final = "rtx3090"
WORK: Final = 1000
LATENCY: Final = "+25%"
WORKERS: Final = (1, 2)
STEPS: Final = ("vit@small", "encoder_decoder@small")
_HEAD: Final = (
    "| step | operations | variants | workers | wall | own processor time | workers' processor time |",
    "|---|---|---|---|---|---|---|",
)

Row = dict[str, Any]


def measure(spec: str, repeats: int) -> Row:
    """Searches of one step, by the number of workers."""
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide.runtime.steps.capturing import capture

    own = spec.partition("@")[0] in fission_steps.NAMES
    step, batch = fission_steps.factory(spec)() if own else neaptide.zoo.factory(spec, device="meta")()
    captured = capture(step, (batch,), name=spec)
    runs: dict[int, list[Row]] = {workers: [] for workers in WORKERS}
    plans = set()
    for _ in range(repeats):
        for workers in WORKERS:
            prepared = PreparedStep(captured, device=DEVICE)
            run, plan = _searched(prepared, workers)
            runs[workers].append(run)
            plans.add(plan)
    if len(plans) > 1:
        raise RuntimeError(f"{spec}: another number of workers found another plan")
    return {
        "spec": spec,
        "operations": len(captured.steady.graph.nodes),
        "variants": runs[1][0]["variants"],
        "workers": [
            {"workers": workers}
            | {
                name: statistics.median(run[name] for run in found)
                for name in ("wall_s", "own_s", "workers_s")
            }
            for workers, found in runs.items()
        ],
        "load": round(os.getloadavg()[1], 1),
    }


def _searched(prepared: PreparedStep, workers: int) -> tuple[Row, str]:
    """One search: what it took, and its plan."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits

    limits = Limits(work=WORK, seed=SEED)
    options = Ask(Budget(None, latency=LATENCY), limits=limits, numerics="close", workers=workers)
    prepared.problem()
    wall, own, there = time.perf_counter(), time.process_time(), _of_children()
    plan = prepared.plan(options).plan
    parts = plan.programs[0].parts
    run = {
        "wall_s": time.perf_counter() - wall,
        "own_s": time.process_time() - own,
        "workers_s": _of_children() - there,
        "variants": 1 if parts is None else len(parts.tried),
    }
    return run, plan.to_json()


def _of_children() -> float:
    """Processor seconds of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_markdown(result: Row) -> str:
    """The table of the page."""
    lines = list(_HEAD)
    for row in result["rows"]:
        for run in row["workers"]:
            cells = f"{run['wall_s']:.1f} s | {run['own_s']:.1f} s | {run['workers_s']:.1f} s"
            lines.append(
                f"| {row['spec']} | {row['operations']:,} | {row['variants']} | {run['workers']} | {cells} |"
            )
    loads = ", ".join(f"{row['load']:g}" for row in result["rows"])
    cores = result["machine"].get("cores", "some")
    shared = f"All processes of a search shared {result['settings']['usable_cores']} of {cores} cores"
    lines += [
        "",
        f"{WORK:,} units of work, {LATENCY}. {shared}; the load of the machine meanwhile was {loads}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """All steps, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("specs", nargs="*", default=list(STEPS), metavar="SPEC")
    parser.add_argument("--repeats", type=int, default=3, help="searches of each kind")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    asked = parser.parse_args()
    rows = [measure(spec, asked.repeats) for spec in asked.specs]
    result = recorded(
        rows,
        seed=SEED,
        repeats=asked.repeats,
        device=DEVICE,
        work=WORK,
        latency=LATENCY,
        usable_cores=usable_cores(),
    )
    print(in_markdown(result))
    save("side_by_side", result, asked.output)


if __name__ == "__main__":
    main()
