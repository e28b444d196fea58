"""Puts the tables of stays on the host into their page: `python benchmarks/quote_offload.py [--check]`.

Reads what `offload_budgets.py`, `offload_planning.py` and `offload_coordinated.py` wrote. With `--check` nothing is written, and the exit code is 1
when the page says something else than the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import offload_budgets
import offload_coordinated
import offload_planning
from bench_record import RESULTS
from quote_bars import fill_in, in_markdown, made_on, markers, quoted

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "stays-on-the-host.md"
TABLES: Final = (offload_budgets, offload_planning, offload_coordinated)
"""Each with `RESULT`, `COLUMNS`, `lines(rows)` and `said(result)`."""


def filled(page: str, result: Mapping[str, Any], *, table: ModuleType) -> str:
    """The page with the table of a result in it."""
    text = in_markdown(table.COLUMNS, table.lines(result["rows"]))
    said = f"{made_on(result)}. {table.said(result)}"
    return quoted(page, f"{text}\n\n{said}", *markers(table.RESULT))


def main() -> int:
    """Fill in or check; returns the exit code."""
    codes = [
        fill_in(__doc__, PAGE, RESULTS / f"{table.RESULT}.json", partial(filled, table=table))
        for table in TABLES
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
