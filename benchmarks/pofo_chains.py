"""Stays and recomputations beside POFO's on chains, where its model is exact: `python benchmarks/pofo_chains.py`.

A chain is a forward of blocks that each make one storage, and a backward whose steps read it. Budgets are shares of the way
from the peak of program order down to the least bytes that any schedule needs. The program after Beaumont et al. 2021
(`neaptide_peers.strategies.pofo`) starts from rotor's plan, ours from that of the portfolio. Answers are the same on
every machine: limits are of work.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_record import RESULTS, recorded, save, say, table

if TYPE_CHECKING:
    from neaptide.schedule.problem import StepProblem

RESULT: Final = "pofo_chains"
SEED: Final = 0
LENGTHS: Final = (6, 11)
SEEDS: Final = 4
SHARES: Final = (0.3, 0.6, 0.85, 1.0)
RATES: Final = (4.0, 12.0, 40.0)
"""Bytes per second of a link; a storage has 20 to 100."""
WORK: Final = 8_000
HOST_BYTES: Final = 1 << 40
SAME: Final = 1e-9
COLUMNS: Final = (
    "blocks",
    "cases",
    "both within the budget",
    "ours alone is",
    "ours faster",
    "as fast",
    "slower",
    "recompute alone",
    "rotor",
    "POFO",
    "ours",
)


def chain(seed: int, length: int) -> StepProblem:
    """A training step whose storages and seconds are drawn at random."""
    from neaptide.schedule.recompute_form import InstanceNode, from_nodes

    draw = random.Random(seed)
    nodes = [
        InstanceNode(
            f"f{k}",
            draw.randint(20, 100),
            [k - 1] if k else [],
            seconds=float(draw.randint(1, 9)),
            phase="fwd",
        )
        for k in range(length)
    ]
    gradients = [draw.randint(5, 30) for _ in range(length)]
    for k in reversed(range(length)):
        reads = [j for j in (k - 1, k) if j >= 0] + ([] if k == length - 1 else [len(nodes) - 1])
        nodes.append(
            InstanceNode(f"b{k}", gradients[k], reads, seconds=2 * nodes[k].seconds, out=not k, phase="bwd")
        )
    return from_nodes(nodes)


def collect(lengths: Sequence[int], seeds: int) -> dict[str, Any]:
    """A row for each chain, budget and rate."""
    from neaptide.cost.devices import Link
    from neaptide.outcome import Limits
    from neaptide.planner.objective import PlannedSequence, PlanningProblem
    from neaptide.planner.offload.host import HostSpace
    from neaptide.planner.offload.problem import OffloadProblem
    from neaptide.planner.offload.search import choose_offload
    from neaptide.planner.portfolio import plan_sequence
    from neaptide.planner.strategies.program_order import baseline
    from neaptide_peers.strategies import pofo, rotor

    limits = Limits(work=WORK, seed=SEED)
    rows = []
    for length in lengths:
        for seed in range(seeds):
            say(f"{length} blocks, seed {seed}")
            step = chain(seed, length)
            before = baseline(step)
            for share in SHARES:
                most = before.peak_with_workspace_bytes
                budget = most - int(share * (most - step.lower_bound_bytes))
                alone = plan_sequence(step, budget, limits).require()
                theirs = rotor.solve(PlanningProblem(step, budget), limits).require()
                for rate in RATES:
                    host = HostSpace(
                        HOST_BYTES, Link("device", "host", rate, 0.0), Link("host", "device", rate, 0.0)
                    )
                    found: dict[str, PlannedSequence] = {
                        "recompute": alone,
                        "rotor": theirs,
                        "pofo": pofo.choose_offload(OffloadProblem(step, budget, host, [theirs]), limits)
                        .require()
                        .planned,
                        "ours": choose_offload(OffloadProblem(step, budget, host, [alone]), limits)
                        .require()
                        .planned,
                    }
                    rows.append(
                        {
                            "blocks": length,
                            "seed": seed,
                            "share": share,
                            "rate": rate,
                            "budget_bytes": budget,
                            "baseline_seconds": before.seconds,
                            **{
                                way: {
                                    "seconds": plan.seconds,
                                    "peak_with_workspace_bytes": plan.peak_with_workspace_bytes,
                                }
                                for way, plan in found.items()
                            },
                        }
                    )
    return recorded(rows, seed=SEED, repeats=1, work=WORK)


def added(row: Mapping[str, Any], way: str) -> float | None:
    """Seconds over program order, as a share; None where the budget is not met."""
    found = row[way]
    if found["peak_with_workspace_bytes"] > row["budget_bytes"]:
        return None
    return float(found["seconds"] / row["baseline_seconds"] - 1.0)


def lines(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table, a line for each length."""
    found = []
    for blocks in sorted({row["blocks"] for row in rows}):
        here = [row for row in rows if row["blocks"] == blocks]
        pairs = [(added(row, "ours"), added(row, "pofo")) for row in here]
        both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        medians = []
        for way in ("recompute", "rotor", "pofo", "ours"):
            times = [time for row in here if (time := added(row, way)) is not None]
            medians.append(
                f"+{statistics.median(times):.1%} ({len(times)})" if times else "- (0)",
            )
        found.append(
            [
                str(blocks),
                str(len(here)),
                str(len(both)),
                str(sum(ours is not None and theirs is None for ours, theirs in pairs)),
                str(sum(ours < theirs - SAME for ours, theirs in both)),
                str(sum(abs(ours - theirs) <= SAME for ours, theirs in both)),
                str(sum(ours > theirs + SAME for ours, theirs in both)),
                *medians,
            ]
        )
    return found


def main() -> int:
    """Make the table, write it and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", nargs="*", type=int, default=list(LENGTHS), help="blocks of the chains")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="chains of each length")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    asked = parser.parse_args()
    result = collect(asked.lengths, asked.seeds)
    save(RESULT, result, asked.output)
    print(table(COLUMNS, lines(result["rows"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
