"""Puts the measured bars into the README: `python benchmarks/quote_bars.py [--check]`.

Reads `results/bars.json`, which `bars.py` wrote, and replaces what is between the markers. With `--check` nothing is
written, and the exit code is 1 when the README says something else than the JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

README: Final = Path(__file__).resolve().parent.parent / "README.md"
BARS: Final = Path(__file__).resolve().parent / "results" / "bars.json"
BEGIN: Final = "<!-- bars:begin -->"
END: Final = "<!-- bars:end -->"


def table(result: Mapping[str, Any]) -> str:
    """The bars as a table in Markdown, with the machine that they were measured on."""
    lines = ["| bar | target | measured | met |", "|---|---|---|---|"]
    for row in result["rows"]:
        cells = (row["name"], row["target"], row["measured"], "yes" if row["met"] else "**no**")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    machine, versions = result["machine"], result["versions"]
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lines += [
        "",
        f"Measured {result['made'][:10]} on {machine['cpu']}, {machine['threads']} thread; {packages}.",
    ]
    return "\n".join(lines)


def quoted(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with `text` between its markers.

    Raises:
        ValueError: the page has not exactly one pair of markers.
    """
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs one {begin} and one {end} behind it")
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{text}\n{end}{tail}"


def markers(name: str) -> tuple[str, str]:
    """What stands in a page before and behind the table of a result."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def in_markdown(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rules = ["---"] * len(columns)
    head = "| " + " | ".join(columns) + " |\n|" + "|".join(rules) + "|"
    return "\n".join([head, *("| " + " | ".join(cells) + " |" for cells in lines)])


def made_on(result: Mapping[str, Any]) -> str:
    """When and where a result was made, without a full stop."""
    machine = result["machine"]
    return f"Made {result['made'][:10]} on {machine['cpu']}, {machine['threads']} thread"


def fill_in(description: str | None, page: Path, result: Path, filled: Callable[[str, Any], str]) -> int:
    """Write a page anew from a result, or with `--check` say whether it would change; returns the exit code.

    Args:
        description: of the script, for its help.
        page: with markers.
        result: the JSON.
        filled: the page, and what the JSON says, as the page is to be.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    asked = parser.parse_args()
    before = page.read_text(encoding="utf-8")
    after = filled(before, json.loads(result.read_text(encoding="utf-8")))
    if asked.check:
        return int(after != before)
    page.write_text(after, encoding="utf-8", newline="\n")
    return 0


def main() -> int:
    """Fill in or check; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--bars", type=Path, default=BARS, help="the JSON that bars.py wrote")
    parser.add_argument("--page", type=Path, default=README, help="the page to fill in")
    asked = parser.parse_args()
    page = asked.page.read_text(encoding="utf-8")
    filled = quoted(page, table(json.loads(asked.bars.read_text(encoding="utf-8"))))
    if asked.check:
        return 0 if filled == page else 1
    asked.page.write_text(filled, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
