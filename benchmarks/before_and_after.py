"""Answers and planning time of two source trees: `python benchmarks/before_and_after.py --before DIR [TABLE ...]`.

Tables: `order`, `layout`, `recompute`; all of them if none is named. DIR is a checkout of an earlier commit. The
problems of the committed tables are written as files once (`before_and_after_cases.py` says which); both trees solve
each of them under the same limit of work and the same seed, so that answers are the same on every machine. Times are
of the processor: both trees run at once, each in a process of its own, and take turns. Prints one table: answers
before and after, whether the one after is equal, better or worse, and the median of the ratios of times; at the end
medians over the cases, by table. Writes `benchmarks/results/before_and_after.json`. `--every N` takes each N-th case.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from bench_record import RESULTS, part_environment, recorded, save, say, table

Row = dict[str, Any]
_HERE: Final = Path(__file__).resolve().parent
_SIDES: Final = ("before", "after")
_SAME: Final = 1e-9  # rounding of sums of seconds
_SHORTEST_S: Final = 1e-3  # of a search whose time is compared: shorter ones say what a clock ticks
_PERCENT: Final = 100.0


class Side:
    """A process that solves with the neaptide of one source tree, as a context manager.

    Args:
        tree: with `src/neaptide`.
    """

    def __init__(self, tree: Path) -> None:
        self._environment = part_environment() | {"PYTHONPATH": str(tree / "src")}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / "before_and_after_solver.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        _open(self._process.stdin).close()
        self._process.wait()
        _open(self._process.stdout).close()

    def ask(self, request: Mapping[str, Any]) -> Row:
        """One line there and back.

        Raises:
            RuntimeError: the process has died; it says why on stderr.
        """
        assert self._process is not None
        stream = _open(self._process.stdin)
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        line = _open(self._process.stdout).readline()
        if not line:
            raise RuntimeError("a side has ended without an answer")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def solve(case: Row, trees: Mapping[str, Path], repeats: int, seed: int) -> Row:
    """A case on both sides in turn, with another one first in each round."""
    runs: dict[str, list[Row]] = {name: [] for name in _SIDES}
    with Side(trees["before"]) as before, Side(trees["after"]) as after:
        sides = dict(zip(_SIDES, (before, after), strict=True))
        for side in sides.values():
            side.ask(case | {"seed": seed})
        for number in range(repeats):
            for name in _SIDES if number % 2 == 0 else reversed(_SIDES):
                runs[name].append(sides[name].ask({"again": True}))
    pairs = list(zip(runs["before"], runs["after"], strict=True))
    kept = {name: found[0] | {"cpu_seconds": _median(found)} for name, found in runs.items()}
    is_the_same = all(run["values"] == runs[name][0]["values"] for name in _SIDES for run in runs[name])
    return {
        **{key: case[key] for key in ("room", "section", "case", "work")},
        **kept,
        "verdict": compare(kept["before"]["values"], kept["after"]["values"]),
        "cpu_ratio": statistics.median(b["cpu_seconds"] / a["cpu_seconds"] for a, b in pairs),
        "is_deterministic": is_the_same,
    }


def _median(runs: Sequence[Row]) -> float:
    return statistics.median(run["cpu_seconds"] for run in runs)


def compare(before: Sequence[float | None], after: Sequence[float | None]) -> str:
    """`equal`, `better`, `worse`, or `mixed` for a curve that is both; None is an answer that was not reached.

    >>> compare([1.0, None], [1.0, 2.0])
    'better'
    """
    pairs = [
        [math.inf if value is None else value for value in pair] for pair in zip(before, after, strict=True)
    ]
    lower = any(new < old * (1 - _SAME) - _SAME for old, new in pairs)
    higher = any(new > old * (1 + _SAME) + _SAME for old, new in pairs)
    if lower and higher:
        return "mixed"
    return "better" if lower else "worse" if higher else "equal"


def show(rows: Sequence[Row]) -> str:
    """All cases, then a line a table, then what failed."""
    good = [row for row in rows if "failure" not in row]
    columns = ["table", "case", "before", "after", "verdict", "proofs", "CPU s", "after", "ratio"]
    cells = [
        [
            row["section"],
            row["case"],
            *(_answer(row["room"], row[name]["values"]) for name in _SIDES),
            row["verdict"],
            "/".join("yes" if row[name]["proved"] else "no" for name in _SIDES),
            *(f"{row[name]['cpu_seconds']:.3f}" for name in _SIDES),
            f"{row['cpu_ratio']:.2f}",
        ]
        for row in good
    ]
    failed = [f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row]
    return "\n".join([table(columns, cells), "", summary(good), *failed])


def _answer(room: str, values: Sequence[float | None]) -> str:
    if room in {"order", "layout"}:
        return str(values[0])
    if room == "curve":
        found = [value for value in values[1:] if value is not None]
        return f"{_PERCENT * statistics.mean(found):.4f} %" if found else "-"
    above, overhead = values
    assert above is not None
    assert overhead is not None
    return f"{_PERCENT * above:.3f} % above" if above else f"{_PERCENT * overhead:.4f} %"


def summary(rows: Sequence[Row]) -> str:
    """A line a table: verdicts, proofs won and lost, and medians and sums of times."""
    lines = []
    for name in [*dict.fromkeys(row["table"] for row in rows), "all"]:
        chosen = [row for row in rows if name in {"all", row["table"]}]
        verdicts = [row["verdict"] for row in chosen]
        ratios = [row["cpu_ratio"] for row in chosen if row["before"]["cpu_seconds"] >= _SHORTEST_S]
        sums = [sum(row[side]["cpu_seconds"] for row in chosen) for side in _SIDES]
        proofs = [sum(row[side]["proved"] for row in chosen) for side in _SIDES]
        lines.append(
            [
                name,
                str(len(chosen)),
                *(str(verdicts.count(verdict)) for verdict in ("better", "equal", "mixed", "worse")),
                f"{proofs[0]} -> {proofs[1]}",
                f"{statistics.median(ratios):.2f}" if ratios else "-",
                f"{sums[0]:.1f} -> {sums[1]:.1f}",
            ]
        )
    columns = [
        "table",
        "cases",
        "better",
        "equal",
        "mixed",
        "worse",
        "proofs",
        "median of ratios",
        "CPU s in all",
    ]
    return table(columns, lines)


def main() -> None:
    from before_and_after_cases import TABLES

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--before", type=Path, required=True, help="checkout of an earlier commit")
    parser.add_argument("--before-commit", default="", help="its name, for the record")
    parser.add_argument("--instances", type=Path, help="folder with remat/, minimalloc/ and magis_zoo/")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of every search (default: %(default)s)")
    parser.add_argument("--every", type=int, default=1, help="take each N-th case (default: %(default)s)")
    parser.add_argument(
        "--only", default="", help="take cases whose name holds this text; nothing is written"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the JSON (default: %(default)s)"
    )
    asked = parser.parse_args()
    unknown = set(asked.tables) - TABLES.keys()
    if unknown:
        parser.error(f"there is no table {min(unknown)}; choose from {', '.join(TABLES)}")
    trees = {"before": asked.before.resolve(), "after": _HERE.parent}
    kept = _kept(asked.output / "before_and_after.json")
    settings = {"before": asked.before_commit, "after": _commit()}
    for name in asked.tables or TABLES:
        rows: list[Row] = []
        with tempfile.TemporaryDirectory() as folder:
            say(f"{name}: writing problems")
            cases = list(TABLES[name](Path(folder), asked.instances))[:: asked.every]
            for case in (case for case in cases if asked.only in case["case"]):
                say(f"{name} {case['case']}")
                row = {"table": name, "repeats": asked.repeats, "every": asked.every}
                rows.append(row | _solved(case, trees, asked.repeats, asked.seed))
                kept[name] = rows
                if not asked.only:
                    together = [row for table_name in TABLES for row in kept.get(table_name, [])]
                    result = recorded(together, seed=asked.seed, repeats=asked.repeats, **settings)
                    save("before_and_after", result, asked.output)
    chosen = [row for name in asked.tables or TABLES for row in kept[name]]
    print(show(chosen))


def _solved(case: Row, trees: Mapping[str, Path], repeats: int, seed: int) -> Row:
    try:
        return solve(case, trees, repeats, seed)
    except (RuntimeError, BrokenPipeError) as error:
        return {**case, "failure": str(error)}


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=_HERE, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _kept(path: Path) -> dict[str, list[Row]]:
    """By table, the rows of an earlier run."""
    found: dict[str, list[Row]] = {}
    if path.exists():
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            found.setdefault(row["table"], []).append(row)
    return found


if __name__ == "__main__":
    main()
