"""What each stage of the portfolios earns: `python benchmarks/ablation.py [ROOM ...] --instances FOLDER`.

Rooms: `recompute`, `layout`, `order`, and those with `_settings` after, such as `recompute_settings`; all of them if none
is named. Every case is solved by the whole portfolio, then without each of its stages in turn (of settings: with each number
halved and doubled), under a limit of work and none of time, so that answers are the same on every machine. Cases are the
recorded instances, those of a folder with `remat/` and `minimalloc/` where it is given, and generated ones of fresh seeds.
Prints by stage in how many cases the answer is worse or better without it, by how much at most, how many proofs and budgets
it costs, and what work and CPU time it saves. Rows of a room replace those of an earlier run in
`benchmarks/results/ablation.json`. Each case runs in a process of its own. `--every N` takes each N-th case only.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import ablation_cases
from ablation_cases import STAGES, WHOLE, WORK
from bench_record import RESULTS, recorded, run_part, save, say, table

Row = dict[str, Any]
_RESULT: Final = "ablation"
_CASE_TIMEOUT_S: Final = 3600.0
_SAME: Final = 1e-9  # rounding of sums of seconds


def collect(
    room: str, cases: Sequence[tuple[str, ...]], folder: Path | None, work: int
) -> Iterator[list[Row]]:
    """Cases one after another; the rows so far after each."""
    rows: list[Row] = []
    for case in cases:
        say(f"{room} {' '.join(case)}")
        options = [f"--work={work}", *([] if folder is None else [f"--instances={folder}"])]
        found = run_part("ablation.py", "--one", room, *case, *options, timeout_s=_CASE_TIMEOUT_S)
        rows.append({"room": room, "case": " ".join(case), "work_limit": work} | found)
        yield rows


def show(room: str, rows: Sequence[Row]) -> str:
    """A room as a table, one line a stage, with the cases that failed below it."""
    good = [row for row in rows if "failure" not in row]
    columns = [
        "without",
        "cases",
        "worse",
        "better",
        "most lost",
        "most won",
        "missed",
        "proofs",
        "work",
        "CPU",
    ]
    cells = [[stage, *_cells(stage, good)] for stage in STAGES[room]]
    failed = [f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row]
    return "\n".join([table(columns, cells), *failed])


def _cells(stage: str, rows: Sequence[Row]) -> list[str]:
    pairs = [(row["without"][WHOLE], row["without"][stage]) for row in rows]
    lost = [loss(row["room"], *pair) for row, pair in zip(rows, pairs, strict=True)]
    finite = [value for value in lost if math.isfinite(value)]
    missed = sum(there["missed"] - whole["missed"] for whole, there in pairs)
    proofs = sum(there["proved"] - whole["proved"] for whole, there in pairs)
    shares = [
        sum(there[key] for _, there in pairs) / max(sum(whole[key] for whole, _ in pairs), _SAME)
        for key in ("work", "cpu_seconds")
    ]
    return [
        str(len(pairs)),
        str(sum(value > _SAME for value in lost)),
        str(sum(value < -_SAME for value in lost)),
        f"{max([0.0, *finite]):.3%}",
        f"{max([0.0, *(-value for value in finite)]):.3%}",
        f"{missed:+d}",
        f"{proofs:+d}",
        *(f"{share:.2f}" for share in shares),
    ]


def loss(room: str, whole: Row, there: Row) -> float:
    """How much worse an answer is than that of the whole portfolio; without end where only one of them fits.

    Recomputation: a share of the baseline's seconds, or of the budget where both miss it. Else a share of the bytes.
    """
    if whole["missed"] != there["missed"]:
        return math.inf if there["missed"] else -math.inf
    difference = there["value"] - whole["value"]
    return float(difference if room.startswith("recompute") else difference / max(whole["value"], 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", help=f"of {', '.join(STAGES)}")
    parser.add_argument("--instances", type=Path, help="folder with remat/*.json and minimalloc/*.csv")
    parser.add_argument("--work", type=int, help="units of work of each search (default: by room)")
    parser.add_argument("--seeds", type=int, default=4, help="of generated cases (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=5000, help="of them (default: %(default)s)")
    parser.add_argument("--every", type=int, default=1, help="take each N-th case (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the JSON (default: %(default)s)"
    )
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        room, *case = asked.one
        print(json.dumps(ablation_cases.ablate(room, tuple(case), asked.instances, asked.work)))
        return
    unknown = set(asked.rooms) - STAGES.keys()
    if unknown:
        parser.error(f"there is no room {min(unknown)}; choose from {', '.join(STAGES)}")
    rooms = asked.rooms or list(STAGES)
    rows = _kept(asked.output / f"{_RESULT}.json")
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    for room in rooms:
        work = WORK[room] if asked.work is None else asked.work
        cases = ablation_cases.cases(room, asked.instances, seeds)[:: asked.every]
        for found in collect(room, cases, asked.instances, work):
            rows[room] = found
            together = [row for name in STAGES for row in rows.get(name, [])]
            save(_RESULT, recorded(together, seed=asked.first_seed, repeats=1), asked.output)
        print(f"\n{room}\n{show(room, rows[room])}", flush=True)


def _kept(path: Path) -> dict[str, list[Row]]:
    """By room, the rows of an earlier run."""
    found: dict[str, list[Row]] = {}
    if path.exists():
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            found.setdefault(row["room"], []).append(row)
    return found


if __name__ == "__main__":
    main()
