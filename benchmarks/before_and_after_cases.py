"""The cases of `before_and_after.py`: problems of the committed tables, written as files that both sides read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import layout_cases
import order_cases
import recompute_bars
from neaptide import zoo
from neaptide.layout.minimalloc_csv import write_csv
from neaptide.outcome import Limits
from neaptide.schedule.order.neutral import to_json
from neaptide_corpus.conv_backward import Update
from neaptide_corpus.random_orders import repeated_blocks, wide
from neaptide_corpus.recompute_forms import recompute_form
from neaptide_corpus.series_parallel import pumpkin, series_parallel
from neaptide_corpus.three_partition import hard_out_tree, hard_pumpkin, three_partition_numbers
from neaptide_corpus.training_networks import TRAINING_STEPS

Row = dict[str, Any]
WORK: Final[Mapping[str, int]] = MappingProxyType(
    {"order": 20_000, "layout": 20_000, "recompute": 6_000, "curve": 6_000}
)
"""By room, units of work of one search: states, nodes, changes tried."""
_CURVES: Final = ("transformer", "residual", "skips")
_TIMED_NODES: Final = (500, 2000, 10_000)


def order_files(folder: Path, instances: Path | None) -> Iterator[Row]:
    """Networks, generated training steps, the zoo's captured ones, and graphs of one structure.

    Of `order_bars.py` without: most degrees and all but one seed of the structures, its largest graphs (a tenth in
    their place), and edits.
    """
    del instances
    for path in sorted(order_cases.INSTANCES.glob("*.json")):
        if path.stem != "index":
            yield _row("order", "networks", path.stem, path)
    for name in TRAINING_STEPS:
        for update in Update:
            problem = order_cases.problem_of("training", name, update)
            yield _written(folder, "order", "training", f"{name} {update}", to_json(problem))
    for model in order_cases.ZOO_MODELS:
        problem = order_cases.captured_problem(f"{model}@tiny")
        yield _written(folder, "order", "zoo", f"{model}@tiny", to_json(problem))
    forms = {
        **{f"series-parallel d={d} n=1000": series_parallel(1000, d, 0) for d in (2, 4, 8)},
        **{f"pumpkin d={d} n=200": pumpkin(d, 200, 0) for d in (2, 6, 10, 14)},
        **{
            f"hard {kind} d={3 * m}": make(three_partition_numbers(m, 0)).form
            for kind, make in (("out-tree", hard_out_tree), ("pumpkin", hard_pumpkin))
            for m in (2, 3)
        },
        "blocks n=10000": repeated_blocks(10_000, 0),
        "wide n=300": wide(300, 0),
    }
    for name, form in forms.items():
        yield _written(folder, "order", "structure", name, json.dumps(form))


def layout_files(folder: Path, instances: Path | None) -> Iterator[Row]:
    """MiniMalloc's hard instances, networks, captured steps, recorded training graphs, generated buffers.

    Of `layout_bars.py` without the zoo's larger sizes and the rules.
    """
    if instances is not None:
        for path in sorted((instances / "minimalloc").glob("*.csv")):
            yield _row("layout", "challenging", path.stem, path)
    made: dict[str, Callable[[], Any]] = {}
    for path in sorted(order_cases.INSTANCES.glob("*.json")):
        if path.stem != "index":
            made[path.stem] = lambda n=path.stem: layout_cases.network_problem(n, Limits(work=WORK["order"]))
    for model in zoo.names():
        for mode in ("training", "inference"):
            made[f"{model}@tiny {mode}"] = lambda m=model, k=mode: layout_cases.captured_problem(
                f"{m}@tiny", k
            )
    if instances is not None:
        for path in sorted((instances / "magis_zoo").glob("*.json")):
            made[f"{path.stem} recorded"] = lambda p=path: layout_cases.recorded_problem(p)
    for name, make in made.items():
        yield _written(folder, "layout", "networks", name, write_csv(make()), ".csv")
    for family in ("training_shaped", "pipelined"):
        content = write_csv(layout_cases.large_problem(family))
        yield _written(folder, "layout", "large", family, content, ".csv")


def recompute_files(folder: Path, instances: Path | None) -> Iterator[Row]:
    """Every budget of `recompute_bars.py`, but for those of PyTorch's partitioner; curves of 500 operations only."""
    written: dict[str, Path] = {}

    def generated(family: str, nodes: int, seed: int) -> Path:
        name = f"{family} {nodes} {seed}"
        if name not in written:
            path = folder / f"recompute {name}.json"
            path.write_text(json.dumps(recompute_form(family, nodes, seed)), encoding="utf-8")
            written[name] = path
        return written[name]

    for section in ("table", "between", "small"):
        for kind, *rest in recompute_bars.CASES[section]:
            if kind == "generated":
                family, nodes, seed, share = rest
                path = generated(family, int(nodes), int(seed))
            elif instances is None:
                continue
            else:
                share = rest[1]
                path = instances / "remat" / f"{rest[0]}.json"
            yield _row("recompute", section, " ".join(rest), path) | {"share": share}
    for family in _CURVES:
        for nodes in _TIMED_NODES:
            path = generated(family, nodes, 0)
            yield _row("recompute", "time", f"{family} {nodes} 0.5", path) | {"share": "0.5"}
        path = generated(family, _TIMED_NODES[0], 0)
        yield _row("curve", "curve", f"{family} {_TIMED_NODES[0]}", path)


def _written(folder: Path, room: str, section: str, case: str, content: str, suffix: str = ".json") -> Row:
    path = folder / f"{room} {section} {case}{suffix}"
    path.write_text(content, encoding="utf-8")
    return _row(room, section, case, path)


def _row(room: str, section: str, case: str, path: Path) -> Row:
    return {"room": room, "section": section, "case": case, "file": str(path), "work": WORK[room]}


TABLES: Final[Mapping[str, Callable[[Path, Path | None], Iterator[Row]]]] = MappingProxyType(
    {"order": order_files, "layout": layout_files, "recompute": recompute_files}
)
