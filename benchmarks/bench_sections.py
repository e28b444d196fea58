"""The command line of benchmarks in sections, each case of which runs in a process of its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_record import recorded, run_part, save, say

Row = dict[str, Any]
Case = tuple[str, ...]


def main(
    script: str,
    text: str | None,
    cases: Mapping[str, Sequence[Case]],
    solve: Callable[[Sequence[str], int, float], Row],
    show: Callable[[str, Sequence[Row]], str],
    *,
    time_limit_s: float,
    searches: int,
) -> None:
    """Run the sections asked for, print each as it ends, and with all sections write a result named like the script.

    Args:
        script: path of the benchmark.
        text: what it is, for `--help`.
        cases: by section.
        solve: a case, with repeats and seconds of each search; runs in the process of the case.
        show: a section and its rows as text; a row with `failure` says why its case has none.
        time_limit_s: of each search, by default.
        searches: of a case and a repeat, at most: how long a case may take at all.
    """
    name = Path(script).stem
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(cases)}")
    parser.add_argument(
        "--repeats", type=int, default=3, help="medians over so many runs (default: %(default)s)"
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=time_limit_s,
        help="seconds of each search (default: %(default)s)",
    )
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(solve(asked.one, asked.repeats, asked.time_limit)))
        return
    unknown = set(asked.sections) - cases.keys()
    if unknown:
        parser.error(f"there is no section {min(unknown)}; choose from {', '.join(cases)}")
    options = (f"--repeats={asked.repeats}", f"--time-limit={asked.time_limit}")
    timeout_s = searches * (asked.repeats + 3) * (asked.time_limit + 30)
    every: list[Row] = []
    for section in asked.sections or list(cases):
        rows = []
        for case in cases[section]:
            say(" ".join(case))
            found = run_part(f"{name}.py", "--one", *case, *options, timeout_s=timeout_s)
            rows.append({"section": section, "case": " ".join(case[1:])} | found)
        print(f"\n{section}\n{show(section, rows)}", flush=True)
        every += rows
    if not asked.sections:
        result = recorded(every, seed=0, repeats=asked.repeats, time_limit_s=asked.time_limit)
        say(f"written: {save(name, result)}")
