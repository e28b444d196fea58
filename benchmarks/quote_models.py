"""Tables of records about model files, for `quote_results.py`."""

from __future__ import annotations

from typing import Any

from onnx_breadth import is_right
from onnx_files_of_corpus import KIB
from quoting import in_markdown, made_on

Row = dict[str, Any]


def c_programs(result: Row) -> str:
    """Arenas of C programs, in file order and as planned, and the bars."""
    lines, bars = [], []
    for row in result["rows"]:
        if "file" in row:
            same = all(row[kind]["arena_bytes"] == row[kind]["bss_bytes"] for kind in ("file", "planned"))
            sizes = (f"{row[kind]['arena_bytes'] / KIB:.1f}" for kind in ("file", "planned"))
            error = max(row[kind]["error"] for kind in ("file", "planned"))
            lines.append((row["case"], *sizes, f"{error:.0e}", "yes" if same else "no"))
        elif "most_bytes" in row:
            sizes = (f"{row['counted_bytes'] / KIB:.1f}", f"{row['most_bytes'] / KIB:.0f}")
            bars.append((row["case"], *sizes, f"{row['work']:.2f}", "yes" if row["is_met"] else "no"))
    models = in_markdown(("model", "file order", "planned", "error", "`.bss` is the arena"), lines)
    asked = in_markdown(("passes by hand", "arena and variables", "at most", "multiply-adds", "met"), bars)
    return f"{models}\n\n{asked}\n\nIn KiB. {made_on(result)}."


def orders_of_passes(result: Row) -> str:
    """What searches for passes find, over exhaustive search to depth 3."""
    graphs, families = (
        [row for row in result["rows"] if row["question"] == question]
        for question in ("held-out graphs", "held-out families")
    )
    lines = [
        (
            one["strategy"],
            "all" if one["measurements"] is None else str(one["measurements"]),
            f"{one['ratio']:.3f}",
            f"{other['ratio']:.3f}",
            str(one["above_greedy"] + other["above_greedy"]),
        )
        for one, other in zip(graphs, families, strict=True)
    ]
    settings = result["settings"]
    table = in_markdown(
        (
            "strategy",
            "measurements",
            f"held-out graphs ({graphs[0]['graphs']})",
            f"held-out families ({families[0]['graphs']} graphs)",
            "above greedy",
        ),
        lines,
    )
    return (
        f"{table}\n\nOf {settings['graphs']} graphs. The learned order takes {settings['share_of_depth_4']:.1%} of the "
        f"measurements of exhaustive search to depth 4, or less, on one held-out graph of each family. {made_on(result)}."
    )


def breadth(result: Row) -> str:
    """How many models are planned, written, checked and run, by the passes that were asked for, and which are not right."""
    rows = result["rows"]
    said = []
    for passes in dict.fromkeys(row["asked"] for row in rows):
        own = [row for row in rows if row["asked"] == passes]
        wrong = [row["case"] for row in own if not is_right(row)]
        said.append(f"With `--passes {passes}` {len(own) - len(wrong)} of {len(own)} models are right.")
        said += [f"Not right: {', '.join(wrong)}."] if wrong else []
    packed = [row["case"] for row in rows if not row.get("equal_with_packed_weights", True)]
    quantised = [name for name in packed if name.endswith("_int8")]
    said += [f"With packed weights {', '.join(quantised)} would differ."] if quantised else []
    return f"{' '.join(said)} {made_on(result)}."


def seconds_of_checkpointing(result: Row) -> str:
    """Seconds and measured bytes of steps with sqrt(n) checkpointing, the deepest of each family."""
    deepest = {row["family"]: row for row in result["rows"]}
    lines = [
        (
            row["family"],
            str(row["depth"]),
            f"{row['plain_measured_bytes'] / KIB:.0f}",
            f"{row['sqrt_measured_bytes'] / KIB:.0f}",
            f"{row['work_ratio']:.2f}",
            f"{row['time_ratio']:.2f} ({row['time_ratio_interval'][0]:.2f} to {row['time_ratio_interval'][1]:.2f})",
        )
        for row in deepest.values()
    ]
    table = in_markdown(("step", "depth", "plain", "sqrt(n)", "work", "seconds"), lines)
    return f"{table}\n\nMeasured in KiB; work and seconds over those of the plain step. {made_on(result)}."
