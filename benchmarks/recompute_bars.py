"""The recompute planner's bars, measured: `python benchmarks/recompute_bars.py [SECTION ...] --instances FOLDER`.

Sections: `table` (every strategy on the shared instances, beside published values), `between` (budgets between those,
and generated instances), `small` (contracted instances whose optima are proved), `time` (one budget, and a curve of
20), `peers` (exact and constraint models with two minutes each); all of them if none is named. Prints a table for each
and which bars are met. With all sections the numbers go to `benchmarks/results/recompute_bars.json`. Each case runs in
a process of its own; times are process CPU seconds unless they say wall.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import recompute_cases
from bench_record import recorded, run_part, save, say, table
from neaptide.corpus.recompute_forms import FAMILIES

Row = dict[str, Any]
_PERCENT: Final = 100.0
_BETWEEN: Final = tuple(
    ("instance", name, share) for name in ("gpt12", "resnet16") for share in ("0.9", "0.52", "0.4", "0.33")
)
_GENERATED: Final = tuple(
    ("generated", family, "500", seed, share)
    for family in FAMILIES
    for seed in ("0", "1")
    for share in ("0.8", "0.5", "0.35")
)
_TIME_FAMILIES: Final = ("transformer", "residual", "skips")
_SIZES: Final = ("500", "2000", "10000")

CASES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        "table": tuple(("methods", name, share) for name, share in recompute_cases.PUBLISHED),
        "between": (*_BETWEEN, *_GENERATED),
        "small": tuple(("instance", name, share) for name, share in recompute_cases.PROVED),
        "time": tuple(
            (kind, family, nodes)
            for nodes in _SIZES
            for family in _TIME_FAMILIES
            for kind in ("one_budget", "curve")
        ),
        "peers": tuple(("peers", name, share) for name, share in recompute_cases.PEER_BUDGETS),
    }
)


def collect(sections: Sequence[str], folder: Path, time_limit_s: float) -> list[Row]:
    rows = []
    for section in sections:
        for case in CASES[section]:
            say(" ".join(case))
            options = (f"--instances={folder}", f"--time-limit={time_limit_s}")
            timeout_s = 20 * (time_limit_s + 60)
            found = run_part("recompute_bars.py", "--one", *case, *options, timeout_s=timeout_s)
            rows.append({"section": section, "case": " ".join(case[1:])} | found)
    return rows


def show(section: str, rows: Sequence[Row]) -> str:
    """A section as a table, with the cases that failed and the bars that were missed below it."""
    good = [row for row in rows if "failure" not in row]
    lines = [_TABLES[section](good)] if good else []
    lines += [f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row]
    missed = [f"{row['case']}: {name}" for row in good for name, met in row["met"].items() if not met]
    held = sum(met for row in good for met in row["met"].values())
    lines.append(
        f"bars met: {held} of {held + len(missed)}" + "".join(f"\n  missed: {text}" for text in missed)
    )
    return "\n".join(lines)


def _methods_table(rows: Sequence[Row]) -> str:
    """Overheads in percent: published values first, then each strategy, the portfolio, its bound and gap."""
    names = list(dict.fromkeys(name for row in rows for name in row["methods"]))
    published = list(dict.fromkeys(name for row in rows for name in row["published"]))
    columns = ["case", *published, *names, "portfolio", "bound", "gap", "CPU s"]
    cells = [
        [
            row["case"],
            *(_percent(row["published"].get(name)) for name in published),
            *(
                _percent(row["methods"][name]["overhead"]) if name in row["methods"] else "-"
                for name in names
            ),
            *_result_cells(row),
        ]
        for row in rows
    ]
    return table(columns, cells)


def _plain_table(rows: Sequence[Row]) -> str:
    columns = ["case", "nodes", "proved", "portfolio", "bound", "gap", "CPU s"]
    cells = [
        [row["case"], str(row["nodes"]), _percent(row.get("proved")), *_result_cells(row)] for row in rows
    ]
    return table(columns, cells)


def _time_table(rows: Sequence[Row]) -> str:
    columns = ["case", "what", "nodes", "CPU s", "wall s", "limit s", "budgets", "lowest peak", "its bound"]
    cells = [
        [
            row["case"],
            row["what"],
            str(row["nodes"]),
            f"{row['cpu_seconds']:.2f}",
            f"{row['wall_seconds']:.2f}",
            f"{row['limit_seconds']:.0f}",
            str(row["budgets"]),
            f"{row['lowest_share']:.1%}",
            f"{row['lowest_bound_share']:.1%}",
        ]
        for row in rows
    ]
    return table(columns, cells)


def _peer_table(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["methods"]))
    columns = [
        "case",
        *(part for name in names for part in (name, "s", "ended")),
        "portfolio",
        "bound",
        "gap",
        "CPU s",
    ]
    cells = []
    for row in rows:
        found: list[str] = []
        for name in names:
            method = row["methods"].get(name)
            shown = (
                ("-", "-", "-")
                if method is None
                else (_percent(method["overhead"]), f"{method['wall_seconds']:.1f}", method["status"])
            )
            found += shown
        cells.append([row["case"], *found, *_result_cells(row)])
    return table(columns, cells)


def _result_cells(row: Row) -> list[str]:
    gap = None
    if row["overhead"] is not None and row["bound_overhead"] is not None:
        gap = row["overhead"] - row["bound_overhead"]
    return [
        _percent(row["overhead"]),
        _percent(row["bound_overhead"]),
        _percent(gap),
        f"{row['cpu_seconds']:.2f}",
    ]


def _percent(share: float | None) -> str:
    return "none" if share is None or not math.isfinite(share) else f"{_PERCENT * share:.3f}"


_TABLES: Final[Mapping[str, Callable[[Sequence[Row]], str]]] = MappingProxyType(
    {
        "table": _methods_table,
        "between": _plain_table,
        "small": _plain_table,
        "time": _time_table,
        "peers": _peer_table,
    }
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--instances", type=Path, help="folder with gpt12.json, resnet16.json and *.small.json"
    )
    parser.add_argument(
        "--time-limit", type=float, default=120.0, help="wall seconds of each search (default: %(default)s)"
    )
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(recompute_cases.solve(asked.one, asked.instances, asked.time_limit)))
        return
    unknown = set(asked.sections) - CASES.keys()
    if unknown:
        parser.error(f"there is no section {min(unknown)}; choose from {', '.join(CASES)}")
    sections = asked.sections or list(CASES)
    if asked.instances is None and set(sections) != {"time"}:
        parser.error("--instances is needed for all sections but `time`")
    rows = collect(sections, asked.instances, asked.time_limit)
    for section in sections:
        print(f"\n{section}\n{show(section, [row for row in rows if row['section'] == section])}")
    if not asked.sections:
        say(
            f"written: {save('recompute_bars', recorded(rows, seed=0, repeats=1, time_limit_s=asked.time_limit))}"
        )


if __name__ == "__main__":
    main()
