"""What following axes costs, and what of a step is classified along the batch: `python benchmarks/axes_cost.py`.

Each zoo model is captured on the meta device, so that no kernel runs. All axes of the step are found (`graph_axes`), and the
batch is followed from the inputs that have it (`follow`); both are pure Python on the captured graph. A node of forward or
backward is classified where a row of the op table decides what becomes of it: it runs in parts, needs the whole axis or a
complete sum, or does not depend on the axis. It is not where it depends on the axis and no row says anything. Seconds are
processor time, the median of the repeats. The result is `results/axes_cost.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS, recorded, run_part, save, say, table
from neaptide import zoo
from neaptide.analysis.axes.follow import Carried, Why, follow
from neaptide.analysis.axes.whole_graph import graph_axes
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ir.values import Kind
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture

SEED: Final = 0
REPEATS: Final = 5
PART_SECONDS: Final = 600
COLUMNS: Final = (
    "model",
    "nodes",
    "in parts",
    "whole",
    "untouched",
    "classified",
    "along the batch (s)",
    "all axes (s)",
)


def measure(spec: str, repeats: int) -> dict[str, Any]:
    """One model: how its forward and backward nodes are classified along the batch, and how long that takes."""
    step, batch = zoo.factory(spec, device="meta")()
    graph = capture(step, (batch,)).steady.graph
    seeds, length = along_the_batch(graph)
    nodes = [node.id for node in graph.nodes if node.source.phase != "optimizer"]
    found, seconds = timed(lambda: follow(graph, registry(), seeds, length, nodes), repeats)
    _, all_seconds = timed(lambda: graph_axes(graph, registry()), repeats)
    return {
        "spec": spec,
        "nodes": len(nodes),
        "length": length,
        **classes(found, nodes),
        "seconds": seconds,
        "all_axes_seconds": all_seconds,
    }


def along_the_batch(graph: Graph) -> tuple[dict[int, Along], int]:
    """The inputs of the step whose first dim is the batch, and its length: what most of these dims have."""
    lengths: dict[int, int] = {}
    for value in graph.inputs:
        storage = graph.values[value].storage
        is_of_the_step = storage is not None and graph.storages[storage].kind is Kind.INPUT
        if is_of_the_step and graph.values[value].shape:
            lengths[value] = graph.values[value].shape[0].constant_value()
    length = statistics.mode(lengths.values())
    return {value: Along(0) for value, extent in lengths.items() if extent == length}, length


def classes(found: Carried, nodes: list[int]) -> dict[str, int]:
    """How many nodes of each class there are."""
    unknown = {barrier.node for barrier in found.barriers if barrier.why is Why.NO_ROW}
    whole = {barrier.node for barrier in found.barriers} - unknown
    in_parts = set(found.members)
    return {
        "in_parts": len(in_parts),
        "whole": len(whole),
        "untouched": len(nodes) - len(in_parts) - len(whole) - len(unknown),
        "not_classified": len(unknown),
    }


def timed(call: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """The answer, and the median of the processor time."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        found = call()
        seconds.append(time.process_time() - began)
    return found, statistics.median(seconds)


def cells(row: dict[str, Any]) -> list[str]:
    """A row as it is printed."""
    counts = (f"{row[name]:,}" for name in ("nodes", "in_parts", "whole", "untouched"))
    share = 1 - row["not_classified"] / row["nodes"]
    return [row["spec"], *counts, f"{share:.1%}", f"{row['seconds']:.3f}", f"{row['all_axes_seconds']:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(zoo.names()), help="of the zoo")
    parser.add_argument("--size", default="small", choices=["tiny", "small"])
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each analysis")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="measure one model here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.repeats)))
        return
    rows = []
    for model in asked.models:
        spec = f"{model}@{asked.size}"
        say(spec)
        found = run_part("axes_cost.py", "--one", spec, f"--repeats={asked.repeats}", timeout_s=PART_SECONDS)
        if "failure" in found:
            parser.exit(1, f"{spec}: {found['failure']}\n")
        rows.append(found)
    print(table(COLUMNS, [cells(row) for row in rows]))
    result = recorded(rows, seed=SEED, repeats=asked.repeats, size=asked.size)
    save("axes_cost", result, asked.output)


if __name__ == "__main__":
    main()
