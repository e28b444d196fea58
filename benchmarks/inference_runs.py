"""Forwards on one large image in parts that overlap, really run: `python benchmarks/inference_runs.py [--image 512 1024]`.

The network is the one of `high_resolution` in `fission_steps.py`: convolutions of three by three without a stride. There is
no batch, so parts lie along height or width, and rows that two of them read are made in both. For each size of image and each
share of more time: the lowest peak that is found with `numerics="close"`, its predictions, and what is measured: peaks by
the allocator's events, processor times in turns in one process, whose heap keeps what is freed, as the median of the ratios to
eager's within the rounds. Plans are made and chosen as in `fission_runs.py`: one front for several predicted times, of which
every other round chooses, and the others are reported.
A prediction is exact where the peak of the storages and the peak with workspace are both the measured ones to the byte.

The result is `results/inference_runs.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from bench_record import MIB, RESULTS, recorded, run_part, save, say, table
from chosen_rounds import chosen_for, measured_beside, parted, rounds_of_both, tried
from neaptide.runtime.comparing.contestant_process import KEEPING_HEAP

SEED: Final = 0
ROUNDS: Final = 9
IMAGES: Final = (512, 1024)
LATENCIES: Final = (0, 5, 10)
WIDTH: Final = 16
DEPTH: Final = 6
PART_S: Final = 1800.0
COLUMNS: Final = (
    "image",
    "more time",
    "parts",
    "peak / eager",
    "MiB",
    "time / eager",
    "predicted",
    "exact",
    "front s",
)


def forward(image: int) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The step, and its image."""
    import torch
    from torch import nn

    from fission_steps import plain_convolutions

    class Forward:
        def __init__(self, model: nn.Module) -> None:
            self.model = model.eval()

        def __call__(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            with torch.no_grad():
                return self.model(batch["images"])

    torch.manual_seed(SEED)
    model = plain_convolutions(WIDTH, DEPTH)
    return Forward(model), {"images": torch.randn(1, 3, image, image)}


def measured(image: int, rounds: int, time_limit_s: float) -> dict[str, Any]:
    """One size of image: eager and all plans, in this process."""
    import torch

    from fission_field import FRONT
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.planner.strategies.program_order import baseline
    from neaptide.policy.prepared_step import Ask, prepare
    from neaptide.policy.searched_front import distinct, plans_for
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.comparing.verification import verify_eager, verify_planned

    torch.set_num_threads(1)
    factory = partial(forward, image)
    expected = verify_eager(factory, SEED)
    step, batch = contestants.build(factory, SEED)
    prepared = prepare(step, (batch,), name=f"forward of {image}")
    before = baseline(prepared.problem()).seconds
    began = time.monotonic()
    asked, *others = (Budget(None, latency=ratio * before) for ratio in FRONT)
    limits = Limits(time_s=time_limit_s, seed=SEED)
    found = plans_for(prepared, Ask(asked, limits=limits, numerics="close"), others, otherwise_for=len(FRONT))
    plan_s = time.monotonic() - began
    runners = [contestants.eager_contestant(factory, SEED)]
    named = found.named([f"for {ratio:.2f}" for ratio in FRONT])
    plans = dict(named[index] for index in distinct([plan for _, plan in named]))
    makers = {name: contestants.rebind(plan.variant) for name, plan in plans.items()}
    runners += [contestants.planned_contestant(name, factory, SEED, make) for name, make in makers.items()]
    trial, reported = parted(contestants.measure(runners, rounds_of_both(rounds)))
    trials = [
        tried(plan.plan.programs[0].predictions.peak_with_workspace_bytes, trial[name], trial["eager"])
        for name, plan in plans.items()
    ]
    chosen = {
        latency: name
        for name, latencies in zip(plans, chosen_for(trials, LATENCIES), strict=True)
        for latency in latencies
    }
    rows: list[dict[str, Any]] = []
    for latency, name in sorted(chosen.items()):
        made = plans[name].plan.programs[0]
        row = {
            "image": image,
            "latency": latency,
            "plan_seconds": round(plan_s, 1),
            "planned": name,
            "parts": [dict(r.settings)["parts"] for r in made.rewrites if "parts" in dict(r.settings)],
            "rules": [rewrite.rule for rewrite in made.rewrites],
            "predicted_peak_bytes": made.predictions.peak_bytes,
            "predicted_peak_with_workspace_bytes": made.predictions.peak_with_workspace_bytes,
            "predicted_ratio": made.predictions.seconds / made.predictions.baseline_seconds,
            "agrees": verify_planned(factory, SEED, makers[name], expected)[0].agrees,
        }
        row |= measured_beside(reported[name], reported["eager"])
        row["is_exact"] = (
            row["predicted_peak_bytes"] == row["measured_peak_bytes"]
            and row["predicted_peak_with_workspace_bytes"] == row["measured_allocator_peak_bytes"]
        )
        rows.append(row)
    return {"rows": rows}


def shown(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    return [
        str(row["image"]),
        f"{row['latency']} %",
        ", ".join(map(str, row["parts"])) or "whole",
        f"{row['peak_share']:.3f}",
        f"{row['measured_allocator_peak_bytes'] / MIB:.1f}",
        f"{row['cpu_ratio']:.2f}",
        f"{row['predicted_ratio']:.2f}",
        "yes" if row["is_exact"] and row["agrees"] else "no",
        f"{row['plan_seconds']:.0f}",
    ]


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", type=int, nargs="*", default=list(IMAGES))
    parser.add_argument("--one", type=int)
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="timed rounds that are reported; as many choose"
    )
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of a front")
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(measured(asked.one, asked.rounds, asked.time_limit)))
        return
    rows: list[dict[str, Any]] = []
    for image in asked.image:
        say(f"{image} x {image}")
        options = (
            f"--rounds={asked.rounds}",
            f"--time-limit={asked.time_limit}",
        )
        part = run_part(
            "inference_runs.py", "--one", str(image), *options, timeout_s=PART_S, environment=KEEPING_HEAP
        )
        if "failure" in part:
            say(f"  failed: {part['failure']}")
        rows += part.get("rows", [])
    print(table(COLUMNS, [shown(row) for row in rows]))
    result = recorded(rows, seed=SEED, repeats=asked.rounds, time_limit_s=asked.time_limit)
    say(f"written to {save('inference_runs', result, RESULTS)}")


if __name__ == "__main__":
    main()
