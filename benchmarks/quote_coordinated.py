"""Puts what looking for everything together brings into its page: `python benchmarks/quote_coordinated.py [--check]`.

Reads `results/coordinated.json`, which `coordinated.py` wrote. With `--check` nothing is written, and the exit code is 1 when
the page says something else than the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS
from coordinated import LATENCIES, OURS, PROGRAMS, SMALL, TINY
from neaptide import zoo
from quote_bars import fill_in, quoted

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "coordinated.md"
COORDINATED: Final = RESULTS / "coordinated.json"
BEGIN: Final = "<!-- coordinated:begin -->"
END: Final = "<!-- coordinated:end -->"
NAIVE: Final = tuple(name for name in PROGRAMS if name != OURS)
# What is equal: a thousandth of the peak of program order.
_EQUAL: Final = 1e-3

Row = dict[str, Any]


def shares(row: Row, latency: int) -> dict[str, float]:
    """By program, its peak as a share of that of program order; those that take too long are left out."""
    return {
        point["program"]: point["peak_bytes"] / row["baseline_bytes"]
        for point in row["points"]
        if point["latency"] == latency and point["time_ratio"] <= (1 + latency / 100) * (1 + 1e-9)
    }


def in_markdown(result: Row) -> str:
    """The table of the page, and how often ours is on or below the others."""
    heads = ("step", "operations", "more time", *PROGRAMS)
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    rows = [row for row in result["rows"] if "failure" not in row]
    for row in rows:
        for latency in LATENCIES:
            found = shares(row, latency)
            cells = [f"{found[name]:.3f}" if name in found else "-" for name in PROGRAMS]
            lines.append(
                f"| {row['spec']} | {row['operations']:,} | {latency} % | " + " | ".join(cells) + " |"
            )
    lines += ["", *_counts(rows)]
    lines += [f"{row['spec']} failed: {row['failure']}" for row in result["rows"] if "failure" in row]
    wanted = [*(f"{name}@{TINY}" for name in zoo.names()), *(f"{name}@small" for name in SMALL)]
    left = [spec for spec in wanted if spec not in {row["spec"] for row in result["rows"]}]
    return "\n".join([*lines, f"Not run: {', '.join(left) or 'nothing'}."])


def _counts(rows: Sequence[Row]) -> list[str]:
    cases = [shares(row, latency) for row in rows for latency in LATENCIES]
    below = sum(_best_naive(case) - case[OURS] > _EQUAL for case in cases)
    above = sum(case[OURS] - _best_naive(case) > _EQUAL for case in cases)
    equal = len(cases) - below - above
    best = f"Of {len(cases)} cases, ours is below the lowest of all others in {below}, equal to it within {_EQUAL:g} of the peak in"
    said = [f"{best} {equal}, and above it in {above}. Beside each by itself (below, equal, above):", ""]
    for name in NAIVE:
        gaps = [case[name] - case[OURS] for case in cases if name in case]
        lower, higher = (sum(sign * gap > _EQUAL for gap in gaps) for sign in (1, -1))
        said.append(f"* {name}: {lower}, {len(gaps) - lower - higher}, {higher}")
    return [*said, ""]


def _best_naive(case: Mapping[str, float]) -> float:
    return min(case[name] for name in NAIVE if name in case)


def filled(page: str, result: Row) -> str:
    """The page with the table of a result."""
    return quoted(page, in_markdown(result), BEGIN, END)


def main() -> int:
    """Fill in or check; returns the exit code."""
    return fill_in(__doc__, PAGE, COORDINATED, filled)


if __name__ == "__main__":
    sys.exit(main())
