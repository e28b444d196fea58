"""Footprints beside TVM Relax: `python benchmarks/onnx_tvm.py --python PYTHON [NAME ...] [--passes learned|none]`.

PYTHON is one that has `apache-tvm` and `onnx`. TVM fuses the canonical file and plans its storages
(`StaticPlanBlockMemory`); its figure leaves inputs and outputs to the caller, ours counts both. A second mean adds them to its
figure, as the caller holds them through the call. With `--keep` the numbers go to `benchmarks/results/onnx_tvm.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import neaptide.onnx
from bench_record import say, table
from neaptide.errors import NeaptideError
from neaptide.ir.values import Kind
from neaptide_corpus.onnx_models import catalogue
from onnx_files_of_corpus import KIB, LIMITS, file_of, geometric_mean, keep, named

Row = dict[str, Any]
LEAST_MEAN: Final = 2.34


def ours(name: str, passes: Sequence[str], canonical: Path) -> Row:
    """Our plan of a model; its canonical file is written for TVM."""
    path = file_of(name)
    plan = neaptide.onnx.plan(path, passes=passes, **LIMITS)
    neaptide.onnx.plan(path, passes="none", peak=None).save(canonical)
    return {
        "case": name,
        "file_bytes": plan.found.baseline_peak_bytes,
        "order_bytes": plan.found.order_peak_bytes,
        "peak_bytes": plan.peak_bytes,
        "end_bytes": sum(
            storage.nbytes.constant_value()
            for storage in plan.source.graph.storages
            if storage.kind in {Kind.INPUT, Kind.OUTPUT}
        ),
        "passes": [step.name for step in plan.found.steps],
    }


def theirs(python: str, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """What TVM makes of files, in one process; a file at which it ends has a failure, and those after it too."""
    script = Path(__file__).with_name("onnx_tvm_process.py")
    done = subprocess.run(
        [python, str(script), *map(str, paths)], capture_output=True, text=True, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    complaint = (done.stderr.strip().splitlines() or ["it ended"])[-1][:200]
    return [*found, *({"failure": complaint} for _ in paths[len(found) :])]


def show(rows: Sequence[Row]) -> str:
    """The table in KiB, and which bars are met."""
    columns = ("model", "file", "order", "planned", "TVM", "TVM / planned", "passes")
    cells = []
    for row in (row for row in rows if "failure" not in row):
        theirs = row["tvm"].get("storage_bytes")
        sizes = [row[key] for key in ("file_bytes", "order_bytes", "peak_bytes")]
        shown = ["-", "-"] if theirs is None else [f"{theirs / KIB:.1f}", f"{theirs / row['peak_bytes']:.2f}"]
        cells.append([row["case"], *(f"{s / KIB:.1f}" for s in sizes), *shown, ",".join(row["passes"])])
    return "\n".join([table(columns, cells), *verdicts(rows)])


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Which bars are met, and what was not measured."""
    both = [row for row in rows if "failure" not in row and "failure" not in row["tvm"]]
    above = [row["case"] for row in both if row["peak_bytes"] > row["tvm"]["storage_bytes"]]
    mean = geometric_mean([row["tvm"]["storage_bytes"] / row["peak_bytes"] for row in both])
    whole = geometric_mean(
        [(row["tvm"]["storage_bytes"] + row["end_bytes"]) / row["peak_bytes"] for row in both]
    )
    failed = [row["case"] for row in rows if row not in both]
    return [
        f"{len(above)} of {len(both)} are above TVM {' '.join(above)}(bar 0).",
        f"The geometric mean of TVM over planned is {mean:.2f} (bar {LEAST_MEAN}).",
        f"It is {whole:.2f} with inputs and outputs, which the caller of TVM holds.",
        *([f"Not compared: {', '.join(failed)}."] if failed else []),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models, or parts of their names")
    parser.add_argument("--python", required=True, help="a Python that has apache-tvm and onnx")
    parser.add_argument("--passes", default="learned")
    parser.add_argument("--keep", action="store_true", help="write the rows into the result")
    asked = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in named(asked.names, (*catalogue.EXPORTS, *catalogue.IRREGULAR)):
            try:
                rows.append(ours(name, asked.passes.split(","), Path(folder) / f"{name}.onnx"))
            except NeaptideError as error:
                rows.append({"case": name, "failure": " ".join(str(error).split())})
            say(f"{name}: {rows[-1].get('peak_bytes')}")
        planned = [row for row in rows if "failure" not in row]
        paths = [Path(folder) / f"{row['case']}.onnx" for row in planned]
        for row, found in zip(planned, theirs(asked.python, paths), strict=True):
            row["tvm"] = found
    print(show(rows))
    if asked.keep:
        keep("onnx_tvm", rows, asked.passes)


if __name__ == "__main__":
    main()
