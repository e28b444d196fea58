"""Measured tables in pages: each stands between markers that name its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def quoted(page: str, text: str, name: str) -> str:
    """The page with `text` between the markers of a result.

    Raises:
        ValueError: the page has not exactly one pair of them.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs one {begin} and one {end} after it")
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{text}\n{end}{tail}"


def in_markdown(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rules = ["---"] * len(columns)
    head = "| " + " | ".join(columns) + " |\n|" + "|".join(rules) + "|"
    return "\n".join([head, *("| " + " | ".join(cells) + " |" for cells in lines)])


def made_on(result: Mapping[str, Any]) -> str:
    """When and where a result was made, without a full stop."""
    machine = result["machine"]
    return f"Made {result['made'][:10]} on {machine['cpu']}, {machine['threads']} thread"
