"""The recompute planner's bars, measured: `python benchmarks/recompute_bars.py [SECTION ...] --instances FOLDER`.

Sections: `table` (every strategy on the shared instances, beside published values), `between` (budgets between those,
and generated instances), `small` (contracted instances whose optima are proved), `time` (one budget, and a curve of
20), `memory_budget` (`activation_memory_budget` at every peak that its ratios reach), `peers` (exact and constraint
models with two minutes each); all of them if none is named. Prints a table for each and which bars are met. A section
that has ended takes its place in `benchmarks/results/recompute_bars.json`, so that they can be run one by one;
`--keep` takes those that are there. All of them take about 45 minutes on one core, half of that the peers. Each case
runs in a process of its own; times are process CPU seconds unless they say wall.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import recompute_cases
from bench_record import RESULTS, recorded, run_part, save, say, table
from neaptide_corpus.recompute_forms import FAMILIES

Row = dict[str, Any]
_PERCENT: Final = 100.0
_RESULT: Final = "recompute_bars"
_CASE_TIMEOUT_S: Final = 1800.0
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
        "memory_budget": (("ratios", "gpt12"), ("ratios", "resnet16")),
        "peers": tuple(("peers", name, share) for name, share in recompute_cases.PEER_BUDGETS),
    }
)


def collect(section: str, folder: Path, time_limit_s: float, method_limit_s: float) -> list[Row]:
    """The cases of a section, one after another."""
    rows = []
    for case in CASES[section]:
        say(" ".join(case))
        options = (
            f"--instances={folder}",
            f"--time-limit={time_limit_s}",
            f"--method-time-limit={method_limit_s}",
        )
        start = time.perf_counter()
        found = run_part("recompute_bars.py", "--one", *case, *options, timeout_s=_CASE_TIMEOUT_S)
        wall = time.perf_counter() - start
        rows.append({"section": section, "case": " ".join(case[1:]), "case_wall_seconds": wall} | found)
    return rows


def kept_rows(path: Path) -> dict[str, list[Row]]:
    """By section, the rows of an earlier run."""
    found: dict[str, list[Row]] = {}
    if path.exists():
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            found.setdefault(row["section"], []).append(row)
    return found


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


def _ratio_table(rows: Sequence[Row]) -> str:
    """By falling ratio; overheads in percent, ours at the same peak."""
    columns = ["case", "source", "ratio", "peak", "overhead", "ours", "quotient", "at best"]
    cells = [
        [
            row["case"],
            found["source"],
            "best" if found["ratio"] is None else f"{found['ratio']:g}",
            f"{found['peak_share']:.1%}",
            _percent(found["overhead"]),
            _percent(found["ours"]),
            *("-" if q is None else f"{q:.2f}" for q in (found["quotient"], found["least_quotient"])),
        ]
        for row in rows
        for found in row["ratios"]
    ]
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
        "memory_budget": _ratio_table,
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
    parser.add_argument(
        "--method-time-limit",
        type=float,
        default=20.0,
        help="wall seconds of each strategy in `table` (default: %(default)s)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="take the sections that are there; run the others"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the JSON (default: %(default)s)"
    )
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    limits = (asked.time_limit, asked.method_time_limit)
    if asked.one:
        print(json.dumps(recompute_cases.solve(asked.one, asked.instances, *limits)))
        return
    unknown = set(asked.sections) - CASES.keys()
    if unknown:
        parser.error(f"there is no section {min(unknown)}; choose from {', '.join(CASES)}")
    sections = asked.sections or list(CASES)
    rows = kept_rows(asked.output / f"{_RESULT}.json")
    missing = [s for s in sections if not (asked.keep and s in rows)]
    if asked.instances is None and set(missing) - {"time"}:
        parser.error("--instances is needed for all sections but `time`")
    for section in missing:
        rows[section] = collect(section, asked.instances, *limits)
        together = [row for name in CASES for row in rows.get(name, [])]
        settings = {"time_limit_s": asked.time_limit, "method_time_limit_s": asked.method_time_limit}
        save(_RESULT, recorded(together, seed=0, repeats=1, **settings), asked.output)
    for section in sections:
        wall = sum(row["case_wall_seconds"] for row in rows[section])
        print(f"\n{section} ({wall:.0f} s wall)\n{show(section, rows[section])}")


if __name__ == "__main__":
    main()
