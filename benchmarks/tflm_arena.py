"""Planned `.tflite` files judged by TensorFlow Lite Micro: `python benchmarks/tflm_arena.py [--count N]`.

Random irregular networks, int8 and float32, are planned as `neaptide plan model.tflite` does, and once more with results on
top of operands (`--target tflm-reference`). The interpreter then runs all files: the smallest arena that runs, found by bisection, and the outputs, which must be the same to the bit. The prediction of
both arenas is compared too. Writes `benchmarks/results/tflm_arena.json`. The answers are the same on every machine of 64 bits.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bench_record import recorded, save, say, table
from neaptide_corpus.tflite_graphs import irregular_network
from tflm_runs import run_tflm

RESULT: Final = "tflm_arena"
COUNT: Final = 50
BAR: Final = 0.83  # geometric mean of planned over original
COLUMNS: Final = (
    "seed",
    "operators",
    "dtype",
    "original",
    "planned",
    "ratio",
    "in place",
    "ratio",
    "outputs",
)


def measure(seed: int, folder: Path) -> dict[str, Any]:
    """One network: what the interpreter needs before and after, and what was said before it ran."""
    from neaptide.frontends.tflite.reader import read_tflite
    from neaptide.frontends.tflite.to_graph import tflite_graph
    from neaptide.lower.tflite.files import write_planned
    from neaptide.lower.tflite.plan import plan_tflm

    network, original = irregular_network(seed), folder / f"original{seed}.tflite"
    original.write_bytes(network.to_bytes())
    model = read_tflite(original)
    source, above = tflite_graph(model), tflite_graph(model, on_operands=True)
    plan, in_place = plan_tflm(source), plan_tflm(above)
    planned, _ = write_planned(source, plan, folder, f"planned{seed}")
    placed, _ = write_planned(above, in_place, folder, f"in_place{seed}")
    before, after, least = run_tflm([original, planned, placed], smallest=True)
    assert before.smallest_bytes is not None
    assert after.smallest_bytes is not None
    assert least.smallest_bytes is not None
    return {
        "seed": seed,
        "operators": len(network.operators),
        "dtype": network.tensors[0].dtype,
        "original_arena_bytes": before.smallest_bytes,
        "planned_arena_bytes": after.smallest_bytes,
        "ratio": after.smallest_bytes / before.smallest_bytes,
        "in_place_arena_bytes": least.smallest_bytes,
        "in_place_ratio": least.smallest_bytes / before.smallest_bytes,
        "is_equal": before.outputs == after.outputs == least.outputs,
        "is_predicted": (before.head_bytes, after.head_bytes, least.head_bytes)
        == (plan.baseline_arena_bytes, plan.arena_bytes, in_place.arena_bytes),
        "is_optimal": plan.arena_bytes == plan.lower_bound_bytes,
        "estimate_over_measured": plan.total_bytes / after.smallest_bytes,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The bar, and what is checked beside it."""
    ratios, in_place = ([row[name] for row in rows] for name in ("ratio", "in_place_ratio"))
    return {
        "graphs": len(rows),
        "geometric_mean": math.exp(sum(map(math.log, ratios)) / len(ratios)),
        "in_place_geometric_mean": math.exp(sum(map(math.log, in_place)) / len(in_place)),
        "worst": max(ratios),
        "never_above": all(ratio <= 1 for ratio in (*ratios, *in_place)),
        "outputs_equal": all(row["is_equal"] for row in rows),
        "arenas_predicted": sum(row["is_predicted"] for row in rows),
        "arenas_proved_optimal": sum(row["is_optimal"] for row in rows),
        "smallest_estimate_over_measured": min(row["estimate_over_measured"] for row in rows),
        "largest_estimate_over_measured": max(row["estimate_over_measured"] for row in rows),
    }


def main() -> int:
    """Measures, prints and saves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(seed, Path(folder)) for seed in range(count)]
    found = summary(rows)
    cells = [
        (
            *(str(row[name]) for name in ("seed", "operators", "dtype")),
            *(str(row[f"{which}_arena_bytes"]) for which in ("original", "planned")),
            f"{row['ratio']:.3f}",
            str(row["in_place_arena_bytes"]),
            f"{row['in_place_ratio']:.3f}",
            "equal" if row["is_equal"] else "DIFFERENT",
        )
        for row in rows
    ]
    say(table(COLUMNS, cells))
    say(str(found))
    say(f"written: {save(RESULT, recorded(rows, seed=0, repeats=1, **found))}")
    return 0 if found["geometric_mean"] <= BAR and found["never_above"] and found["outputs_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
