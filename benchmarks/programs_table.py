"""What runs is what you wrote: `python benchmarks/programs_table.py [--family dense] [--only lstm] [--jobs 2] [--keep]`.

Every training step of `tests/programs` is checked as `tests/programs/check.py` says: planned for 75 % of its peak and
for the lowest, run on fresh objects, bytes and bits compared with what was predicted and with eager. It ends as exact,
as a reasoned floor, or refused with line, reason and fix; all else is a fault. Programs run a few to a process, so that
one that takes its process down takes no other with it. Each is kept in `parts` beside the result as soon as it is
checked, and `--keep` takes it from there.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import sysconfig
import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench_record import RESULTS, part_environment, recorded, save, say, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from programs.catalogue import FAMILIES, family, one

SEED = 0
ANSWERS = ("exact", "floor", "refused")
FAULTS = ("different", "inexact", "unexplained", "crash", "unsteady")
MOST_REFUSED = 0.06
LEAST_PROGRAMS = 250
PER_PROCESS = 8  # importing torch takes as long as checking one
PROGRAM_S = 300.0  # no program takes a tenth of it on a quiet core

Place = tuple[str, str]


def work(places: Sequence[str]) -> None:
    """Check programs in this process, a line of JSON for each."""
    import torch

    from programs.check import check

    torch.set_num_threads(1)
    gc.freeze()  # what was imported need not be looked through after each program
    for place in places:
        module, _, name = place.partition(":")
        found = check(one(module, name))
        print(without_folders(json.dumps(found.as_record() | {"family": module})), flush=True)


def without_folders(text: str) -> str:
    """Paths as they are in a checkout and in an environment, wherever those are."""
    for folder in (Path(__file__).resolve().parents[1], sysconfig.get_path("purelib")):
        text = text.replace(f"{folder}/", "")
    return text


def run_chunk(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Check programs in processes of their own; one that dies or hangs is a crash of the program that it was at."""
    waiting = deque(places)
    rows = []
    while waiting:
        command = [sys.executable, __file__, "--work", *(f"{module}:{name}" for module, name in waiting)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=part_environment()
        )
        complaints: deque[str] = deque(maxlen=3)
        listener = threading.Thread(target=complaints.extend, args=(process.stderr,), daemon=True)
        listener.start()
        assert process.stdout is not None
        while True:
            clock = threading.Timer(PROGRAM_S, process.kill)
            clock.start()
            line = process.stdout.readline()
            clock.cancel()
            if not line:
                break
            if line.startswith("{"):
                rows.append(json.loads(line))
                waiting.popleft()
        process.wait()
        listener.join()
        if waiting:
            module, name = waiting.popleft()
            told = f"its process ended with {process.returncode}: {' / '.join(complaints)}"
            rows.append({"family": module, "name": name, "outcome": "crash", "told": told, "seconds": 0.0})
    return rows


def collect(places: Sequence[Place], jobs: int, parts: Path, *, keep: bool) -> list[dict[str, Any]]:
    """All rows, in the order of the catalogue."""
    parts.parent.mkdir(parents=True, exist_ok=True)
    known = _kept(parts) if keep else {}
    left = [place for place in places if place not in known]
    chunks = [left[start : start + PER_PROCESS] for start in range(0, len(left), PER_PROCESS)]
    with parts.open("a" if keep else "w", encoding="utf-8") as file, ThreadPoolExecutor(jobs) as pool:
        for rows in pool.map(run_chunk, chunks):
            for row in rows:
                known[row["family"], row["name"]] = row
                file.write(json.dumps(row) + "\n")
            file.flush()
            say(f"{len(known)} of {len(places)}: {', '.join(_faults(rows)) or 'no faults'}")
    return [known[place] for place in places]


def _kept(parts: Path) -> dict[Place, dict[str, Any]]:
    if not parts.exists():
        return {}
    rows = [json.loads(line) for line in parts.read_text(encoding="utf-8").splitlines()]
    return {(row["family"], row["name"]): row for row in rows}


def _faults(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{row['name']} {row['outcome']}" for row in rows if row["outcome"] not in ANSWERS]


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The table by family, and each program that is not exact."""
    columns = ("family", "programs", *ANSWERS, *FAULTS)
    lines = []
    for module in (*FAMILIES, "all"):
        counts = Counter(row["outcome"] for row in rows if module in {row["family"], "all"})
        if counts:
            title = module if module == "all" else family(module).name
            lines.append([title, *map(str, (counts.total(), *(counts[o] for o in (*ANSWERS, *FAULTS))))])
    parts = [table(columns, lines), ""]
    for outcome in (*FAULTS, "refused", "floor"):
        for row in rows:
            if row["outcome"] == outcome:
                told = " | ".join(line.strip() for line in row["told"].splitlines())
                parts.append(f"{outcome}: {row['family']}/{row['name']}: {told}")
    return "\n".join(parts)


def bars(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """Each bar: what it is, what was found, whether it is met."""
    counts = Counter(row["outcome"] for row in rows)
    faults = sum(counts[outcome] for outcome in FAULTS)
    refused = counts["refused"] / max(len(rows), 1)
    return [
        (f"at least {LEAST_PROGRAMS} programs", str(len(rows)), len(rows) >= LEAST_PROGRAMS),
        ("silent differences, crashes and other faults: none", str(faults), not faults),
        (f"refused: at most {MOST_REFUSED:.0%}", f"{refused:.1%}", refused <= MOST_REFUSED),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--family", nargs="*", default=list(FAMILIES), choices=FAMILIES, help="modules of tests/programs"
    )
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="programs with this in their name or tags"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--keep", action="store_true", help="take programs that an earlier run has checked")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--work", nargs="+", metavar="FAMILY:NAME", help="check these here and print JSON")
    asked = parser.parse_args()
    if asked.work:
        work(asked.work)
        return 0
    places = [
        (module, program.name)
        for module in asked.family
        for program in family(module)
        if asked.only in program.name or asked.only in program.tags
    ]
    rows = collect(places, asked.jobs, asked.output / "parts" / "programs_table.jsonl", keep=asked.keep)
    print(text(rows))
    found = bars(rows)
    print(table(("bar", "found", "met"), [[name, what, "yes" if met else "NO"] for name, what, met in found]))
    if not asked.only and set(asked.family) == set(FAMILIES):
        save("programs_table", recorded(rows, seed=SEED, repeats=1, jobs=asked.jobs), asked.output)
    return int(not all(met for *_, met in found))


if __name__ == "__main__":
    sys.exit(main())
