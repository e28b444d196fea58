"""Puts what settings decide into the page on them: `python benchmarks/quote_settings.py [--check]`.

Reads `results/ablation.json`, which `ablation.py` wrote. With `--check` nothing is written, and the exit code is 1 when
the page says something else than the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import ablation
from ablation_cases import STAGES, WHOLE
from bench_record import RESULTS
from quote_bars import fill_in, quoted

Row = dict[str, Any]
PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "search-settings.md"
ABLATION: Final = RESULTS / "ablation.json"
_TINY: Final = 1e-9
_HEAD: Final = ("| setting | halved: worse / better | doubled: worse / better |", "|---|---|---|")


def table(room: str, rows: Sequence[Row]) -> str:
    """A setting a line: in how many cases the answer is worse or better with half of it, and with twice."""
    lines = list(_HEAD)
    changed = list(dict.fromkeys(stage.rpartition(" ")[0] for stage in STAGES[room]))
    quiet = []
    for name in changed:
        counts = [_counts(room, rows, f"{name} {factor}") for factor in ("half", "twice")]
        if any(any(pair) for pair in counts):
            lines.append(
                f"| `{name}` | " + " | ".join(f"{worse} / {better}" for worse, better in counts) + " |"
            )
        else:
            quiet.append(f"`{name}`")
    work = rows[0]["work_limit"]
    # What is no search ends by itself: its limit is one unit, which it does not read.
    said = f"{len(rows)} cases, {work:,} units of work each." if work > 1 else f"{len(rows)} cases."
    if quiet:
        said += f" No answer changes with {', '.join(quiet)}."
    return "\n".join([*lines, "", said] if len(lines) > len(_HEAD) else [said])


def _counts(room: str, rows: Sequence[Row], stage: str) -> tuple[int, int]:
    losses = [ablation.loss(room, row["without"][WHOLE], row["without"][stage]) for row in rows]
    return sum(loss > _TINY for loss in losses), sum(loss < -_TINY for loss in losses)


def filled(page: str, result: Mapping[str, Any]) -> str:
    """The page with the tables of all rooms of settings."""
    for room in STAGES:
        if room.endswith("_settings"):
            rows = [row for row in result["rows"] if row["room"] == room and "failure" not in row]
            begin, end = f"<!-- {room}:begin -->", f"<!-- {room}:end -->"
            page = quoted(page, table(room, rows), begin, end)
    return page


def main() -> int:
    """Fill in or check; returns the exit code."""
    return fill_in(__doc__, PAGE, ABLATION, filled)


if __name__ == "__main__":
    sys.exit(main())
