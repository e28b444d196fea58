"""The scheduler's bars, measured: `python benchmarks/order_bars.py [SECTION ...] [--repeats N] [--time-limit S]`.

Sections: `networks`, `training`, `zoo`, `structure`, `large`, `edits`; all of them if none is named. Prints a table for each
(optimum or best peak, bound, certificate, states, process CPU seconds, beside earlier values) and which bars are met.
With all sections the numbers go to `benchmarks/results/order_bars.json`. Each case runs in a process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import bench_sections
import order_cases
from bench_record import table
from neaptide_corpus.conv_backward import Update
from neaptide_corpus.training_networks import TRAINING_STEPS

Row = dict[str, Any]
MIB: Final = 2**20

_LARGE: Final = ("nasnet_a_large", "pnasnet_5_large", "nasnet_a_large_fused", "pnasnet_5_large_fused")
_NETWORKS: Final = (*(n for n in order_cases.EARLIER_OPTIMA if n not in _LARGE), *_LARGE)
_SIZES: Final = (200, 2000)

CASES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        "networks": tuple(("network", name) for name in _NETWORKS),
        "training": tuple(("training", name, update) for name in TRAINING_STEPS for update in Update),
        "zoo": tuple(("captured", f"{model}@tiny") for model in order_cases.ZOO_MODELS),
        "structure": (
            ("reduced_family", "series-parallel", "3", "1000"),
            ("reduced_family", "series-parallel", "5", "1000"),
            *(("reduced_family", "series-parallel", str(d), str(n)) for n in _SIZES for d in range(2, 9)),
            *(("reduced_family", "pumpkin", str(d), str(n)) for n in _SIZES for d in range(2, 15)),
            *(("hard", kind, str(m)) for kind in ("out-tree", "pumpkin") for m in (1, 2, 3, 4)),
        ),
        "large": (("large", "blocks"), ("large", "wide")),
        "edits": (
            *(("edits", n) for n in _NETWORKS),
            *(("edits", f"{m}@tiny") for m in order_cases.ZOO_MODELS),
        ),
    }
)


def solve(case: Sequence[str], repeats: int, time_limit_s: float) -> Row:
    """One case, here and now."""
    kind, *names = case
    match kind:
        case "network":
            return order_cases.network(names[0], repeats=repeats, time_limit_s=time_limit_s)
        case "training":
            update = Update(names[1])
            return order_cases.training(names[0], update, repeats=repeats, time_limit_s=time_limit_s)
        case "captured":
            return order_cases.captured(names[0], repeats=repeats, time_limit_s=time_limit_s)
        case "reduced_family":
            degree, nodes = int(names[1]), int(names[2])
            return order_cases.reduced_family(
                names[0], degree, nodes, repeats=repeats, time_limit_s=time_limit_s
            )
        case "edits":
            return order_cases.edits(names[0], repeats=repeats, time_limit_s=time_limit_s)
        case "hard":
            return order_cases.hard(names[0], int(names[1]), repeats=repeats, time_limit_s=time_limit_s)
        case _:
            return order_cases.large(names[0], time_limit_s=time_limit_s)


def show(section: str, rows: Sequence[Row]) -> str:
    """A section as a table, with the cases that failed and the bars that were missed below it."""
    columns, cells = _COLUMNS[section]
    good = [row for row in rows if "failure" not in row]
    lines = [table(columns, [cells(row) for row in good])] if good else []
    if section == "structure":
        lines += _growth(good)
    lines += [f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row]
    missed = [f"{row['case']}: {name}" for row in good for name, met in row["met"].items() if not met]
    held = sum(met for row in good for met in row["met"].values())
    lines.append(
        f"bars met: {held} of {held + len(missed)}" + "".join(f"\n  missed: {text}" for text in missed)
    )
    return "\n".join(lines)


def _network_cells(row: Row) -> list[str]:
    earlier = row["earlier_optimum_kib"]
    return [
        *_common_cells(row, order_cases.KIB, 2),
        "-" if earlier is None else str(earlier),
        f"{row['hierarchical_bytes'] / order_cases.KIB:.2f}",
        f"{row['arena_bytes'] / row['peak_bytes'] - 1:.1%}",
    ]


def _training_cells(row: Row) -> list[str]:
    return [*_common_cells(row, MIB, 3), f"{row['hierarchical_bytes'] / MIB:.3f}"]


def _common_cells(row: Row, unit: int, digits: int) -> list[str]:
    names = ("program_order_bytes", "best_list_bytes", "peak_bytes", "order_lower_bound_bytes")
    amounts = [f"{row[name] / unit:.{digits}f}" for name in names]
    return [
        row["case"],
        str(row["ops"]),
        *amounts,
        row["certificate"],
        str(row["states"]),
        f"{row['cpu_seconds']:.2f}",
    ]


def _structure_cells(row: Row) -> list[str]:
    return [
        row["case"],
        str(row["ops"]),
        f"{row['states']:.0f}",
        f"{row['cpu_seconds']:.3f}",
        row["proved"],
        f"{row['gap']:.2%}",
    ]


def _large_cells(row: Row) -> list[str]:
    amounts = [str(row[name]) for name in ("ops", "peak_bytes", "order_lower_bound_bytes")]
    return [row["case"], *amounts, f"{row['gap']:.2%}", str(row["states"]), f"{row['cpu_seconds']:.1f}"]


def _edit_cells(row: Row) -> list[str]:
    counts = [str(row[name]) for name in ("ops", "edits", "same_peak", "same_bound")]
    return [row["case"], *counts, f"{row['cpu_seconds']:.3f}", f"{row['share']:.1%}"]


_COMMON: Final = ["case", "ops", "program", "best list", "peak", "bound", "certificate", "states", "CPU s"]
_COLUMNS: Final[Mapping[str, tuple[list[str], Callable[[Row], list[str]]]]] = MappingProxyType(
    {
        "networks": ([*_COMMON, "earlier", "hierarchical", "arena"], _network_cells),
        "training": ([*_COMMON, "hierarchical"], _training_cells),
        "zoo": (_COMMON, lambda row: _common_cells(row, MIB, 3)),
        "structure": (["case", "ops", "states", "CPU s", "proved", "gap"], _structure_cells),
        "large": (["case", "ops", "peak", "bound", "gap", "states", "CPU s"], _large_cells),
        "edits": (["case", "ops", "edits", "same peak", "same bound", "CPU s", "of full"], _edit_cells),
    }
)


def _growth(rows: Sequence[Row]) -> list[str]:
    """How states grow with the out-degree: the base of the exponential that fits best, by family and size."""
    lines = []
    for family in ("series-parallel", "pumpkin"):
        for nodes in _SIZES:
            points = [
                (row["degree"], math.log2(max(row["states"], 1)))
                for row in rows
                if row["case"].startswith(family) and row["ops"] == nodes
            ]
            if len({degree for degree, _ in points}) < 2:
                continue
            mean_x = sum(x for x, _ in points) / len(points)
            mean_y = sum(y for _, y in points) / len(points)
            spread = sum((x - mean_x) ** 2 for x, _ in points)
            slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
            lines.append(f"{family} n={nodes}: states grow like {2**slope:.2f}^d")
    return lines


if __name__ == "__main__":
    bench_sections.main(__file__, __doc__, CASES, solve, show, time_limit_s=60.0, searches=2)
