"""Puts the comparison with MAGIS into its page: `python benchmarks/quote_magis_zoo.py [--check]`.

Reads `results/magis_zoo.json`, which `magis_zoo.py` wrote. With `--check` nothing is written, and the exit code is 1 when
the page says something else than the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import magis_zoo
from bench_record import RESULTS
from quote_bars import fill_in, in_markdown, made_on, markers, quoted

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "beside-magis.md"
RESULT: Final = RESULTS / f"{magis_zoo.RESULT}.json"


def filled(page: str, result: Mapping[str, Any]) -> str:
    """The page with the table of a result in it."""
    text = in_markdown(magis_zoo.COLUMNS, magis_zoo.lines(result["rows"]))
    limits = sorted({row["time_limit_s"] for row in result["rows"]})
    searches = " to ".join(dict.fromkeys(f"{limit:.0f}" for limit in (limits[0], limits[-1])))
    most = max(
        made["cpu_seconds"]
        for row in result["rows"]
        if "failure" not in row
        for found in (row["ours"], row.get("magis", {}))
        for made in found.values()
    )
    said = (
        f"{made_on(result)}; searches of"
        f" {searches} s of wall time, at most {most:.0f} s of processor time each."
    )
    return quoted(page, f"{text}\n\n{said}", *markers(magis_zoo.RESULT))


def main() -> int:
    """Fill in or check; returns the exit code."""
    return fill_in(__doc__, PAGE, RESULT, filled)


if __name__ == "__main__":
    sys.exit(main())
