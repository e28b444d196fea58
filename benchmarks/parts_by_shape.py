"""Lowest peaks over a grid of shapes, with parts by shape: `python benchmarks/parts_by_shape.py`.

Training steps are captured once, with a batch and a length that vary. Beside each other stand, at each shape of a grid, the
lowest predicted peaks with workspace of

* recompute alone: the program with points, without parts;
* fixed parts: the same region as in the next line, in 2, 4 or 8 parts at every shape, with recomputation around it;
* parts by shape: what `compile_step(dynamic=..., numerics="close")` runs, where each call chooses.

Then the step is planned for the lowest peak found at the largest shape, and run at shapes of the grid. The measured peak of
storages must be the predicted one, and the loss within a tolerance of eager's. Decisions are timed at shapes that are drawn from
the upper part of the ranges, under limits between the lowest peak and program order's, in processor time. The result is `results/parts_by_shape.json`.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_record import RESULTS, markdown, recorded, save, say

if TYPE_CHECKING:
    from neaptide.planner.points.choices.choice import Choice
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide.runtime.steps.planned_graph import PlannedGraph

SEED: Final = 0
MODELS: Final = ("llama@tiny,layers=1", "gpt2@tiny,layers=1")
BATCHES: Final = (2, 3, 8)
LENGTHS: Final = (6, 25, 64)
RANGE: Final = {"batch": {0: (2, 8), 1: (2, 64)}}
FIXED: Final = (2, 4, 8)
RUN: Final = ((8, 64), (3, 25), (8, 25), (2, 6))
TOLERANCE: Final = 1e-5
REPEATS: Final = 30
DECIDED: Final = 12  # shapes that are drawn for each limit
SHARES: Final = (
    5,
    30,
    60,
    90,
)  # of the way from the lowest peak at the largest shape to that in program order
KIB: Final = 1024
COLUMNS: Final = (
    "step",
    "batch x length",
    "program order (KiB)",
    "recompute alone",
    *(f"{count} parts" for count in FIXED),
    "parts by shape",
    "parts",
    "exact",
)

Row = dict[str, Any]


def measured(model: str) -> list[Row]:
    """One step at all shapes of the grid."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.planner.points.choices.choice import Choice
    from neaptide.planner.points.parts import part_lengths
    from neaptide.policy.points.for_all_shapes import planned_within
    from neaptide.policy.points.saved_plan import in_program_order

    prepared = _prepared(_factory(model))
    options = Ask(Budget("100%"), limits=Limits(seed=SEED), numerics="close")
    planned = planned_within(prepared.captured.steady, prepared, options, 0)
    in_order, choice = in_program_order(planned.graph, prepared), planned.choice()
    alone, parts = choice.decisions[0], choice.decisions[-1]
    in_parts = Choice([parts.plan])
    (axis,) = part_lengths(parts.plan.shaped.graph)
    rows = []
    for sizes in itertools.product(BATCHES, LENGTHS):
        shape = {dim.name: size for dim, size in zip(planned.graph.dims, sizes, strict=True)}
        _, lengths = in_parts.chosen(shape, 0)
        rows.append(
            {
                "model": model,
                "shape": list(sizes),
                "program_order_peak_bytes": in_order.at(shape).peak_bytes,
                "recompute_peak_bytes": alone.of(shape, 0).script.peak_bytes,
                "fixed_peak_bytes": {
                    count: parts.of({**shape, axis.dim: axis.in_parts(count, shape)}, 0).script.peak_bytes
                    for count in FIXED
                },
                "peak_bytes": choice.at(shape, 0).script.peak_bytes,
                "parts": -(-axis.length.evaluate(shape) // lengths[axis.dim])
                if choice.chosen(shape, 0)[0]
                else 1,
                "region_nodes": len(planned.in_parts.rewrites[-1].nodes) if planned.in_parts else 0,
            }
        )
        say(f"{model} {sizes}: {rows[-1]}")
    rows[-1]["decisions"] = decisions(planned)
    limit = next(row["peak_bytes"] for row in rows if tuple(row["shape"]) == RUN[0])
    found = runs(model, limit)
    for row in rows:
        row["run"] = found.get(tuple(row["shape"]))
    return rows


def decisions(planned: PlannedGraph) -> Row:
    """Processor seconds of decisions for shapes that are new and for the same shapes when they were seen."""
    largest = {dim.name: dim.high or dim.low for dim in planned.graph.dims}
    choice, draw = planned.choice(), random.Random(SEED)
    low = choice.at(largest, 0).script.peak_bytes
    high = choice.decisions[0].plan.shaped.at(largest).peak_bytes
    new, seen = [], []
    for share in SHARES:
        limit = low + (high - low) * share // 100
        for _ in range(DECIDED):
            shape = {dim: draw.randint(size * 6 // 10, size) for dim, size in largest.items()}
            choice = planned.choice()
            new.append(_seconds(choice, shape, limit))
            seen += [_seconds(choice, shape, limit) for _ in range(REPEATS)]
    return {
        "new_shape_seconds": statistics.median(new),
        "new_shape_seconds_highest": max(new),
        "seen_shape_seconds": statistics.median(seen),
    }


def _seconds(choice: Choice, shape: dict[str, int], limit: int) -> float:
    began = time.thread_time_ns()
    choice.at(shape, limit)
    return (time.thread_time_ns() - began) / 1e9


def runs(model: str, limit: int) -> dict[tuple[int, ...], Row]:
    """Real steps under a limit: the peak beside the predicted one, the loss beside eager's, by shape."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.policy.points.for_all_shapes import for_all_shapes
    from neaptide.runtime.measuring.meter import LiveBytesMeter
    from neaptide.runtime.steps.arena_report import predicted_at
    from neaptide.runtime.steps.planned_step import PlannedStep

    eager, step = _factory(model), _factory(model)
    prepared = _prepared(step)
    options = Ask(Budget(limit), limits=Limits(seed=SEED), numerics="close")
    variant = for_all_shapes(prepared, options)
    fast = PlannedStep(step, lambda *_: variant)
    fast(_batch(RUN[-1])), eager(_batch(RUN[-1]))
    found = {}
    for sizes in RUN:
        given = _batch(sizes)
        with LiveBytesMeter([*given.values(), *fast.persistent()]) as meter:
            loss = float(fast(given))
        shape = {dim.name: size for dim, size in zip(variant.graphs[0].graph.dims, sizes, strict=True)}
        predicted, with_workspace = predicted_at(variant.graphs[0], shape)
        found[sizes] = {
            "limit_bytes": limit,
            "measured_peak_bytes": meter.peak_bytes,
            "predicted_peak_bytes": predicted,
            "predicted_peak_with_workspace_bytes": with_workspace,
            "relative_difference_of_loss": abs(loss / float(eager(given)) - 1),
        }
        say(f"{model} {sizes} ran: {found[sizes]}")
    return found


def _factory(model: str) -> Any:
    import torch

    from neaptide import zoo

    torch.manual_seed(SEED)
    return zoo.factory(f"{model},batch={BATCHES[-1]},seq={LENGTHS[-1]}")()[0]


def _batch(sizes: tuple[int, ...]) -> dict[str, Any]:
    import torch

    chance = torch.Generator().manual_seed(sum(sizes))
    tokens = torch.randint(0, 64, sizes, generator=chance)
    return {"input_ids": tokens, "labels": tokens.clone()}


def _prepared(step: Any) -> PreparedStep:
    from neaptide.policy.prepared_step import prepare

    return prepare(step, (_batch((3, 25)),), run_operations=False, dynamic=RANGE)


def lines(result: Row) -> list[tuple[str, ...]]:
    """The cells of the table."""
    found = []
    for row in result["rows"]:
        ran = row["run"]
        exact = "-" if ran is None else _exact(ran)
        found.append(
            (
                row["model"],
                " x ".join(map(str, row["shape"])),
                f"{row['program_order_peak_bytes'] / KIB:.1f}",
                f"{row['recompute_peak_bytes'] / KIB:.1f}",
                *(f"{nbytes / KIB:.1f}" for nbytes in row["fixed_peak_bytes"].values()),
                f"{row['peak_bytes'] / KIB:.1f}",
                str(row["parts"]),
                exact,
            )
        )
    return found


def _exact(ran: Row) -> str:
    if ran["measured_peak_bytes"] != ran["predicted_peak_bytes"]:
        return f"{ran['measured_peak_bytes'] / ran['predicted_peak_bytes'] - 1:+.2%}"
    return "yes" if ran["relative_difference_of_loss"] <= TOLERANCE else "other numbers"


def in_markdown(result: Row) -> str:
    """The table, and what decisions take."""
    text = markdown(COLUMNS, lines(result))
    rows = result["rows"]
    least = [min(row["recompute_peak_bytes"], *row["fixed_peak_bytes"].values()) for row in rows]
    above = [row["peak_bytes"] / best - 1 for row, best in zip(rows, least, strict=True)]
    decided = [row["decisions"] for row in rows if "decisions" in row]
    median, highest = (
        max(one[name] for one in decided) * 1e3 for name in ("new_shape_seconds", "new_shape_seconds_highest")
    )
    seen = max(one["seen_shape_seconds"] for one in decided) * 1e6
    worst = max(row["run"]["relative_difference_of_loss"] for row in rows if row["run"])
    text += [
        "",
        f"Beside the lowest of all others at its shape: {min(above):+.1%} to {max(above):+.1%}.",
        f"A shape that is new is decided in {median:.1f} ms, at most {highest:.1f} ms; one that was seen in {seen:.1f} us.",
        f"Losses differ from eager's by at most {worst:.1e} of them; made {result['made'][:10]}.",
    ]
    return "\n".join(text)


def main() -> None:
    """Measure, print a table and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    asked = parser.parse_args()
    rows = [row for model in asked.models for row in measured(model)]
    result = recorded(rows, seed=SEED, repeats=1, range=RANGE)
    save("parts_by_shape", result, asked.output)
    print(in_markdown(result))


if __name__ == "__main__":
    main()
