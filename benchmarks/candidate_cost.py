"""What judging a changed graph costs: `python benchmarks/candidate_cost.py [--layers 6 48] [--models vit@paper]`.

Candidates put copies in front of users, somewhere in a training step of a transformer with so many layers, or in one of the zoo
that is captured on the meta device, so that about 20 nodes are touched. Printed is processor time on one thread: of a candidate checked in the sequence that stood before,
beside what the same answer takes by compiling, and of the edit itself, which comes before either. Medians and ninth deciles.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from bench_record import RESULTS, recorded, save, table
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.edits.edit import Edited, GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.ops.aten.dialect import CLONE
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide_corpus.training_steps import transformer_step
from neaptide_peers.candidates.check import check_candidate
from neaptide_peers.candidates.standing import Standing

T = TypeVar("T")

SEED: Final = 0
CANDIDATES: Final = 25
COPIES: Final = 10  # each is a node, and the first user of its operand is another
DEVICE: Final = "rtx3090"
COLUMNS: Final = ("step", "nodes", "touched", "checked (ms)", "p90", "compiled (ms)", "edit (ms)")


def edited(graph: Graph, first: int, copying: str) -> Edited:
    """A graph with copies between nodes and their first users, from a node on."""
    users = graph.consumers()
    edit = GraphEdit(graph)
    left = COPIES
    for node in graph.nodes[first:]:
        if left and node.outputs and node.effects.is_pure and users[node.outputs[0]]:
            value = node.outputs[0]
            was = graph.values[value]
            copy = edit.fresh("copy", was.dtype, was.shape)
            edit.insert_after(node.id, NodeDraft(copying, (value,), (copy,), (Ref(0),)))
            edit.replace_uses(value, copy, users[value][:1])
            left -= 1
    return edit.finish()


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Processor milliseconds without the garbage collector, as `timeit` takes them, and what came out."""
    gc.disable()
    began = time.process_time()
    found = function()
    took = time.process_time() - began
    gc.enable()
    return 1e3 * took, found


def compiled(standing: Standing, change: Edited, sequence: tuple[int, ...]) -> tuple[int, float]:
    """Peak and seconds the slow way: price, compile, play, check."""
    pricing = Pricing(standing.pricing.cost, standing.pricing.registry)
    step = pricing.problem(change.graph)
    check_schedule(change.graph, Schedule.from_nodes(change.graph, sequence), pricing.registry)
    return Evaluator(step, sequence).peak, step.sequence_seconds(sequence)


def of_the_zoo(spec: str) -> Graph:
    """A step of the zoo, captured without its bytes."""
    from neaptide import zoo
    from neaptide.runtime.steps.capturing import capture

    step, batch = zoo.factory(spec, device="meta")()
    return capture(step, (batch,)).steady.graph


def measure(name: str, graph: Graph, meaning: OpRegistry, copying: str) -> dict[str, Any]:
    """One graph: candidates spread over its first half, checked both ways."""
    standing = Standing(graph, Pricing(EstimatedCost(get_device(DEVICE), meaning), meaning))
    rng = random.Random(SEED)
    rows = []
    for number in range(CANDIDATES):
        first = rng.randrange(len(graph.nodes) // 2)
        edit_ms, change = timed(lambda at=first: edited(graph, at, copying))
        checked_ms, found = timed(lambda to=change: check_candidate(standing, to))
        assert not found.refusal, found.refusal
        row = {"edit_ms": edit_ms, "checked_ms": checked_ms, "touched": len(change.touched)}
        if number < CANDIDATES // 5:
            sequence = found.sequence()
            row["compiled_ms"], right = timed(lambda to=change, of=sequence: compiled(standing, to, of))
            assert right == (found.peak_with_workspace_bytes, found.seconds)
        rows.append(row)
    checked = sorted(row["checked_ms"] for row in rows)
    return {
        "step": name,
        "nodes": len(graph.nodes),
        "touched": statistics.median(row["touched"] for row in rows),
        "checked_ms": statistics.median(checked),
        "checked_p90_ms": checked[int(0.9 * len(checked))],
        "compiled_ms": statistics.median(row["compiled_ms"] for row in rows if "compiled_ms" in row),
        "edit_ms": statistics.median(row["edit_ms"] for row in rows),
    }


def cells(row: dict[str, Any]) -> list[str]:
    """A row as it is printed."""
    times = (f"{row[name]:.2f}" for name in ("checked_ms", "checked_p90_ms", "compiled_ms", "edit_ms"))
    return [row["step"], str(row["nodes"]), f"{row['touched']:.0f}", *times]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[6, 48], help="default: %(default)s")
    parser.add_argument("--models", nargs="*", default=["vit@paper"], help="of the zoo; default: %(default)s")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    asked = parser.parse_args()
    made = {f"{layers} layers": transformer_step(layers=layers) for layers in asked.layers}
    rows = [measure(name, step.graph, step.registry, "toy.mix") for name, step in made.items()]
    rows += [measure(spec, of_the_zoo(spec), registry(), CLONE) for spec in asked.models]
    print(table(COLUMNS, [cells(row) for row in rows]))
    save("candidate_cost", recorded(rows, seed=SEED, repeats=CANDIDATES, device=DEVICE), asked.output)


if __name__ == "__main__":
    main()
