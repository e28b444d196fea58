"""The seven networks of MAGIS at their published size, in parts, predicted: `python benchmarks/fission_paper.py [--keep]`.

Each is captured on the meta device and planned for the preset `rtx3090`, for the lowest peak within some more time than
program order takes. Nothing is run: peaks and times are predictions, times by a preset that was fitted to measured losses of
steps in parts (`preset_utilisation.py`). Columns, as shares of the peak of program order:

* order: `strategy="best_order"`, and recomputation: `numerics="bitwise"`, neither in parts;
* parts alone: the whole step in parts, nothing reordered or recomputed;
* parts, then recomputation: the parts that are lowest alone within the time, then recomputation around them, not inside;
* `micro_batch`: the whole step in parts with recomputation inside each and around, the naive combination;
* ours: `numerics="close"`;
* published: MAGIS, measured on the card (Chen et al., ASPLOS 2024, figure 9 as read from the plot), within +5 and +10 %.

`bound` is what no plan in parts along the axes that were found goes below, in any time. Points of a network and a limit take
the place of earlier ones in `benchmarks/results/fission_paper.json`; `quote_results.py` puts some of
them into the page.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_record import RESULTS, recorded, save, table
from model_rows import measured_rows
from neaptide import zoo

if TYPE_CHECKING:
    from neaptide.policy.prepared_step import PreparedStep

SEED: Final = 0
DEVICE: Final = "rtx3090"
LATENCIES: Final = (0, 5, 10, 25)
PARTS: Final = (2, 4, 8, 16, 32)
SEARCHES: Final = {
    "order": ("best_order", "bitwise"),
    "recompute": ("default", "bitwise"),
    "micro_batch": ("micro_batch", "close"),
    "ours": ("default", "close"),
}
PUBLISHED: Final[Mapping[str, Mapping[int, float]]] = {
    "unet": {5: 0.50, 10: 0.26},
    "vit": {5: 0.61, 10: 0.37},
    "unetpp": {5: 0.26, 10: 0.13},
    "bert": {5: 0.70, 10: 0.47},
    "gptneo": {5: 0.64, 10: 0.42},
    "btlm": {5: 0.43, 10: 0.26},
    "resnet50": {5: 0.64, 10: 0.51},
}
COLUMNS: Final = ("parts alone", "parts, then recompute", *SEARCHES)
RESULT: Final = "fission_paper"
PART_S: Final = 7200.0


def planned(spec: str, time_limit_s: float, latencies: list[int]) -> dict[str, Any]:
    """One network: all programs within each limit of time."""
    from neaptide.frontends.torch_step import capture_step
    from neaptide.policy.prepared_step import PreparedStep

    step, batch = zoo.factory(spec, device="meta")()
    prepared = PreparedStep(capture_step(step, (batch,), name=spec), device=DEVICE)
    whole = list(_in_parts(prepared))
    points = []
    bound = None
    for latency in latencies:
        for name, (strategy, numerics) in SEARCHES.items():
            point, found = _searched(prepared, strategy, numerics, latency, time_limit_s)
            points.append({"program": name, "latency": latency, "time_limit_s": time_limit_s} | point)
            bound = found if name == "ours" and found is not None else bound
        points += _one_after_the_other(prepared, whole, latency, time_limit_s)
    made = prepared.as_written()
    return {
        "spec": spec,
        "operations": len(prepared.captured.steady.graph.nodes),
        "baseline_bytes": made.peak_with_workspace_bytes,
        "baseline_seconds": made.seconds,
        "bound_bytes": bound,
        "latencies": latencies,
        "points": points,
    }


def _searched(
    prepared: PreparedStep, strategy: str, numerics: str, latency: int, time_limit_s: float
) -> tuple[dict[str, Any], int | None]:
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits

    began = time.monotonic()
    limits = Limits(time_s=time_limit_s, seed=SEED)
    budget = Budget(None, latency=f"+{latency}%")
    program = prepared.plan(Ask(budget, strategy, limits, numerics=numerics)).plan.programs[0]
    made = program.predictions
    point = {
        "peak_bytes": made.peak_with_workspace_bytes,
        "time_ratio": made.seconds / made.baseline_seconds,
        "plan_seconds": round(time.monotonic() - began, 1),
        "tried": [] if program.parts is None else [tried.label for tried in program.parts.tried],
        "rewrites": [
            f"{rewrite.rule} {dict(rewrite.settings).get('parts', '')}" for rewrite in program.rewrites
        ],
    }
    return point, None if program.parts is None else program.parts.lower_bound_bytes


def _in_parts(prepared: PreparedStep) -> Iterator[tuple[int, int, float, tuple[Any, ...]]]:
    """Parts, peak, seconds and rewrites of the whole step in parts, in program order."""
    from neaptide.ops import registry
    from neaptide.planner.strategies.program_order import baseline
    from neaptide.planner.variants.choices import Choices

    graph = prepared.captured.steady.graph
    pricing = prepared.pricing(graph)
    choices = Choices(registry(), lambda _edited: None)
    whole = [
        choice
        for choice in choices.after(choices.begun(graph))
        if len(choice.regions) == 1 and choice.regions[0].kind == "step"
    ]
    for choice in sorted(whole, key=lambda choice: -choice.regions[0].share)[:1]:
        for parts in PARTS:
            variant = None if parts > choice.length else choices.taken(choice, parts)
            if variant is not None:
                found = baseline(pricing.problem(variant.graph))
                yield parts, found.peak_with_workspace_bytes, found.seconds, variant.rewrites


def _one_after_the_other(
    prepared: PreparedStep,
    whole: list[tuple[int, int, float, tuple[Any, ...]]],
    latency: int,
    time_limit_s: float,
) -> Iterator[dict[str, Any]]:
    """The lowest parts within the time, and recomputation around them."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits

    baseline = prepared.as_written().seconds
    longest = (1 + latency / 100) * baseline
    within = [found for found in whole if found[2] <= longest]
    if not within:
        return
    parts, peak, seconds, rewrites = min(within, key=lambda found: found[1])
    point = {"latency": latency, "rewrites": [f"fission {parts}"]}
    yield point | {"program": "parts alone", "peak_bytes": peak, "time_ratio": seconds / baseline}
    options = Ask(
        Budget(None, latency=longest),
        limits=Limits(time_s=time_limit_s, seed=SEED),
        rewrites=rewrites,
    )
    made = prepared.plan(options).plan.programs[0].predictions
    yield point | {
        "program": "parts, then recompute",
        "peak_bytes": made.peak_with_workspace_bytes,
        "time_ratio": made.seconds / baseline,
    }


def with_earlier(earlier: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of an earlier run, with the points of a later one in place of those of the same network and limit."""
    made = {row["spec"]: row for row in earlier}
    for row in rows:
        before = made.get(row["spec"])
        if before is None or "failure" in before:
            made[row["spec"]] = row
        elif "failure" not in row:
            kept = [point for point in before["points"] if point["latency"] not in row["latencies"]]
            latencies = sorted({*before["latencies"], *row["latencies"]})
            bound = row["bound_bytes"] if before["bound_bytes"] is None else before["bound_bytes"]
            made[row["spec"]] = row | {
                "latencies": latencies,
                "points": kept + row["points"],
                "bound_bytes": bound,
            }
    order = list(PUBLISHED)
    return sorted(made.values(), key=lambda row: order.index(row["spec"].partition("@")[0]))


def text(result: Mapping[str, Any]) -> str:
    """Shares of the peak of program order, a line for each network and limit."""
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], "failed", *["-"] * (len(COLUMNS) + 2)])
            continue
        lines += [[row["spec"], f"+{latency} %", *cells(row, latency)] for latency in row["latencies"]]
    failures = [f"{row['spec']} failed: {row['failure']}" for row in result["rows"] if "failure" in row]
    return "\n".join([table(("step", "time", *COLUMNS, "published", "bound"), lines), *failures])


def cells(row: Mapping[str, Any], latency: int) -> list[str]:
    """One line of the table, after the name and the limit."""
    by_name = {p["program"]: p for p in row["points"] if p["latency"] == latency}
    shares = [
        f"{by_name[name]['peak_bytes'] / row['baseline_bytes']:.3f}" if name in by_name else "-"
        for name in COLUMNS
    ]
    published = PUBLISHED[row["spec"].partition("@")[0]].get(latency)
    bound = row["bound_bytes"]
    return [
        *shares,
        "-" if published is None else f"{published:.2f}",
        "-" if bound is None else f"{bound / row['baseline_bytes']:.3f}",
    ]


def main() -> None:
    """All networks, or one here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(PUBLISHED), help="networks of MAGIS in the zoo")
    parser.add_argument("--size", default="paper", help="of the zoo")
    parser.add_argument("--latency", nargs="*", type=int, default=list(LATENCIES), help="per cent more time")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--keep", action="store_true", help="take rows that an earlier run has kept")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="plan one network here; print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(planned(asked.one, asked.time_limit, asked.latency)))
        return
    options = [f"--time-limit={asked.time_limit}", "--latency", *map(str, asked.latency)]
    rows = measured_rows(
        "fission_paper.py",
        asked.models,
        asked.output / "parts",
        size=asked.size,
        options=options,
        keep=asked.keep,
        timeout_s=PART_S,
        prefix="paper-",
    )
    before = asked.output / f"{RESULT}.json"
    earlier = json.loads(before.read_text(encoding="utf-8"))["rows"] if before.exists() else []
    result = recorded(with_earlier(earlier, rows), seed=SEED, repeats=1, device=DEVICE)
    print(text(result))
    save(RESULT, result, asked.output)


if __name__ == "__main__":
    main()
