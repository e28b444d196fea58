"""What is known of passes before a graph is seen: a table and linear predictions, as JSON in the package.

For each pass there are two numbers, both changes of the logarithm of the footprint: the direct gain of the pass, and the gain
that is still reachable after it. The table has their averages over the training set. Where the features of a graph lie within
those of the training set, a linear (ridge) prediction takes the place of the averages. `benchmarks/train_passes.py` fits both.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from neaptide.planner.passes.features import NAMES
from neaptide.planner.passes.space import Facts

_Floats: TypeAlias = npt.NDArray[np.float64]

FILE: Final = "prior.json"
FORMAT: Final = "neaptide.pass_prior/1"
_SHARED: Final = ("peaks_touched", "rest_without_all")  # of other passes, that a prediction sees


class Linear(msgspec.Struct, frozen=True):
    """A number predicted from standardised features.

    Attributes:
        mean: over the training set: the prediction where features have no support.
        weights: by feature, 0 for those that do not vary.
    """

    mean: float
    weights: tuple[float, ...]


class PassRow(msgspec.Struct, frozen=True):
    """One pass: how features were standardised, within which ends they lay, and the two predictions."""

    count: int
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    direct: Linear
    reach: Linear


class PriorFile(msgspec.Struct, frozen=True):
    """The file. `features` and `passes` name the columns of every row: see `columns`."""

    format: str
    features: tuple[str, ...]
    passes: tuple[str, ...]
    rows: Mapping[str, PassRow]
    unknown_direct: float
    unknown_reach: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Changes of the logarithm of the footprint: at once, and by what follows. Below zero is a gain."""

    direct: float
    reach: float


def columns(name: str, facts: Mapping[str, Facts], passes: tuple[str, ...]) -> _Floats:
    """What a prediction of a pass is made from: its features, then of each pass of the table whether it finds a place too, and a
    few of its features there.
    """
    shared = [NAMES.index(feature) for feature in _SHARED]
    others: list[float] = []
    for other in passes:
        seen = facts.get(other)
        others += (0.0,) * (1 + len(shared)) if seen is None else (1.0, *(seen[i] for i in shared))
    return np.array((*facts[name], *others))


class Prior:
    """Predictions before anything is measured on a graph."""

    def __init__(self, file: PriorFile) -> None:
        self.file = file

    def predict(self, name: str, facts: Mapping[str, Facts]) -> Predicted:
        """Of a pass that finds a place in a state with such facts. O(features)."""
        row = self.file.rows.get(name)
        if row is None:
            # It is measured soon, and what the graph shows corrects the guess: expected to be poor, it would never be.
            best = (known.direct.mean for known in self.file.rows.values())
            return Predicted(min((self.file.unknown_direct, *best)), self.file.unknown_reach)
        there = columns(name, facts, self.file.passes)
        low, high = np.array(row.low), np.array(row.high)
        within = np.clip(there, low, high)
        outside = float((np.abs(there - within) / np.array(row.scale)).sum())
        standard = (within - np.array(row.centre)) / np.array(row.scale)
        support = 1.0 / (1.0 + outside)

        def of(linear: Linear) -> float:
            return linear.mean + support * float(standard @ np.array(linear.weights))

        return Predicted(of(row.direct), min(of(row.reach), 0.0))


@cache
def built_in_prior() -> Prior:
    """The prior of the package."""
    text = importlib.resources.files(__package__).joinpath(FILE).read_bytes()
    file = msgspec.json.decode(text, type=PriorFile)
    assert file.format == FORMAT, file.format
    assert file.features == NAMES
    return Prior(file)
