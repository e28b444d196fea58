"""The layout bars, measured: `python benchmarks/layout_bars.py [SECTION ...] [--instances DIR] [--magis DIR] [--repeats N]`.

Sections, all of them if none is named:
  challenging  MiniMalloc's hard instances (CSV files in --instances) at 1,048,576 bytes, beside CP-SAT and all rules
  networks     the committed architecture-search networks, the zoo as captured (training and inference; tiny and small)
               and the training graphs in --magis: arena, live bytes, peers, a simulated caching allocator
  large        20,000 buffers in the shape of a training step, and of a pipelined one, which is harder
  rules        each rule on 10,000 of them
Prints a table for each and which bars are met, in the form of the README. With all sections the numbers go to
`benchmarks/results/layout_bars.json`. Each case runs in a process of its own; seconds are of the processor, medians.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import layout_cases
import order_cases
from bench_record import MIB, recorded, run_part, save, say, table
from neaptide import zoo
from neaptide_peers.layouts.rules import ALL_RULES as RULES

Row = dict[str, Any]
Case = tuple[str, ...]
SECTIONS: Final = ("challenging", "networks", "large", "rules")
_SETUP_S: Final = 240.0  # of a part, beside its searches: capture, ordering, every rule


def cases(section: str, instances: Path | None, magis: Path | None) -> list[Case]:
    """What a section measures: the name of a function of `layout_cases`, and its arguments."""
    match section:
        case "challenging":
            return [("challenging", str(path)) for path in _files(instances, "*.csv")]
        case "networks":
            return [
                *(
                    ("architecture", path.stem)
                    for path in _files(order_cases.INSTANCES, "*.json")
                    if path.stem != "index"
                ),
                *(
                    ("captured", f"{model}@{size}", mode)
                    for size in ("tiny", "small")
                    for model in zoo.names()
                    for mode in ("training", "inference")
                ),
                *(("recorded_graph", str(path)) for path in _files(magis, "*.json")),
            ]
        case "large":
            return [("large", "training_shaped"), ("large", "pipelined")]
        case _:
            return [("rule", name) for name in RULES]


def _files(folder: Path | None, pattern: str) -> list[Path]:
    return [] if folder is None else sorted(folder.glob(pattern))


def collect(section: str, todo: Sequence[Case], repeats: int, time_limit_s: float) -> list[Row]:
    rows = []
    for case in todo:
        say(" ".join(case))
        options = (f"--repeats={repeats}", f"--time-limit={time_limit_s}")
        timeout_s = _SETUP_S + (2 * repeats + 2) * time_limit_s
        found = run_part("layout_bars.py", "--one", *case, *options, timeout_s=timeout_s)
        rows.append({"section": section, "case": _shown_case(case)} | found)
    return rows


def _shown_case(case: Case) -> str:
    kind, *names = case
    shown = [Path(name).stem if "/" in name else name for name in names]
    return " ".join(shown) or kind


def show(section: str, rows: Sequence[Row]) -> str:
    """A section as a table, with what stays above its bound and why, the cases that failed, and the bars."""
    columns, cells = _COLUMNS[section]
    good = [row for row in rows if "failure" not in row]
    lines = [table(columns, [cells(row) for row in good])] if good else ["no cases"]
    lines += [
        f"{row['case']}: {row['arena_bytes'] - row['live_bytes']} bytes above live bytes; {_reason(row)}"
        for row in good
        if section == "networks" and row["arena_bytes"] > row["live_bytes"]
    ]
    lines += [f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row]
    bars: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for row in good:
        for bar, met in row["met"].items():
            counts[bar] = counts.get(bar, 0) + 1
            missed = bars.setdefault(bar, [])
            if not met:
                missed.append(row["case"])
    lines.append("\n| bar | met | missed |\n|---|---|---|")
    lines += [
        f"| {bar} | {counts[bar] - len(missed)} of {counts[bar]} | {', '.join(missed) or '-'} |"
        for bar, missed in bars.items()
    ]
    return "\n".join(lines)


def _reason(row: Row) -> str:
    if row["proved"]:
        return f"no arena is smaller ({row['certificate']})"
    return (
        f"bound {row['lower_bound_bytes']}, {row['certificate']}; ended by {row['limit'] or 'its own limits'}"
    )


def _above(nbytes: int, live: int) -> str:
    return f"{nbytes / live - 1:.2%}" if live else "-"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


def _challenging_cells(row: Row) -> list[str]:
    best_rule = row["rules"][row["best_rule"]]
    return [
        row["case"],
        str(row["buffers"]),
        str(row["live_bytes"]),
        _seconds(row["fit_seconds"]),
        f"{row['cp_sat_seconds']:.1f}" if row["cp_sat_fits"] else "-",
        f"{row['rules_that_fit']} of {len(row['rules'])}",
        f"{row['best_rule']} {best_rule / layout_cases.CHALLENGING_CAPACITY - 1:+.0%}",
        str(row["arena_bytes"]),
        row["certificate"],
        _seconds(row["cpu_seconds"]),
        str(row["nodes"]),
    ]


def _network_cells(row: Row) -> list[str]:
    live = row["live_bytes"]
    return [
        row["case"],
        str(row["buffers"]),
        f"{live / MIB:.3f}",
        _above(row["arena_bytes"], live),
        _seconds(row["cpu_seconds"]),
        *(_above(row["peers"][name], live) for name in layout_cases.PEERS),
        _above(row["reserved_bytes"], live),
    ]


def _large_cells(row: Row) -> list[str]:
    live = row["live_bytes"]
    above = [_above(row[name], live) for name in ("arena_bytes", "best_rule_bytes")]
    cells = [row["case"], str(row["buffers"]), f"{live / MIB:.1f}", *above, row["certificate"]]
    return [*cells, _seconds(row["seconds_to_one_percent"]), _seconds(row["cpu_seconds"])]


def _rule_cells(row: Row) -> list[str]:
    above = _above(row["arena_bytes"], row["live_bytes"])
    return [row["case"], str(row["buffers"]), above, f"{row['cpu_seconds']:.3f}"]


_COLUMNS: Final[Mapping[str, tuple[list[str], Callable[[Row], list[str]]]]] = MappingProxyType(
    {
        "challenging": (
            [
                "case",
                "buffers",
                "live bytes",
                "fit s",
                "CP-SAT s",
                "rules that fit",
                "best rule",
                "smallest arena",
                "certificate",
                "CPU s",
                "nodes",
            ],
            _challenging_cells,
        ),
        "networks": (
            ["case", "buffers", "live MiB", "arena", "CPU s", *layout_cases.PEERS, "torch reserved"],
            _network_cells,
        ),
        "large": (
            ["case", "buffers", "live MiB", "arena", "best peer", "certificate", "s to 1 %", "CPU s"],
            _large_cells,
        ),
        "rules": (["rule", "buffers", "arena", "CPU s"], _rule_cells),
    }
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--instances", type=Path, help="folder with MiniMalloc's instances as CSV")
    parser.add_argument("--magis", type=Path, help="folder with training graphs as JSON lists of nodes")
    parser.add_argument(
        "--repeats", type=int, default=3, help="medians over so many runs (default: %(default)s)"
    )
    parser.add_argument(
        "--time-limit", type=float, default=60.0, help="seconds of each search (default: %(default)s)"
    )
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        kind, *names = asked.one
        row = layout_cases.KINDS[kind](*names, repeats=asked.repeats, time_limit_s=asked.time_limit)
        print(json.dumps(row))
        return
    unknown = set(asked.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"there is no section {min(unknown)}; choose from {', '.join(SECTIONS)}")
    for option, folder in (("--instances", asked.instances), ("--magis", asked.magis)):
        if folder is None:
            say(f"without {option} its cases are left out")
        elif not folder.is_dir():
            parser.error(f"{option}: there is no folder {folder}")
    rows = []
    for section in asked.sections or SECTIONS:
        todo = cases(section, asked.instances, asked.magis)
        found = collect(section, todo, asked.repeats, asked.time_limit)
        rows += found
        print(f"\n{section}\n{show(section, found)}", flush=True)
    if not asked.sections:
        result = recorded(rows, seed=0, repeats=asked.repeats, time_limit_s=asked.time_limit)
        say(f"written: {save('layout_bars', result)}")


if __name__ == "__main__":
    main()
