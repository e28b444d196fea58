"""Puts the table of stays on the host into its page: `python benchmarks/quote_offload.py [--check]`.

Reads `results/offload_budgets.json`, which `offload_budgets.py` wrote. With `--check` nothing is written, and the exit code
is 1 when the page says something else than the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import offload_budgets
from bench_record import RESULTS
from quote_bars import fill_in, quoted

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "stays-on-the-host.md"
RESULT: Final = RESULTS / f"{offload_budgets.RESULT}.json"
BEGIN: Final = "<!-- offload_budgets:begin -->"
END: Final = "<!-- offload_budgets:end -->"


def filled(page: str, result: Mapping[str, Any]) -> str:
    """The page with the table of a result in it."""
    text = [
        "| " + " | ".join(offload_budgets.COLUMNS) + " |",
        "|" + "---|" * len(offload_budgets.COLUMNS),
        *("| " + " | ".join(cells) + " |" for cells in offload_budgets.lines(result["rows"])),
    ]
    said = f"Made {result['made'][:10]} on {result['machine']['cpu']}, {result['machine']['threads']} thread."
    return quoted(page, "\n".join([*text, "", said]), BEGIN, END)


def main() -> int:
    """Fill in or check; returns the exit code."""
    return fill_in(__doc__, PAGE, RESULT, filled)


if __name__ == "__main__":
    sys.exit(main())
