"""Peaks of ONNX Runtime, measured beside predicted: `python benchmarks/onnx_runtime.py [NAME ...] [--passes learned|none]`.

For each model of the corpus: the original file with the runtime's defaults and with the best of some settings, and the
planned file with its session options; with `--fuse`, also the file that the runtime has fused, planned. Inputs are the caller's and do
not count. With `--keep` each row goes to `benchmarks/results/onnx_runtime.json` as soon as it is there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import onnx

import neaptide.onnx
from bench_record import say, table
from neaptide.cost.onnxruntime.model_files import RuntimeOptions, fused_model, measured_peak
from neaptide.cost.onnxruntime.process import RuntimeProcess
from neaptide.errors import NeaptideError, UsageError
from neaptide_corpus.onnx_models import catalogue
from neaptide_corpus.onnx_models.feeds import random_feeds
from onnx_files_of_corpus import KIB, LIMITS, file_of, geometric_mean, keep, named

Row = dict[str, Any]
WITHIN: Final = 0.05
SHARE_WITHIN: Final = 0.9
MOST_MEAN: Final = 0.70

DEFAULT: Final = RuntimeOptions(optimize="all", priority=False, pattern=True, reuse=True)
SETTINGS: Final[Mapping[str, RuntimeOptions]] = MappingProxyType(
    {
        "default": DEFAULT,
        "no pattern": RuntimeOptions(optimize="all", priority=False, reuse=True),
        "no pattern, no reuse": RuntimeOptions(optimize="all", priority=False),
        "extended": RuntimeOptions(optimize="extended", priority=False),
        "basic": RuntimeOptions(optimize="basic", priority=False),
        "in file order": RuntimeOptions(optimize="all"),
        "as it is": RuntimeOptions(),
    }
)


def measure(name: str, passes: Sequence[str], *, fuse: bool) -> Row:
    """One model: settings on the original, and the planned files."""
    path = file_of(name)
    feeds = random_feeds(onnx.load(path))
    with RuntimeProcess() as process:
        original = {
            setting: measured_peak(path, feeds, options, process).peak_bytes
            for setting, options in SETTINGS.items()
        }
    with tempfile.TemporaryDirectory() as folder:
        fused = Path(folder) / "fused.onnx"
        if fuse:
            fused.write_bytes(fused_model(path))
        sources = {"file": path, "fused": fused} if fuse else {"file": path}
        rows = {
            kind: planned(source, Path(folder) / f"{kind}_planned.onnx", feeds, passes)
            for kind, source in sources.items()
        }
    chosen = min(rows, key=lambda kind: rows[kind]["predicted_bytes"])
    return {
        "case": name,
        "original_bytes": original,
        "best_bytes": min(original.values()),
        "default_resident_bytes": measured_peak(path, feeds, DEFAULT).resident_bytes,
        "plans": rows,
        "chosen": chosen,
        "measured_bytes": rows[chosen]["measured_bytes"],
    }


def planned(source: Path, target: Path, feeds: Mapping[str, Any], passes: Sequence[str]) -> Row:
    """Plan a file for ONNX Runtime, write it, and run it."""
    began = time.perf_counter()
    plan = neaptide.onnx.plan(source, passes=passes, target="ort", **LIMITS)
    seconds = time.perf_counter() - began
    if plan.note and plan.own is None:
        raise UsageError(plan.note, next_step="run the benchmark where a compiler and ONNX Runtime are")
    plan.save(target)
    measured = measured_peak(target, feeds, None if plan.own is None else plan.own.options)
    return {
        "predicted_bytes": plan.peak_bytes,
        "measured_bytes": measured.peak_bytes,
        "resident_bytes": measured.resident_bytes,
        "baseline_predicted_bytes": plan.found.baseline_peak_bytes,
        "order_predicted_bytes": plan.found.order_peak_bytes,
        "passes": [step.name for step in plan.found.steps] if plan.own is None else [],
        "own_optimizers": None if plan.own is None else plan.own.options.optimize,
        "searched_bytes": plan.found.peak_bytes,
        "plan_seconds": seconds,
    }


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Which bars are met."""
    good = [row for row in rows if "failure" not in row]
    pairs = [plan for row in good for plan in row["plans"].values()]
    close = [p for p in pairs if abs(p["predicted_bytes"] / p["measured_bytes"] - 1) <= WITHIN]
    above = [row["case"] for row in good if row["measured_bytes"] > row["best_bytes"]]
    mean = geometric_mean([row["measured_bytes"] / row["best_bytes"] for row in good])
    return [
        f"predicted within {WITHIN:.0%}: {len(close)} of {len(pairs)} (bar {SHARE_WITHIN:.0%})",
        f"above the runtime's best setting: {len(above)} of {len(good)} {' '.join(above)} (bar 0)",
        f"geometric mean of planned / best: {mean:.3f} (bar {MOST_MEAN})",
        *(f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row),
    ]


def show(rows: Sequence[Row]) -> str:
    """The table, in KiB."""
    columns = ("model", "default", "best", "planned", "predicted", "ratio", "by")
    cells = []
    for row in rows:
        if "failure" in row:
            continue
        plan = row["plans"][row["chosen"]]
        sizes = [row["original_bytes"]["default"], row["best_bytes"]]
        sizes += [plan[f"{what}_bytes"] for what in ("measured", "predicted")]
        ratio = row["measured_bytes"] / row["best_bytes"]
        by = plan["own_optimizers"] or ("passes" if plan["passes"] else "order")
        cells.append([row["case"], *(f"{size / KIB:.1f}" for size in sizes), f"{ratio:.3f}", by])
    return table(columns, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models, or parts of their names")
    parser.add_argument("--passes", default="learned")
    parser.add_argument("--fuse", action="store_true", help="plan what the runtime fuses too")
    parser.add_argument("--keep", action="store_true", help="write the rows into the result")
    asked = parser.parse_args()
    names = named(asked.names, (*catalogue.EXPORTS, *catalogue.QUANTIZED, *catalogue.IRREGULAR))
    rows = []
    for name in names:
        try:
            rows.append(measure(name, asked.passes.split(","), fuse=asked.fuse))
        except NeaptideError as error:
            rows.append({"case": name, "failure": " ".join(str(error).split())})
        say(
            f"{name} failed: {rows[-1]['failure']}"
            if "failure" in rows[-1]
            else show(rows[-1:]).splitlines()[-1]
        )
        if asked.keep:
            keep("onnx_runtime", rows[-1:], asked.passes)
    print(show(rows))
    print("\n".join(verdicts(rows)))


if __name__ == "__main__":
    main()
