"""Ordering again after an edit, beside a full run: `python benchmarks/order_edits.py [--set tuning|reported] [--edits N]`.

For each graph and kind of edit: in how many edits the peak and the bound equal those of a full run, and what share of
its process time and states that took: median, ninth decile, most. Graphs that a full run orders in less than 0.2 s are
named as small: there the time goes into reading the problem. Graphs and seeds of the two sets have nothing in common;
constants were chosen with `tuning`.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from bench_record import say, table
from neaptide.outcome import Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide_peers.incremental.reschedule import reschedule
from neaptide_peers.incremental.settling import Settled, settle
from order_edit_cases import EDIT_KINDS, FIRST_SEED, REPORTED, TUNING, random_edit

Row = dict[str, Any]

_SMALL_S: Final = 0.2  # of a full run
_COLUMNS: Final = (
    *("case", "ops", "kind", "edits", "same peak", "same bound", "not worse", "full s", "once"),
    *("time", "p90", "max", "states", "p90", "max"),
)


def measure(
    name: str, problem: OrderProblem, *, edits: int, first_seed: int, time_limit_s: float
) -> list[Row]:
    """A row for each kind of edit of one problem, each edit ordered again from the best order before it and in full."""
    limits = Limits(time_s=time_limit_s)
    full = best_order(problem, limits).require()
    began = time.process_time()
    settled = settle(problem, full.order, full.order_lower_bound_bytes, limits=limits)
    once_s = time.process_time() - began
    rows = []
    for kind in EDIT_KINDS:
        found = [
            one
            for seed in range(first_seed, first_seed + edits)
            if (one := _one(settled, kind, seed, limits)) is not None
        ]
        if found:
            rows.append({"case": name, "ops": problem.op_count, "kind": kind} | _summary(found, once_s))
    return rows


def _one(settled: Settled, kind: str, seed: int, limits: Limits) -> Row | None:
    edit = random_edit(settled.problem, kind, seed)
    if edit is None:
        return None
    began = time.process_time()
    outcome = reschedule(settled, edit, limits=limits)
    middle = time.process_time()
    full = best_order(edit.problem, limits).require()
    ended = time.process_time()
    found = outcome.require()
    assert evaluate_order(edit.problem, found.order).peak_bytes == found.peak_bytes
    return {
        "same_peak": found.peak_bytes == full.peak_bytes,
        "same_bound": found.order_lower_bound_bytes == full.order_lower_bound_bytes,
        "not_worse": found.peak_bytes <= full.peak_bytes
        and found.order_lower_bound_bytes >= full.order_lower_bound_bytes,
        "seconds": middle - began,
        "full_s": ended - middle,
        "share": (middle - began) / (ended - middle),
        "states": outcome.work / max(1, full.states),
    }


def _summary(found: Sequence[Row], once_s: float) -> Row:
    full_s = statistics.median(row["full_s"] for row in found)
    shares = sorted(row["share"] for row in found)
    states = sorted(row["states"] for row in found)
    same_peak, same_bound = (sum(row[key] for row in found) for key in ("same_peak", "same_bound"))
    return {
        "edits": len(found),
        "same_peak": same_peak,
        "same_bound": same_bound,
        "not_worse": sum(row["not_worse"] for row in found),
        "cpu_seconds": statistics.median(row["seconds"] for row in found),
        "full_s": full_s,
        "once_share": once_s / full_s,
        "share": statistics.median(shares),
        "share_p90": _ninth_decile(shares),
        "share_max": shares[-1],
        "states": statistics.median(states),
        "states_p90": _ninth_decile(states),
        "states_max": states[-1],
        "shares": shares,
    }


def _ninth_decile(values: Sequence[float]) -> float:
    return values[min(len(values) - 1, int(0.9 * len(values)))]


def cells(row: Row) -> list[str]:
    """A row as it is printed."""
    counts = [str(row[name]) for name in ("edits", "same_peak", "same_bound", "not_worse")]
    shares = ("share", "share_p90", "share_max", "states", "states_p90", "states_max")
    return [
        row["case"] + (" (small)" if row["full_s"] < _SMALL_S else ""),
        str(row["ops"]),
        row["kind"],
        *counts,
        f"{row['full_s']:.2f}",
        f"{row['once_share']:.0%}",
        *(f"{row[name]:.1%}" for name in shares),
    ]


def totals(rows: Sequence[Row]) -> str:
    """All edits together, and those of graphs that are not small."""
    lines = []
    for name, chosen in (("all", rows), ("not small", [r for r in rows if r["full_s"] >= _SMALL_S])):
        edits = sum(row["edits"] for row in chosen)
        if not edits:
            continue
        shares = [share for row in chosen for share in row["shares"]]
        peaks, bounds = (sum(row[key] for row in chosen) / edits for key in ("same_peak", "same_bound"))
        cheap = sum(share <= 0.1 for share in shares) / edits
        lines.append(
            f"{name}: {edits} edits, same peak {peaks:.1%}, same bound {bounds:.1%}, "
            f"at most a tenth of the time {cheap:.1%}, median {statistics.median(shares):.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", choices=tuple(FIRST_SEED), default="reported", help="default: %(default)s")
    parser.add_argument("--edits", type=int, default=10, help="of each kind and graph (default: %(default)s)")
    parser.add_argument(
        "--time-limit", type=float, default=20.0, help="seconds of each full run (default: %(default)s)"
    )
    parser.add_argument("graphs", nargs="*", help="only these")
    asked = parser.parse_args()
    makers = TUNING if asked.set == "tuning" else REPORTED
    names = asked.graphs or list(makers)
    unknown = set(names) - makers.keys()
    if unknown:
        parser.error(f"there is no graph {min(unknown)}; choose from {', '.join(makers)}")
    importlib.import_module("scipy.sparse.csgraph")  # once in a process; not what an edit costs
    rows = []
    for name in names:
        rows += measure(
            name,
            makers[name](),
            edits=asked.edits,
            first_seed=FIRST_SEED[asked.set],
            time_limit_s=asked.time_limit,
        )
        say("\n".join("  ".join(cells(row)) for row in rows if row["case"] == name))
    print(table(_COLUMNS, [cells(row) for row in rows]))
    print(totals(rows))


if __name__ == "__main__":
    main()
