"""Planning with offloads against planning without: `python benchmarks/offload_planning.py [--keep] [model ...]`.

Models of the zoo on the meta device, for an A100 with its own link and with one of a sixteenth of its rate. The budget of
each lies at a part of the way from the peak of program order down to the least bytes that any schedule needs. Recomputations
are searched for once without a host. The search with one begins with that plan, so its time is that of both. Seconds are
of the processor. Nothing is run, so seconds of steps are predictions. Each model has a process of its own, and its row is
kept as soon as it is there.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS, recorded, save, say, table
from model_rows import measured_rows
from neaptide import zoo
from offload_budgets import DEVICE, HOST_BYTES, LINKS, SEED, WORK, with_rate

RESULT: Final = "offload_planning"
SIZE: Final = "small"
SHARE: Final = 0.4
RATES: Final = (LINKS[0], LINKS[-1])
BAR: Final = 3.0
COLUMNS: Final = (
    "model",
    "operations",
    "without (s)",
    *(f"{link}: with" for link, _ in RATES),
    "recompute alone",
    *(f"{link}: both" for link, _ in RATES),
)
PART_S: Final = 3600.0

Row = dict[str, Any]


def planned(spec: str, work: int) -> Row:
    """One model, without a host and with one after each link."""
    from neaptide.frontends.torch_step import capture_step
    from neaptide.outcome import Limits
    from neaptide.planner.offload.host import HostSpace
    from neaptide.planner.offload.problem import OffloadProblem
    from neaptide.planner.offload.search import choose_offload
    from neaptide.planner.portfolio import plan_sequence
    from neaptide.planner.strategies.program_order import baseline
    from neaptide.policy.prepared_step import PreparedStep

    step, batch = zoo.factory(spec, device="meta")()
    prepared = PreparedStep(capture_step(step, (batch,), name=spec), device=DEVICE)
    problem = prepared.problem()
    host = HostSpace.of(prepared.captured.steady.graph, prepared.device, HOST_BYTES)
    before = baseline(problem)
    peak = before.peak_with_workspace_bytes
    budget = peak - int(SHARE * (peak - problem.lower_bound_bytes))
    limits = Limits(work=work, seed=SEED)
    # A look at all objects of the capture takes as long as a search, and happens now and then.
    gc.collect()
    gc.freeze()
    say(f"{spec}: {problem.node_count} operations, without a host")
    began = time.process_time()
    alone = plan_sequence(problem, budget, limits).require()
    alone_s = time.process_time() - began
    links = {}
    for link, rate in RATES:
        say(f"{spec}: {link}")
        began = time.process_time()
        both = choose_offload(
            OffloadProblem(problem, budget, with_rate(host, rate), [alone]), limits
        ).require()
        links[link] = {
            "planning_s": alone_s + time.process_time() - began,
            "seconds": both.planned.seconds,
            "peak_with_workspace_bytes": both.planned.peak_with_workspace_bytes,
            "offloads": len(both.offloads),
        }
    return {
        "operations": problem.node_count,
        "budget_bytes": budget,
        "baseline_seconds": before.seconds,
        "alone": {
            "planning_s": alone_s,
            "seconds": alone.seconds,
            "peak_with_workspace_bytes": alone.peak_with_workspace_bytes,
        },
        "links": links,
    }


def ratio(row: Mapping[str, Any], link: str) -> float:
    """Planning time with offloads over that without."""
    return float(row["links"][link]["planning_s"] / row["alone"]["planning_s"])


def added(row: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Seconds over program order, as a share; a dash where the budget is not met."""
    if plan["peak_with_workspace_bytes"] > row["budget_bytes"]:
        return "-"
    return f"+{plan['seconds'] / row['baseline_seconds'] - 1.0:.2%}"


def lines(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table, a model a line; models that failed have none."""
    return [
        [
            row["spec"].partition("@")[0],
            f"{row['operations']:,}",
            f"{row['alone']['planning_s']:.1f}",
            *(f"{ratio(row, link):.1f}x" for link, _ in RATES),
            added(row, row["alone"]),
            *(added(row, row["links"][link]) for link, _ in RATES),
        ]
        for row in rows
        if "failure" not in row
    ]


def said(result: Mapping[str, Any]) -> str:
    """What stands below the table."""
    made = [row for row in result["rows"] if "failure" not in row]
    missing = sorted(set(zoo.names()) - {row["spec"].partition("@")[0] for row in made})
    most = [max(ratio(row, link) for link, _ in RATES) for row in made]
    told = (
        f"Each search has {result['settings']['work']:,} units of work. "
        f"{sum(one <= BAR for one in most)} of {len(most)} models take at most {BAR:.0f}x."
    )
    return f"{told} Not run: {', '.join(missing)}." if missing else told


def main() -> int:
    """All models, or one here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="of the zoo (default: all)")
    parser.add_argument("--size", default=SIZE, help="of all models (default: %(default)s)")
    parser.add_argument("--work", type=int, default=WORK, help="units of each search (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="take rows that an earlier run has kept")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(planned(asked.one, asked.work)))
        return 0
    rows = measured_rows(
        "offload_planning.py",
        asked.models or list(zoo.names()),
        asked.output / "parts",
        size=asked.size,
        options=(f"--work={asked.work}",),
        keep=asked.keep,
        timeout_s=PART_S,
        prefix="offload-planning-",
    )
    result = recorded(rows, seed=SEED, repeats=1, device=DEVICE, share=SHARE, work=asked.work)
    save(RESULT, result, asked.output)
    print(table(COLUMNS, lines(rows)), said(result), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
