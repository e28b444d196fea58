"""What the benchmarks of model files share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from bench_record import RESULTS, recorded, save
from neaptide.cost.cache import cache_dir
from neaptide_corpus.onnx_models import catalogue

KIB: Final = 1024
LIMITS: Final = MappingProxyType({"work_limit": 20, "time_limit_s": 120})
"""Of plans whose footprints are recorded: by measurements, so that they are the same on a busy machine."""
FOLDER: Final = cache_dir() / "onnx_models"


def named(names: Sequence[str], among: Sequence[str] = catalogue.NAMES) -> list[str]:
    """Models by name or a part of their names, in the corpus's order; all where none is asked for."""
    exact = set(names) & set(among)
    return [
        name
        for name in among
        if not names or name in exact or any(n in name for n in names if n not in exact)
    ]


def file_of(name: str) -> Path:
    """The file of a model, written the first time."""
    return catalogue.path(name, FOLDER)


def keep(result: str, rows: Sequence[Mapping[str, Any]], passes: str) -> Path:
    """Write rows of models into a result; those of other models stay as they are there."""
    return keep_rows(result, rows, catalogue.NAMES, {"passes": passes})


def keep_rows(
    result: str, rows: Sequence[Mapping[str, Any]], order: Sequence[str], settings: Mapping[str, Any]
) -> Path:
    """Write rows into a result, in an order of cases; those of other cases stay as they are there."""
    path = RESULTS / f"{result}.json"
    there = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    found = {row["case"]: row for row in (*there, *rows)}
    ordered = [found[name] for name in order if name in found]
    return save(result, recorded(ordered, seed=0, repeats=1, **settings))


def geometric_mean(ratios: Sequence[float]) -> float:
    """Not a number for no ratios."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
