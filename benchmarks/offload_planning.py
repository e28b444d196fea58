"""Planning with stays on the host against planning without: `python benchmarks/offload_planning.py [--models llama ...]`.

Models of the zoo on the meta device, planned for an A100 with its own link and with one of a sixteenth of its rate.
Budgets are shares of the way from the peak of program order down to the least bytes that any schedule needs. Both plans are
whole ones: priced, searched, laid out where nothing is moved, and judged. Seconds are of the processor, the least of
some runs in turns. Nothing is run, so seconds of steps are predictions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS, recorded, run_part, save, say, table
from neaptide import zoo

RESULT: Final = "offload_planning"
SEED: Final = 0
DEVICE: Final = "a100-80g"
SIZE: Final = "small"
SHARES: Final = (0.2, 0.4, 0.6, 0.8)
LINKS: Final = (("PCIe 4 x16", 1.0), ("PCIe 4 x1", 1 / 16))
ROUNDS: Final = 2
WORK: Final = 16_000
HOST_BYTES: Final = 1 << 40
BAR: Final = 3.0
PART_S: Final = 900.0
COLUMNS: Final = (
    "model",
    "link",
    "operations",
    "without (s)",
    "with (s)",
    "median ratio",
    "highest ratio",
    "time saved",
)


def planned(spec: str) -> list[dict[str, Any]]:
    """A row for each link and budget of a model."""
    from neaptide.outcome import Limits
    from neaptide.planner.budget import Budget
    from neaptide.planner.strategies.program_order import baseline
    from neaptide.runtime.prepared_step import prepare
    from neaptide.runtime.search_options import SearchOptions

    step, batch = zoo.factory(spec, device="meta")()
    prepared = prepare(step, (batch,), device=DEVICE, name=spec)
    usual, problem = prepared.device, prepared.problem()
    peak = baseline(problem).peak_with_workspace_bytes
    rows = []
    for link, rate in LINKS:
        links = tuple(
            replace(one, bandwidth_bytes_per_s=rate * one.bandwidth_bytes_per_s) for one in usual.links
        )
        prepared.device = replace(usual, links=links)
        for share in SHARES:
            say(f"{spec}, {link}, {share:.0%} of the way to the floor")
            bytes_ = peak - int(share * (peak - problem.lower_bound_bytes))
            best = {}
            for _ in range(ROUNDS):
                for way, host in (("without", None), ("with", HOST_BYTES)):
                    options = SearchOptions(Budget(bytes_, host=host), limits=Limits(work=WORK, seed=SEED))
                    began = time.process_time()
                    predicted = prepared.plan(options).plan.programs[0].predictions
                    seconds = time.process_time() - began
                    best[way] = min(seconds, best.get(way, (seconds,))[0]), predicted
            rows.append(
                {
                    "link": link,
                    "share": share,
                    "operations": problem.node_count,
                    "budget_bytes": bytes_,
                    **{f"{way}_planning_s": found[0] for way, found in best.items()},
                    **{f"{way}_seconds": found[1].seconds for way, found in best.items()},
                    **{
                        f"{way}_peak_bytes": found[1].peak_with_workspace_bytes for way, found in best.items()
                    },
                    "baseline_seconds": best["with"][1].baseline_seconds,
                }
            )
    return rows


def collect(models: list[str], size: str) -> dict[str, Any]:
    """All rows; a model that fails is a row with its `failure`."""
    rows: list[dict[str, Any]] = []
    for model in models:
        spec = f"{model}@{size}"
        found = run_part("offload_planning.py", "--one", spec, timeout_s=PART_S)
        made = [{"spec": spec, **found}] if "failure" in found else found["rows"]
        rows += [{"spec": spec, **row} for row in made]
    return recorded(rows, seed=SEED, repeats=ROUNDS, device=DEVICE, work=WORK)


def ratio(row: dict[str, Any]) -> float:
    """Planning time with stays over that without."""
    return float(row["with_planning_s"] / row["without_planning_s"])


def lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    """A line for each model and link."""
    found = []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["spec"], row.get("link", "-")), []).append(row)
    for (spec, link), group in groups.items():
        if "failure" in group[0]:
            found.append([spec, "failed", *["-"] * (len(COLUMNS) - 2)])
            continue
        ratios = [ratio(row) for row in group]
        saved = [(row["without_seconds"] - row["with_seconds"]) / row["baseline_seconds"] for row in group]
        found.append(
            [
                spec,
                link,
                str(group[0]["operations"]),
                f"{sum(row['without_planning_s'] for row in group):.1f}",
                f"{sum(row['with_planning_s'] for row in group):.1f}",
                f"{statistics.median(ratios):.1f}x",
                f"{max(ratios):.1f}x",
                f"{statistics.median(saved):.1%}",
            ]
        )
    return found


def main() -> None:
    """Make the table, write it and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(zoo.names()), help="of the zoo")
    parser.add_argument("--size", default=SIZE)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help="plan one model here; print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps({"rows": planned(asked.one)}))
        return
    result = collect(asked.models, asked.size)
    save(RESULT, result, asked.output)
    print(table(COLUMNS, lines(result["rows"])))
    whole = [row for row in result["rows"] if "failure" not in row]
    print(f"{sum(ratio(row) <= BAR for row in whole)} of {len(whole)} plans take at most {BAR:.0f}x")


if __name__ == "__main__":
    main()
