"""Puts the table of chains into the page on stays: `python benchmarks/quote_pofo.py [--check]`.

Reads `results/pofo_chains.json`, which `pofo_chains.py` wrote. With `--check` nothing is written, and the exit code is 1
when the page says something else than the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pofo_chains
from bench_record import RESULTS
from quote_bars import fill_in, quoted

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "stays-on-the-host.md"
RESULT: Final = RESULTS / f"{pofo_chains.RESULT}.json"
BEGIN: Final = "<!-- pofo_chains:begin -->"
END: Final = "<!-- pofo_chains:end -->"


def filled(page: str, result: Mapping[str, Any]) -> str:
    """The page with the table of a result in it."""
    text = [
        "| " + " | ".join(pofo_chains.COLUMNS) + " |",
        "|" + "---|" * len(pofo_chains.COLUMNS),
        *("| " + " | ".join(cells) + " |" for cells in pofo_chains.lines(result["rows"])),
        "",
        f"Made {result['made'][:10]}.",
    ]
    return quoted(page, "\n".join(text), BEGIN, END)


def main() -> int:
    """Fill in or check; returns the exit code."""
    return fill_in(__doc__, PAGE, RESULT, filled)


if __name__ == "__main__":
    sys.exit(main())
