"""Fits what neaptide knows of passes before it sees a graph, and writes it into the package.

    python benchmarks/train_passes.py              # all seven families, `src/neaptide/planner/passes/prior.json`
    python benchmarks/train_passes.py --collect unet dense    # only measures, for use in several processes

It reads no network and draws nothing but the generated graphs, so that the file is the same wherever it is made.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from math import log
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from bench_record import say
from neaptide.planner.passes.features import NAMES
from neaptide.planner.passes.prior import FORMAT, Linear, PassRow, PriorFile, columns
from neaptide_corpus.onnx_families import FAMILIES, SEEDS
from pass_records import DEPTH, FOLDER, SISTERS, Record, records, split

_Floats: TypeAlias = npt.NDArray[np.float64]

FILE: Final = Path(__file__).parent.parent / "src/neaptide/planner/passes/prior.json"
PENALTY: Final = 100.0  # of squared weights, in rows
LEAST_ROWS: Final = 20  # of a pass, below which it has its averages alone
_DIGITS: Final = 5
_WITHOUT: Final = (
    NAMES.index("steps"),
)  # how deep a state lies says how far the record goes on, and no more


class Rows(NamedTuple):
    """The training set of one pass: a row for each state in which it finds a place."""

    x: _Floats
    direct: _Floats
    reach: _Floats
    reaches: npt.NDArray[np.bool_]  # rows whose record goes on after them
    weight: _Floats  # each graph weighs as much as another


def rows_of(name: str, found: Iterable[Record], passes: tuple[str, ...]) -> Rows | None:
    """What the records show of a pass; None where it finds no place in any."""
    rows = []
    for record in found:
        of_record = list(_of_record(name, record, passes))
        rows += [(*row, 1.0 / len(of_record) ** 0.5) for row in of_record]
    if not rows:
        return None
    x, direct, reach, reaches, weight = zip(*rows, strict=True)
    return Rows(np.array(x), np.array(direct), np.array(reach), np.array(reaches), np.array(weight))


def _of_record(
    name: str, record: Record, passes: tuple[str, ...]
) -> Iterable[tuple[_Floats, float, float, bool]]:
    for state in record.states:
        if name not in state.tried:
            continue
        there = state.tried[name]
        x = columns(name, state.facts, passes)
        x[list(_WITHOUT)] = 0.0
        left = DEPTH - state.depth - 1
        if there < 0:
            yield x, 0.0, 0.0, left > 0
            continue
        after = record.states[there]
        lowest = record.lowest[there][left]
        was_expanded = len(after.tried) == len(after.facts)
        yield x, log(after.nbytes / state.nbytes), log(lowest / after.nbytes), left > 0 and was_expanded


def fitted(found: Sequence[Record], penalty: float = PENALTY) -> PriorFile:
    """The prior that some records teach."""
    passes = tuple(dict.fromkeys(name for record in found for name in record.passes))
    rows: dict[str, PassRow] = {}
    for name in passes:
        of_pass = rows_of(name, found, passes)
        if of_pass is not None:
            rows[name] = _fitted(of_pass, penalty)
    for name, sister in SISTERS.items():
        if sister in rows:
            rows[name] = rows[sister]
    means = [(row.direct.mean, row.reach.mean) for row in rows.values()]
    direct, reach = np.mean(means, axis=0) if means else (0.0, 0.0)
    return PriorFile(FORMAT, NAMES, passes, rows, _rounded(direct), _rounded(reach))


def _fitted(rows: Rows, penalty: float) -> PassRow:
    weight = rows.weight / rows.weight.mean()
    centre = np.average(rows.x, axis=0, weights=weight)
    scale = np.sqrt(np.average((rows.x - centre) ** 2, axis=0, weights=weight))
    varies = scale > 1e-9
    scale = np.where(varies, scale, 1.0)
    standard = (rows.x - centre) / scale
    few = len(rows.x) < LEAST_ROWS

    def linear(y: _Floats, some: npt.NDArray[np.bool_]) -> Linear:
        if not some.any():
            return Linear(0.0, (0.0,) * len(scale))
        w = weight[some]
        mean = float(np.average(y[some], weights=w))
        if few:
            return Linear(_rounded(mean), (0.0,) * len(scale))
        x = standard[some]
        gram = (x * w[:, None]).T @ x + penalty * np.eye(x.shape[1])
        solution = np.linalg.solve(gram, (x * w[:, None]).T @ (y[some] - mean))
        return Linear(_rounded(mean), tuple(map(_rounded, np.where(varies, solution, 0.0))))

    every = np.ones(len(rows.x), bool)
    ends = np.quantile(rows.x, (0.0, 1.0), axis=0)
    return PassRow(
        len(rows.x),
        *(tuple(map(_rounded, some)) for some in (centre, scale, *ends)),
        direct=linear(rows.direct, every),
        reach=linear(rows.reach, rows.reaches),
    )


def _rounded(number: float) -> float:
    return round(float(number), _DIGITS)


def main() -> None:
    """Collect what is missing, fit, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--collect", action="store_true", help="measure only")
    parser.add_argument("--present", action="store_true", help="only records that are there")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="graphs of each family")
    parser.add_argument("--records", type=Path, default=FOLDER)
    parser.add_argument("-o", "--output", type=Path, default=FILE)
    asked = parser.parse_args()
    found = records(asked.families, range(asked.seeds), asked.records, is_present=asked.present)
    if not asked.collect:
        training = split(found)["training"]
        asked.output.write_bytes(msgspec.json.encode(fitted(training)) + b"\n")
        say(f"{asked.output}: from {len(training)} graphs, {sum(len(r.states) for r in training)} states")


if __name__ == "__main__":
    main()
