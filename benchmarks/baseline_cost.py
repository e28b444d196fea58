"""What running the unchanged baseline program costs: `python benchmarks/baseline_cost.py [--models gpt2]`.

Eager and baseline take turns, so that a slow minute hits both. The ratio of processor times is taken within each
pair; printed are the median of the pairs and its bootstrap interval (95 %). One thread, one process a model.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from bench_record import MIB, RESULTS, recorded, save, table
from model_rows import measured_rows
from neaptide import zoo

SEED = 0
PAIRS = 41
COLUMNS = (
    "model",
    "eager step (s)",
    "baseline step (s)",
    "CPU ratio",
    "95 % interval",
    "wall ratio",
    "eager peak (MiB)",
    "baseline peak (MiB)",
)


def measure(spec: str, pairs: int) -> dict[str, Any]:
    """Eager and baseline of one model on objects of their own, in turns."""
    import torch

    from neaptide.frontends.torch_step import capture_step
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.measuring.timing import median_ratio
    from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant

    torch.set_num_threads(1)
    factory = zoo.factory(spec)
    step, batch = contestants.build(factory, SEED)
    captured = capture_step(step, (batch,), name=spec)
    variant = PlannedVariant(captured, tuple(map(PlannedGraph.captured, captured.programs)))
    both = [
        contestants.eager_contestant(factory, SEED),
        contestants.planned_contestant("baseline", factory, SEED, contestants.rebind(variant)),
    ]
    del step, batch
    measured = contestants.measure(both, pairs)
    eager, baseline = measured["eager"], measured["baseline"]
    assert eager.times is not None
    assert baseline.times is not None
    ratio = median_ratio(baseline.times.cpu_s, eager.times.cpu_s, seed=SEED)
    wall = median_ratio(baseline.times.wall_s, eager.times.wall_s, seed=SEED)
    return {
        "spec": spec,
        "eager_cpu_seconds": statistics.median(eager.times.cpu_s),
        "baseline_cpu_seconds": statistics.median(baseline.times.cpu_s),
        "cpu_ratio": ratio.ratio,
        "cpu_ratio_low": ratio.low,
        "cpu_ratio_high": ratio.high,
        "confidence": ratio.confidence,
        "wall_ratio": wall.ratio,
        "wall_ratio_low": wall.low,
        "wall_ratio_high": wall.high,
        "eager_peak_bytes": eager.memory.measured_peak_bytes,
        "baseline_peak_bytes": baseline.memory.measured_peak_bytes,
        "pairs": pairs,
    }


def collect(models: list[str], *, size: str, pairs: int) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows = measured_rows("baseline_cost.py", models, size=size, options=[f"--pairs={pairs}"], timeout_s=900)
    return recorded(rows, seed=SEED, repeats=pairs, size=size)


def text(result: dict[str, Any]) -> str:
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], "failed", *["-"] * (len(COLUMNS) - 2)])
            continue
        lines.append(
            [
                row["spec"],
                f"{row['eager_cpu_seconds']:.3f}",
                f"{row['baseline_cpu_seconds']:.3f}",
                f"{row['cpu_ratio']:.3f}",
                f"{row['cpu_ratio_low']:.3f} to {row['cpu_ratio_high']:.3f}",
                f"{row['wall_ratio']:.3f}",
                f"{row['eager_peak_bytes'] / MIB:.2f}",
                f"{row['baseline_peak_bytes'] / MIB:.2f}",
            ]
        )
    failures = [f"{row['spec']} failed: {row['failure']}" for row in result["rows"] if "failure" in row]
    return "\n".join([table(COLUMNS, lines), *failures])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(zoo.names()), choices=zoo.names())
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument("--pairs", type=int, default=PAIRS, help="timed pairs of steps")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.pairs)))
        return
    result = collect(asked.models, size=asked.size, pairs=asked.pairs)
    print(text(result))
    save("baseline_cost", result, asked.output)


if __name__ == "__main__":
    main()
