"""Is every model of the corpus planned, and does the planned file compute the same: `python benchmarks/onnx_breadth.py [NAME ...]`.

Each is read, planned, written, checked by onnx's full checker, and run by ONNX Runtime beside the original, both without
optimizers. Int8 forms run without packed weights too: the runtime packs a weight, and not what a dequantisation makes of one
while it runs, so that a product of the planned file, whose weights are dequantised when it is written, may round elsewhere.
Whether they are equal with packed weights is a column of its own. `--passes none` orders only. With `--keep` each row goes to
`benchmarks/results/onnx_breadth.json` as soon as it is there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

import neaptide.onnx
from bench_record import say, table
from neaptide.errors import NeaptideError
from neaptide_corpus.onnx_models import catalogue
from neaptide_corpus.onnx_models.feeds import largest_error, random_feeds
from onnx_files_of_corpus import KIB, file_of, keep, named

Row = dict[str, Any]
MOST_ERROR: Final = 1e-5


def look(path: Path, passes: Sequence[str], *, packed: bool = True) -> Row:
    """Plan a file and compare what it computes, with packed weights or without; raises where a part of it fails."""
    began = time.perf_counter()
    plan = neaptide.onnx.plan(path, passes=passes)
    seconds = time.perf_counter() - began
    planned = plan.to_model()
    onnx.checker.check_model(planned, full_check=True)
    original = onnx.load(path)
    feeds = random_feeds(original)
    found, expected = (run(one, feeds, packed=packed) for one in (planned, original))
    return {
        "nodes": len(original.graph.node),
        "planned_nodes": len(planned.graph.node),
        "baseline_bytes": plan.found.baseline_peak_bytes,
        "order_bytes": plan.found.order_peak_bytes,
        "peak_bytes": plan.found.peak_bytes,
        "lower_bound_bytes": plan.found.lower_bound_bytes,
        "passes": [step.name for step in plan.found.steps],
        "error": largest_error(found, expected),
        "equal": equal(found, expected),
        "equal_with_packed_weights": equal(run(planned, feeds), run(original, feeds)),
        "unknown_operators": neaptide.onnx.unknown_operators(plan.found.graph),
        "plan_seconds": seconds,
    }


def equal(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def run(model: onnx.ModelProto, feeds: Mapping[str, Any], *, packed: bool = True) -> list[Any]:
    """Outputs by ONNX Runtime, without optimizers and on one thread; `packed`: kernels may lay weights out for themselves."""
    options = neaptide.onnx.session_options()
    if not packed:
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    made: list[Any] = session.run(None, feeds)
    return made


def is_right(row: Row) -> bool:
    """Whether outputs are as near as the bar says; those of int8 forms are equal."""
    exact = row["case"] in catalogue.QUANTIZED
    return "failure" not in row and (row["equal"] if exact else row["error"] <= MOST_ERROR)


def show(rows: Sequence[Row]) -> str:
    """The table, footprints in KiB, with the failures below it."""
    columns = ("model", "nodes", "file", "order", "planned", "bound", "error", "s", "passes")
    sizes = ("baseline_bytes", "order_bytes", "peak_bytes", "lower_bound_bytes")
    cells = [
        [
            row["case"],
            str(row["nodes"]),
            *(f"{row[size] / KIB:.1f}" for size in sizes),
            "equal" if row["equal"] else f"{row['error']:.1e}",
            f"{row['plan_seconds']:.1f}",
            ",".join(row["passes"]),
        ]
        for row in rows
        if "failure" not in row
    ]
    failures = [f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row]
    wrong = [f"{row['case']} is wrong" for row in rows if "failure" not in row and not is_right(row)]
    return "\n".join([table(columns, cells), *failures, *wrong])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models, or parts of their names")
    parser.add_argument("--passes", default="learned")
    parser.add_argument("--keep", action="store_true", help="write the rows into the result")
    asked = parser.parse_args()
    rows = []
    for name in named(asked.names):
        try:
            row = look(file_of(name), asked.passes.split(","), packed=name not in catalogue.QUANTIZED)
        except Exception as error:  # noqa: BLE001 - what failed is a row of the table
            kind = "" if isinstance(error, NeaptideError) else f"{type(error).__name__}: "
            row = {"failure": kind + " ".join(str(error).split())[:400]}
        rows.append({"case": name, "asked": asked.passes, **row})
        say(show(rows[-1:]).splitlines()[-1])
        if asked.keep:
            keep("onnx_breadth", rows[-1:], asked.passes)
    print(show(rows))
    print(f"right: {sum(map(is_right, rows))} of {len(rows)}")


if __name__ == "__main__":
    main()
