"""Footprints of model files in file order, in the best order, and after passes: `python benchmarks/onnx_footprint.py [NAME ...]`.

The sequences of passes are fixed: the best that are known for each model. `macs` says by how much passes raise the
multiply-adds. With all models the numbers go to `benchmarks/results/onnx_footprint.json`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from bench_record import recorded, save, say, table
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.graph import Graph
from neaptide.ir.registry import Call, Trait
from neaptide.lower.onnx.writer import write_model
from neaptide.ops.onnx import registry
from neaptide.outcome import Limits
from neaptide.planner.passes.graph_space import GraphSpace, PassState
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.of_model import model_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.result import OrderResult
from neaptide.transform.passes import PASSES
from neaptide_corpus.onnx_models.feeds import largest_error, random_feeds
from onnx_breadth import run
from onnx_files_of_corpus import KIB, file_of, named

Row = dict[str, Any]
WORK: Final = 20_000
MOST_ERROR: Final = 1e-5

# Model, sequence of passes, bar in KiB, and by how much multiply-adds may grow.
CASES: Final[tuple[tuple[str, tuple[str, ...], int, float], ...]] = (
    ("two_convolutions", ("channel_fission_all",), 217, 1.0),
    ("two_convolutions", ("windows_2", "channel_fission_all", "channel_fission_all"), 128, 1.05),
    ("mobilenet_v2", ("windows_4", "windows_4", "channel_fission_4"), 216, math.inf),
    ("resnet18", ("windows_4", "windows_4"), 216, math.inf),
    ("unet", ("channel_fission_2", "channel_fission_2", "concat_before_convolution"), 1440, math.inf),
    ("densenet", ("elementwise_before_concat", "concat_before_convolution"), 768, math.inf),
    ("darts", ("elementwise_before_concat", "concat_before_convolution"), 576, math.inf),
    ("randwire", (), 896, 1.0),
)


def look(name: str, passes: Sequence[str]) -> Row:
    """One model through its passes."""
    began = time.perf_counter()
    model = read_model(file_of(name))
    space = GraphSpace(model.graph, registry(), PASSES, lambda graph: model_problem(graph, registry()), WORK)
    state = space.start
    steps = []
    for one in passes:
        space.measure(state)
        state = applied(space, state, one)
        steps.append(peak(state.graph).peak_bytes)
    problem = model_problem(model.graph, registry())
    feeds = random_feeds(write_model(model))
    error = largest_error(run(write_model(model, state.graph), feeds), run(write_model(model), feeds))
    planned = peak(state.graph)
    return {
        "file_bytes": evaluate_order(problem, range(problem.op_count)).peak_bytes,
        "order_bytes": peak(model.graph).peak_bytes,
        "after_pass_bytes": steps,
        "peak_bytes": planned.peak_bytes,
        "lower_bound_bytes": planned.order_lower_bound_bytes,
        "passes": list(passes),
        "macs": macs(state.graph) / macs(model.graph),
        "nodes": len(state.graph.nodes),
        "error": error,
        "seconds": time.perf_counter() - began,
    }


def applied(space: GraphSpace, state: PassState, name: str) -> PassState:
    """The state after a pass, which must find a place."""
    found = space.after(state, name)
    if found is None:
        raise SystemExit(f"{name} finds no place after {', '.join(state.taken) or 'nothing'}")
    return found


def peak(graph: Graph) -> OrderResult:
    """The best order that is found."""
    return best_order(model_problem(graph, registry()), Limits(work=WORK)).require()


def macs(graph: Graph) -> float:
    """Multiply-adds of convolutions and products."""
    total = 0
    for node in graph.nodes:
        spec = registry().find(node.op)
        if spec is not None and (spec.is_a(Trait.CONVOLUTION) or spec.is_a(Trait.CONTRACTION)):
            total += spec.flops(Call(graph, node)).evaluate() // 2
    return float(total)


def show(rows: Sequence[Row]) -> str:
    """The table, footprints in KiB."""
    columns = ("model", "file", "order", "passes", "bar", "macs", "error", "after each pass")
    sizes = ("file_bytes", "order_bytes", "peak_bytes")
    cells = [
        [
            row["case"],
            *(f"{row[size] / KIB:.1f}" for size in sizes),
            str(row["bar_kib"]),
            f"{row['macs']:.3f}",
            f"{row['error']:.1e}",
            " ".join(f"{nbytes / KIB:.0f}" for nbytes in row["after_pass_bytes"]),
        ]
        for row in rows
    ]
    return table(columns, cells)


def is_met(row: Row) -> bool:
    """Whether footprint and work are at or below their bars and the outputs are those of the file."""
    is_cheap = row["most_macs"] is None or row["macs"] <= row["most_macs"]
    return bool(is_cheap and row["peak_bytes"] <= row["bar_kib"] * KIB and row["error"] <= MOST_ERROR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models, or parts of their names")
    asked = parser.parse_args()
    rows = []
    for name, passes, bar, most_macs in CASES:
        if name not in named(asked.names, tuple(dict.fromkeys(case[0] for case in CASES))):
            continue
        limits = {"bar_kib": bar, "most_macs": most_macs if math.isfinite(most_macs) else None}
        rows.append({"case": name, **limits, **look(name, passes)})
        say(show(rows[-1:]).splitlines()[-1])
    print(show(rows))
    print(f"at or below the bar: {sum(map(is_met, rows))} of {len(rows)}")
    if not asked.names:
        save("onnx_footprint", recorded(rows, seed=0, repeats=1))


if __name__ == "__main__":
    main()
