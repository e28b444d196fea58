"""Arenas of programs for all shapes: `python benchmarks/arena_by_shape.py`.

Training steps are captured once, with a batch and a length that vary, and planned for a share of what the largest shape needs.
At shapes that are drawn from the ranges stand beside each other

* the bytes of the arena over those in use in it at once: its fragmentation;
* the peak in the arena over the peak without one;
* processor milliseconds for a shape that is new: the decision, and the layout with it; processor microseconds for one that was
  seen.

Then the step runs at some of the shapes: its loss must have eager's bits, its measured peak of storages must be the predicted one
with what the block has beyond the arena of the shape, and its processor time stands beside that of the same program without an arena, in turns. The result is
`results/arena_by_shape.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_record import RESULTS, recorded, run_part, save, say, table

if TYPE_CHECKING:
    from neaptide.runtime.steps.planned_graph import PlannedVariant
    from neaptide.runtime.steps.planned_step import PlannedStep

SEED: Final = 0
MODELS: Final = ("gpt2@tiny", "llama@tiny", "bert@tiny")
SHARES: Final = ("100%", "75%")
RANGE: Final = {"batch": {0: (2, 16), 1: (4, 64)}}
LARGEST: Final = (16, 64)
FIRST: Final = (5, 23)
DRAWN: Final = 40
RUN: Final = 6  # shapes at which the step runs
PAIRS: Final = 15
REPEATS: Final = 30
COLUMNS: Final = (
    "step",
    "limit",
    "nodes",
    "arena over live bytes",
    "at most",
    "smallest arena proved",
    "peak over that without an arena",
    "new shape (ms)",
    "of it the decision",
    "highest",
    "seen (us)",
    "CPU over that without an arena",
    "same bits",
    "peak as predicted",
)

Row = dict[str, Any]


def measured(model: str, share: str) -> Row:
    """One step under one limit."""
    import torch

    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.policy.points.arenas import in_arenas
    from neaptide.policy.points.for_all_shapes import for_all_shapes
    from neaptide.policy.prepared_step import prepare

    torch.set_num_threads(1)
    prepared = prepare(_step(model), (_batch(FIRST),), dynamic=RANGE)
    options = Ask(Budget(share), limits=Limits(seed=SEED))
    plain = for_all_shapes(prepared, options)
    inside = in_arenas(prepared, plain)
    draw = random.Random(SEED)
    dims = inside.graphs[0].graph.dims
    shapes = [{dim.name: draw.randint(dim.low, dim.high or 0) for dim in dims} for _ in range(DRAWN)]
    row = {"model": model, "share": share, "nodes": len(inside.graphs[0].graph.nodes)}
    row |= predicted(plain, inside, shapes)
    row |= runs(model, plain, inside, [tuple(shape.values()) for shape in shapes[:RUN]])
    return row


def predicted(plain: PlannedVariant, inside: PlannedVariant, shapes: list[dict[str, int]]) -> Row:
    """Bytes of arenas, and how long they take to be decided."""
    from neaptide.planner.points.plan import Decisions
    from neaptide.runtime.arena.tensors_by_shape import Arenas, ShapePlaces

    points, alone = inside.graphs[0].points, plain.graphs[0].points
    assert points is not None
    assert alone is not None
    assert points.arena is not None
    limit = points.budget_bytes
    decisions, others = Decisions(points.plan), Decisions(alone.plan)
    places = ShapePlaces(points.arena, Arenas(lambda: None), lasting=True)
    over, peaks, proved, new, decided, seen = [], [], 0, [], [], []
    for shape in shapes:
        decided.append(_seconds(lambda: Decisions(points.plan).of(shape, limit)))  # noqa: B023
        decisions.of(shape, limit)
        spent = _seconds(lambda: places.arena.within(decisions, shape, limit))  # noqa: B023
        new.append(decided[-1] + spent)
        made = places.arena.within(decisions, shape, limit)
        places.tensors(made, limit)
        seen += [
            _seconds(lambda: places.tensors(places.arena.within(decisions, shape, limit), limit))  # noqa: B023
            for _ in range(REPEATS)
        ]
        over.append(made.arena_bytes / made.live_bytes)
        peaks.append(made.peak_with_workspace_bytes / others.of(shape, limit).script.peak_bytes)
        proved += made.certificate.startswith("optimal")
    return {
        "limit_bytes": limit,
        "arena_over_live": statistics.median(over),
        "arena_over_live_highest": max(over),
        "proved": proved,
        "shapes": len(shapes),
        "peak_over_plain": statistics.median(peaks),
        "peak_over_plain_highest": max(peaks),
        "new_shape_seconds": statistics.median(new),
        "new_shape_seconds_highest": max(new),
        "decision_seconds": statistics.median(decided),
        "seen_shape_seconds": statistics.median(seen),
    }


def runs(model: str, plain: PlannedVariant, inside: PlannedVariant, shapes: list[tuple[int, ...]]) -> Row:
    """Real steps: their losses, peaks and processor times."""
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.measuring.meter import LiveBytesMeter
    from neaptide.runtime.steps.arena_report import predicted_at
    from neaptide.runtime.steps.planned_step import PlannedStep

    def runner(variant: PlannedVariant) -> PlannedStep:
        step = _step(model)
        bound = contestants.rebind(variant)(step, _batch(FIRST))
        return PlannedStep(step, contestants.never_again, bound, on_mismatch="error")

    eager, without, within = _step(model), runner(plain), runner(inside)
    same, kept, ratios = True, True, []
    for sizes in [FIRST, LARGEST, *shapes]:
        given = _batch(sizes)
        same &= float(eager(given)) == float(within(given)) == float(without(given))
    for sizes in shapes:
        given = _batch(sizes)
        dims = inside.graphs[0].graph.dims
        shape = {dim.name: size for dim, size in zip(dims, sizes, strict=True)}
        with LiveBytesMeter([*given.values(), *within.persistent()]) as meter:
            within(given)
        made = within.arena
        assert made is not None
        # Of the block no name is kept: it may be replaced by the next run.
        spare = sum(block.numel() for block in within._arenas.blocks()) - made.arena_bytes  # noqa: SLF001
        kept &= meter.peak_bytes == predicted_at(inside.graphs[0], shape)[0] + spare
        for number in range(PAIRS):
            turns = (within, without) if number % 2 else (without, within)
            found = {id(one): _seconds(lambda: one(given)) for one in turns}  # noqa: B023
            ratios.append(found[id(within)] / found[id(without)])
    return {"cpu_ratio": statistics.median(ratios), "same_bits": same, "peak_kept": kept}


def _seconds(call: Any) -> float:
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1e9


def _step(model: str) -> Any:
    import torch

    from neaptide import zoo

    torch.manual_seed(SEED)
    return zoo.factory(f"{model},batch={LARGEST[0]},seq={LARGEST[1]}")()[0]


def _batch(sizes: tuple[int, ...]) -> dict[str, Any]:
    import torch

    chance = torch.Generator().manual_seed(sum(sizes))
    tokens = torch.randint(0, 64, sizes, generator=chance)
    return {"input_ids": tokens, "labels": tokens.clone()}


def lines(result: Row) -> list[tuple[str, ...]]:
    """The cells of the table."""
    found = []
    for row in result["rows"]:
        if "failure" in row:
            found.append((row["model"], row["share"], "failed", *["-"] * (len(COLUMNS) - 3)))
            continue
        found.append(
            (
                row["model"],
                row["share"],
                str(row["nodes"]),
                f"{row['arena_over_live']:.3f}",
                f"{row['arena_over_live_highest']:.3f}",
                f"{row['proved']} of {row['shapes']}",
                f"{row['peak_over_plain']:.3f}",
                f"{row['new_shape_seconds'] * 1e3:.0f}",
                f"{row['decision_seconds'] * 1e3:.0f}",
                f"{row['new_shape_seconds_highest'] * 1e3:.0f}",
                f"{row['seen_shape_seconds'] * 1e6:.1f}",
                f"{row['cpu_ratio']:.2f}",
                "yes" if row["same_bits"] else "no",
                "yes" if row["peak_kept"] else "no",
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(*asked.one)))
        return
    rows = []
    for model in asked.models:
        for share in SHARES:
            say(f"{model} {share}")
            part = run_part("arena_by_shape.py", "--one", model, share, timeout_s=900)
            rows.append({"model": model, "share": share} | part)
            say(str(rows[-1]))
    result = recorded(rows, seed=SEED, repeats=PAIRS, shapes=DRAWN)
    print(table(COLUMNS, lines(result)))
    save("arena_by_shape", result, asked.output)


if __name__ == "__main__":
    main()
