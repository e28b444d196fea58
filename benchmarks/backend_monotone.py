"""Is a smaller budget never a higher peak: `python benchmarks/backend_monotone.py [NAME ...] [--budgets N]`.

Six models train under the `torch.compile` backend with budgets from 100 % of the predicted peak of program order down to the
floor (the plan of `min`). Peaks are counted by the allocator's events. The bars: the measured peak never rises when the budget
falls, it is never above the budget, and it is the predicted one. Each model has a process of its own, and each row is kept as soon as it is there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Final

NAME: Final = "backend_monotone"
SEED: Final = 0
BUDGETS: Final = 20
TIME_LIMIT_S: Final = 3.0
MODELS: Final = ("gpt2", "llama", "bert", "vit", "resnet", "swin")


def measure(name: str, budgets: int) -> dict[str, Any]:
    """One model, in this process."""
    import torch

    from backend_cases import case
    from backend_min_cut import Variant
    from neaptide.integrations.torch_compile import ledgers, neaptide

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(SEED)
    model, batch = case(name).build()
    model.train()

    def run(peak: int | str | None) -> dict[str, Any]:
        torch._dynamo.reset()  # noqa: SLF001 - only the last one is measured
        options = {"peak": peak, "time_limit": TIME_LIMIT_S, "on_infeasible": "best"}
        one = Variant(model, batch, lambda module, inputs: neaptide(module, inputs, options=options))
        pieces = list(ledgers()[-1].pieces.values())
        return {
            "peak": peak,
            "pieces": len(pieces),
            "baseline_peak_bytes": max(piece.baseline_peak_bytes for piece in pieces),
            "predicted_peak_bytes": max(piece.predicted_peak_bytes for piece in pieces),
            "measured_allocator_peak_bytes": one.peak(),
        }

    lowest = run("min")
    top, floor = lowest["baseline_peak_bytes"], lowest["predicted_peak_bytes"]
    rows = [run(f"{round(top - (top - floor) * step / (budgets - 1))}B") for step in range(budgets)]
    return {"name": name, "floor": lowest, "rows": rows, **held([*rows, lowest])}


def held(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the bars say."""
    measured = [row["measured_allocator_peak_bytes"] for row in rows]
    above = [
        row["peak"]
        for row in rows
        if row["peak"] != "min" and row["measured_allocator_peak_bytes"] > int(row["peak"][:-1])
    ]
    return {
        "rises": sum(later > before for before, later in itertools.pairwise(measured)),
        "above_budget": above,
        "measured_minus_predicted": [
            row["measured_allocator_peak_bytes"] - row["predicted_peak_bytes"] for row in rows
        ],
    }


def main() -> int:
    """Measure, and write each row into the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--budgets", type=int, default=BUDGETS)
    parser.add_argument("--part", action="store_true", help="measure one model here, as JSON")
    asked = parser.parse_args()
    if asked.part:
        print(json.dumps(measure(asked.names[0], asked.budgets)))
        return 0
    from backend_cases import keep

    for name in asked.names or MODELS:
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--part",
            name,
            "--budgets",
            str(asked.budgets),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            print(name, done.stderr[-2000:])
            return 1
        row = json.loads(lines[-1])
        keep(
            NAME,
            row | {"budgets": asked.budgets},
            repeats=1,
            seed=SEED,
            time_limit_s=TIME_LIMIT_S,
            models=len(MODELS),
        )
        print(
            name, {key: row[key] for key in ("rises", "above_budget", "measured_minus_predicted")}, flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
