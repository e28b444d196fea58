"""Puts measured tables into the page of results: `python benchmarks/quote_results.py [--check]`.

Reads the JSON of each table from `results/`. With `--check` nothing is written, and the exit code is 1 when the page
says something else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import dynamic_shapes
import fission_paper
import fission_runs
import fused_steps
import magis_zoo
import offload_budgets
import offload_coordinated
import onnx_runtime
import onnx_tvm
import quote_models
from bench_record import GIB, RESULTS
from coordinated import LATENCIES, OURS, PROGRAMS
from gpu import check
from magis_zoo_cases import LIMITS, RELEASED
from onnx_files_of_corpus import KIB
from quoting import in_markdown, made_on, quoted

Row = dict[str, Any]
PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "results.md"
NAIVE: Final = tuple(name for name in PROGRAMS if name != OURS)
# What is equal: a thousandth of the peak of program order.
_EQUAL: Final = 1e-3
FOOTPRINTS: Final = ("file_bytes", "order_bytes", "peak_bytes")


def fission(result: Row) -> str:
    """Real runs: a step a line, a limit of time a column."""
    limits = sorted({latency for row in result["rows"] for latency in row.get("latencies", ())})
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], *["failed"] * len(limits)])
            continue
        found = {one["latency"]: _run(one) for one in fission_runs.envelope(row)}
        lines.append([row["spec"], *(found.get(latency, "-") for latency in limits)])
    limited = sorted({row["time_limit_s"] for row in result["rows"] if "time_limit_s" in row})
    searched = " to ".join(f"{limit:.0f}" for limit in dict.fromkeys((*limited[:1], *limited[-1:])))
    left = fission_runs.left_out(result["settings"]["missing"])
    tolerance = f"{result['settings']['tolerance_of_times']:.0%}"
    said = [
        f"{made_on(result)}; searches of {searched} s; times may be {tolerance} above what is allowed.",
        *([f"Not run: {left}."] if left else []),
        fission_runs.on_or_below_line(result["rows"]),
        fission_runs.near_line(result["rows"]),
    ]
    table = in_markdown(("step", *(f"+{latency} %" for latency in limits)), lines)
    return f"{table}\n\n{' '.join(said)}"


def _run(found: Mapping[str, Any]) -> str:
    """Ours beside the least of the others; bold where ours is above it or not in time."""
    ours = f"{found['ours']:.3f}" if found["is_in_time"] else "too slow"
    text = f"{ours} ({found['least_other_share']:.3f})"
    return text if found["is_on_or_below"] else f"**{text}**"


def paper(result: Row) -> str:
    """The nets of MAGIS at their published size, within the times that have a published peak."""
    programs = ("recompute", "micro_batch", "ours")
    columns = (*fission_paper.COLUMNS, "published", "bound")
    shown = [columns.index(name) for name in (*programs, "published", "bound")]
    lines = []
    for row in result["rows"]:
        net = row["spec"].partition("@")[0]
        for latency in row.get("latencies", ()):
            if latency in fission_paper.PUBLISHED[net]:
                cells = fission_paper.cells(row, latency)
                lines.append((net, f"+{latency} %", *(cells[place] for place in shown)))
    table = in_markdown(("net", "more time", *(columns[place] for place in shown)), lines)
    limits = sorted(
        {p["time_limit_s"] for row in result["rows"] for p in row.get("points", ()) if "time_limit_s" in p}
    )
    searches = " to ".join(f"{limit:.0f}" for limit in dict.fromkeys((*limits[:1], *limits[-1:])))
    failed = [f"{row['spec']} failed: {row['failure']}." for row in result["rows"] if "failure" in row]
    said = f"Predicted {result['made'][:10]} for `{fission_paper.DEVICE}`; searches of {searches} s."
    return "\n\n".join([table, " ".join([said, *failed])])


def shares(row: Row, latency: int) -> dict[str, float]:
    """By program, its peak as a share of that of program order; those that take too long are left out."""
    return {
        point["program"]: point["peak_bytes"] / row["baseline_bytes"]
        for point in row["points"]
        if point["latency"] == latency and point["time_ratio"] <= (1 + latency / 100) * (1 + 1e-9)
    }


def coordinated(result: Row) -> str:
    """How often deciding together is below, equal to and above each way to decide one after the other."""
    rows = [row for row in result["rows"] if "failure" not in row]
    cases = [(row["spec"], latency, shares(row, latency)) for row in rows for latency in LATENCIES]
    lines = [
        (name, *map(str, _compared([(case[name], case[OURS]) for *_, case in cases if name in case])))
        for name in NAIVE
    ]
    least = [(min(case[name] for name in NAIVE if name in case), case[OURS]) for *_, case in cases]
    lines.append(("the lowest of all these", *map(str, _compared(least))))
    above = [
        f"{spec} at +{latency} % ({ours:.3f}, not {other:.3f})"
        for (spec, latency, _), (other, ours) in zip(cases, least, strict=True)
        if ours - other > _EQUAL
    ]
    said = f"{made_on(result)}, predicted for `rtx3090`; {len(cases)} cases. Above: {', '.join(above) or 'none'}."
    if earlier := result["settings"].get("magis_made"):
        said += f" The answers of MAGIS were made {earlier}, where the graph is the same."
    failed = [f"{row['spec']} failed: {row['failure']}." for row in result["rows"] if "failure" in row]
    table = in_markdown(("compared with", "`close` is below", "equal", "above"), lines)
    return "\n\n".join([table, " ".join([said, *failed])])


def _compared(pairs: Sequence[tuple[float, float]]) -> tuple[int, int, int]:
    """Of pairs of another and ours: how often ours is below, equal and above."""
    below = sum(other - ours > _EQUAL for other, ours in pairs)
    above = sum(ours - other > _EQUAL for other, ours in pairs)
    return below, len(pairs) - below - above, above


def magis(result: Row) -> str:
    """The nets of MAGIS under its own costs."""
    lines = []
    for row in result["rows"]:
        for limit in LIMITS:
            released = RELEASED.get((row["net"], limit))
            whole = magis_zoo.best_whole_step(row, limit)
            found = (magis_zoo.best_found(row, search, limit) for search in ("magis", "ours"))
            peaks = [
                whole and whole["peak_share"],
                released and released[0],
                *(one["peak_share"] for one in found),
            ]
            lines.append((row["net"], limit, *("-" if peak is None else f"{peak:.3f}" for peak in peaks)))
    limits = sorted({row["time_limit_s"] for row in result["rows"]})
    searches = " to ".join(dict.fromkeys(f"{limit:.0f}" for limit in (limits[0], limits[-1])))
    table = in_markdown(
        ("net", "more time", "whole step in parts", "MAGIS, released", "`magis`", "`close`"), lines
    )
    return f"{table}\n\n{made_on(result)}; searches of {searches} s of wall time."


def budgets(result: Row) -> str:
    """One step under budgets, by link."""
    links = [link for link, _ in offload_budgets.LINKS]
    lines = []
    for share in offload_budgets.SHARES:
        rows = {row["link"]: row for row in result["rows"] if row["share"] == share}
        one = rows[links[0]]
        budget = f"{one['budget_bytes'] / GIB:.1f}"
        pairs = (
            f"{offload_budgets.added(rows[k], 'offload')}, {offload_budgets.added(rows[k], 'both')}"
            for k in links
        )
        lines.append((budget, offload_budgets.added(one, "recompute"), *pairs))
    heads = ("budget (GiB)", "recompute alone", *(f"{link}: offload alone, both" for link in links))
    return f"{in_markdown(heads, lines)}\n\n{made_on(result)}. {offload_budgets.said(result)}"


def together(result: Row) -> str:
    """Offload beside parts."""
    ways = tuple(offload_coordinated.WAYS)
    lines = [
        (row["spec"].partition("@")[0], *(f"{offload_coordinated.share(row, way):.3f}" for way in ways))
        for row in result["rows"]
        if "failure" not in row
    ]
    return f"{in_markdown(('net', *ways), lines)}\n\n{made_on(result)}. {offload_coordinated.said(result)}"


def passes(result: Row) -> str:
    """Footprints of models before and after passes of a fixed order."""
    lines = [
        (row["case"], *(f"{row[key] / KIB:.1f}" for key in FOOTPRINTS), f"{row['macs']:.2f}")
        for row in result["rows"]
    ]
    table = in_markdown(("model", "file", "best order", "after passes", "multiply-adds"), lines)
    return f"{table}\n\nIn KiB. {made_on(result)}."


def beside_tvm(result: Row) -> str:
    """Footprints that the learned search finds beside those of TVM."""
    lines = [
        (
            row["case"],
            *(f"{row[key] / KIB:.1f}" for key in FOOTPRINTS),
            f"{row['tvm']['storage_bytes'] / KIB:.1f}" if "storage_bytes" in row["tvm"] else "-",
        )
        for row in result["rows"]
        if "failure" not in row
    ]
    table = in_markdown(("model", "file", "best order", "planned", "TVM"), lines)
    return f"{table}\n\nIn KiB. {made_on(result)}. {' '.join(onnx_tvm.verdicts(result['rows']))}"


def beside_runtime(result: Row) -> str:
    """What ONNX Runtime allocates for planned files, measured."""
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            continue
        plan = row["plans"][row["chosen"]]
        sizes = (
            row["original_bytes"]["default"],
            row["best_bytes"],
            row["measured_bytes"],
            plan["predicted_bytes"],
        )
        lines.append((row["case"], *(f"{nbytes / KIB:.1f}" for nbytes in sizes)))
    table = in_markdown(("model", "default", "best setting", "planned", "predicted"), lines)
    return f"{table}\n\nIn KiB. {made_on(result)}. {'; '.join(onnx_runtime.verdicts(result['rows']))}."


TABLES: Final[Mapping[str, Callable[[Row], str]]] = {
    "fission_runs": fission,
    "fission_paper": paper,
    "coordinated": coordinated,
    "magis_zoo": magis,
    "offload_budgets": budgets,
    "offload_coordinated": together,
    "dynamic_shapes": dynamic_shapes.in_markdown,
    "onnx_footprint": passes,
    "onnx_tvm": beside_tvm,
    "onnx_runtime": beside_runtime,
    "onnx_ladder_time": quote_models.seconds_of_checkpointing,
    "onnx_breadth": quote_models.breadth,
    "gpu": check.in_page,
    "fused_steps": fused_steps.in_page,
}
"""By name of the JSON and of the markers in the page: the text of its table."""


def filled(page: str) -> str:
    """The page with all tables as the JSONs have them."""
    for name, text in TABLES.items():
        result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        page = quoted(page, text(result), name)
    return page


def main() -> int:
    """Fill in or check; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    asked = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if asked.check:
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
