"""Puts the runs of steps in parts into the page on rewrites: `python benchmarks/quote_fission.py [--check]`.

Reads `results/fission_runs.json`, which `fission_runs.py` wrote. With `--check` nothing is written, and the exit code is
1 when the page says something else than the JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS
from fission_runs import envelope, left_out, near_line, on_or_below_line
from quote_bars import fill_in, quoted

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "rewrites.md"
RUNS: Final = RESULTS / "fission_runs.json"
BEGIN: Final = "<!-- fission_runs:begin -->"
END: Final = "<!-- fission_runs:end -->"


def table(result: Mapping[str, Any]) -> str:
    """Ours beside the least of the others as a table in Markdown, with what is missing."""
    lines = [
        "| step | more time allowed | parts that are found: peak / time | the least of the others: peak | on or below |",
        "|---|---|---|---|---|",
    ]
    for model in result["rows"]:
        if "failure" in model:
            lines.append(f"| {model['spec']} | - | failed | - | **no** |")
            continue
        for found in envelope(model):
            said = (
                "yes" if found["is_on_or_below"] else "**no**" if found["is_in_time"] else "**not in time**"
            )
            chosen = "" if found["is_tried"] else " (chosen by prediction)"
            lines.append(
                f"| {model['spec']} | {found['latency']} % | {found['ours']:.3f} / {found['ours_cpu_ratio']:.2f}{chosen}"
                f" | {found['least_other_share']:.3f} ({found['least_other']}) | {said} |"
            )
    settings, machine = result["settings"], result["machine"]
    limits = sorted({row["time_limit_s"] for row in result["rows"] if "time_limit_s" in row})
    searched = " to ".join(f"{limit:.0f}" for limit in sorted({limits[0], limits[-1]}))
    said = (
        f"Measured {result['made'][:10]} on {machine['cpu']}, {machine['threads']} thread; searches of {searched} s;"
        f" times may be {settings['tolerance_of_times']:.0%} above what is allowed. Not run:"
        f" {left_out(settings['missing']) or 'nothing'}. {on_or_below_line(result['rows'])} {near_line(result['rows'])}"
    )
    lines += ["", said]
    return "\n".join(lines)


def main() -> int:
    """Fill in or check; returns the exit code."""
    return fill_in(__doc__, PAGE, RUNS, lambda page, result: quoted(page, table(result), BEGIN, END))


if __name__ == "__main__":
    sys.exit(main())
