"""Parts, order and recomputation looked for together and one after the other: `python benchmarks/coordinated.py [--keep]`.

All models of the zoo as `tiny` graphs with a batch of 4,096, so that a step is not calls alone, and five at `small`. Each is
captured on the meta device and planned for the preset `rtx3090`, for the lowest peak within some more time than program
order takes, with the same limit of work for each search: peaks and times are predictions, and the same on every machine.
Columns, as shares of the peak of program order:

* schedule only: order and recomputation, `numerics="bitwise"`;
* transform only: parts and what costs nothing, in program order (`strategy="transform_only"`);
* transform, then plan (`transform_then_plan`): the best of that, and then its best schedule;
* plan, then transform (`plan_then_transform`): the best schedule, and then parts where it allows them;
* micro-batch (`micro_batch`): the whole step in parts, with recomputation inside each and around;
* MAGIS (`magis`): its own search for parts and recomputation at once; work is states there, simulated or checked;
* ours: `numerics="close"`: the search that keeps the bits has the limit, and so have all searches for variants together.

`quote_results.py` puts the counts into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS, recorded, save
from model_rows import measured_rows
from neaptide import zoo

SEED: Final = 0
DEVICE: Final = "rtx3090"
LATENCIES: Final = (5, 10)
WORK: Final = 10_000
TINY: Final = "tiny,batch=4096"
SMALL: Final = ("mlp", "unet", "unetpp", "resnet50", "lstm")
OURS: Final = "ours"
PROGRAMS: Final[Mapping[str, tuple[str, str]]] = {
    "schedule only": ("default", "bitwise"),
    "transform only": ("transform_only", "close"),
    "transform, then plan": ("transform_then_plan", "close"),
    "plan, then transform": ("plan_then_transform", "close"),
    "micro-batch": ("micro_batch", "close"),
    "MAGIS": ("magis", "close"),
    OURS: ("default", "close"),
}
PART_S: Final = 3600.0

Row = dict[str, Any]


def planned(spec: str) -> Row:
    """One model: all programs within each limit of time."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.frontends.torch_step import capture_step
    from neaptide.outcome import Limits
    from neaptide.policy.prepared_step import PreparedStep

    step, batch = zoo.factory(spec, device="meta")()
    prepared = PreparedStep(capture_step(step, (batch,), name=spec), device=DEVICE)
    before = prepared.as_written()
    points = []
    for latency in LATENCIES:
        for name, (strategy, numerics) in PROGRAMS.items():
            began = time.process_time()
            budget = Budget(None, latency=f"+{latency}%")
            limits = Limits(work=WORK, seed=SEED)
            options = Ask(budget, strategy, limits, numerics=numerics, workers=1)
            program = prepared.plan(options).plan.programs[0]
            made = program.predictions
            points.append(
                {
                    "program": name,
                    "latency": latency,
                    "peak_bytes": made.peak_with_workspace_bytes,
                    "time_ratio": made.seconds / before.seconds,
                    "plan_cpu_s": round(time.process_time() - began, 1),
                    "rewrites": [
                        f"{rewrite.rule} {dict(rewrite.settings).get('parts', '')}".strip()
                        for rewrite in program.rewrites
                    ],
                }
            )
    return {
        "operations": len(prepared.captured.steady.graph.nodes),
        "baseline_bytes": before.peak_with_workspace_bytes,
        "baseline_seconds": before.seconds,
        "points": points,
    }


def main() -> int:
    """All models, or one here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", nargs="*", default=list(zoo.names()), help="models as tiny graphs")
    parser.add_argument("--small", nargs="*", default=list(SMALL), help="models at small")
    parser.add_argument("--keep", action="store_true", help="take rows that an earlier run has kept")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="plan one model here; print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(planned(asked.one)))
        return 0
    rows = []
    for models, size in ((asked.tiny, TINY), (asked.small, "small")):
        rows += measured_rows(
            "coordinated.py",
            models,
            asked.output / "parts",
            size=size,
            options=(),
            keep=asked.keep,
            timeout_s=PART_S,
            prefix="coordinated-",
        )
    result = recorded(rows, seed=SEED, repeats=1, device=DEVICE, latencies=list(LATENCIES), work=WORK)
    save("coordinated", result, asked.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
