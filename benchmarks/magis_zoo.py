"""MAGIS's own graphs under MAGIS's own costs: `python benchmarks/magis_zoo.py [NET ...] --instances FOLDER`.

Each net is a training step recorded from MAGIS's model zoo, in `FOLDER/magis_zoo/NET.json`. Bytes and seconds are counted
as MAGIS's simulator counts them (`neaptide_peers.magis`). For a latency of +5 % and +10 % it prints the least peak, as a
share of eager's, of: the whole step in 2, 4, 8, 16 or 32 parts; MAGIS's released search and MAGIS's paper, as published;
MAGIS's search as written here; ours, the outer search over regions in parts with recomputation inside and around them.
Rows of a net take the place of earlier ones in `benchmarks/results/magis_zoo.json`. Each net runs in a process of its own
on one thread, and both limits on time are wall time: on a busy machine give more. `quote_results.py` puts the table
into the documentation.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import magis_zoo_cases
from bench_record import MIB, RESULTS, recorded, run_part, save, say, table
from magis_zoo_cases import LIMITS, NETS, PAPER, RELEASED, added

Row = dict[str, Any]
RESULT: Final = "magis_zoo"
COLUMNS: Final = (
    "net",
    "latency",
    "whole step in parts",
    "MAGIS, released",
    "MAGIS, paper",
    "MAGIS, here",
    "ours",
    "on or below",
)
# Published shares have three digits.
_ROUNDING: Final = 5e-4
# Beyond what a search takes: reading, whole steps in parts, judging.
_BESIDE_S: Final = 300.0


def best_whole_step(row: Mapping[str, Any], limit: str) -> Mapping[str, Any] | None:
    """The whole step in as many parts as give the least peak within a limit."""
    within = [made for made in row["micro_batch"] if made["overhead"] <= added(limit)]
    return min(within, key=lambda made: made["peak_share"], default=None)


def best_found(row: Mapping[str, Any], search: str, limit: str) -> Mapping[str, Any]:
    """The least peak that a search has found within a limit or a shorter one."""
    shorter = [made for at, made in row[search].items() if added(at) <= added(limit)]
    return min(shorter, key=lambda made: made["peak_share"])


def is_on_or_below(row: Mapping[str, Any], limit: str) -> bool:
    """Whether ours is at or below the released search and every whole step in parts."""
    ours, whole = best_found(row, "ours", limit), best_whole_step(row, limit)
    if ours["overhead"] > added(limit) or (whole and ours["peak_share"] > whole["peak_share"]):
        return False
    released = RELEASED.get((row["net"], limit))
    return released is None or ours["peak_share"] <= released[0] + _ROUNDING


def cells(row: Mapping[str, Any], limit: str) -> list[str]:
    """A line of the table."""
    whole = best_whole_step(row, limit)
    released = RELEASED.get((row["net"], limit))
    return [
        row["net"],
        limit,
        "-" if whole is None else f"{_found(whole)} ({whole['parts']})",
        "-" if released is None else f"{released[0]:.3f} / {released[1]:+.1%}",
        f"{PAPER[row['net']][LIMITS.index(limit)]:.2f}",
        _found(best_found(row, "magis", limit)),
        _found(best_found(row, "ours", limit)),
        "yes" if is_on_or_below(row, limit) else "no",
    ]


def lines(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The table, two lines a net."""
    return [cells(row, limit) for row in rows if "failure" not in row for limit in LIMITS]


def _found(made: Mapping[str, Any]) -> str:
    return f"{made['peak_share']:.3f} / {made['overhead']:+.1%}"


def show(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table, with what eager takes, what was chosen and what failed below it."""
    text = [table(COLUMNS, lines(rows))]
    for row in rows:
        if "failure" in row:
            text.append(f"{row['net']} failed: {row['failure']}")
            continue
        text.append(
            f"{row['net']}: {row['nodes']} operations, {row['peak_bytes'] / MIB:.0f} MiB, {row['seconds'] * 1e3:.1f} ms"
        )
        text += [f"  {limit}: {best_found(row, 'ours', limit)['label']}" for limit in LIMITS]
    return "\n".join(text)


def kept(path: Path) -> dict[str, Row]:
    """By net, the rows of earlier runs."""
    if not path.exists():
        return {}
    return {row["net"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", help=f"of {', '.join(NETS)} (default: all)")
    parser.add_argument("--instances", type=Path, required=True, help="folder with magis_zoo/*.json")
    parser.add_argument(
        "--time-limit", type=float, default=60.0, help="wall seconds of each search (default: %(default)s)"
    )
    parser.add_argument("--work", type=int, help="units of work of each search (default: no limit)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the JSON (default: %(default)s)"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(magis_zoo_cases.solve(asked.one, asked.instances, asked.time_limit, asked.work)))
        return
    unknown = set(asked.nets) - set(NETS)
    if unknown:
        parser.error(f"there is no net {min(unknown)}; choose from {', '.join(NETS)}")
    rows = kept(asked.output / f"{RESULT}.json")
    searches = len(LIMITS) * magis_zoo_cases.SEARCHES
    options = [f"--instances={asked.instances}", f"--time-limit={asked.time_limit}"]
    options += [] if asked.work is None else [f"--work={asked.work}"]
    for net in asked.nets or NETS:
        say(net)
        timeout_s = searches * 2 * asked.time_limit + _BESIDE_S
        found = run_part("magis_zoo.py", "--one", net, *options, timeout_s=timeout_s)
        rows[net] = {"net": net, "time_limit_s": asked.time_limit} | found
        together = [rows[name] for name in NETS if name in rows]
        save(RESULT, recorded(together, seed=0, repeats=1), asked.output)
    print(show([rows[name] for name in NETS if name in rows]))


if __name__ == "__main__":
    main()
