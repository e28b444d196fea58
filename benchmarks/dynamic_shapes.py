"""Fine-tuning with batches of all lengths: `python benchmarks/dynamic_shapes.py [--samples 7 8 9] [--batches 500] [--keep]`.

A small Llama of four layers, with batches of a fixed number of random samples, whose lengths are those of
`neaptide_corpus.text_lengths`, four times shorter. In the form of the table of BladeDISC++ (arXiv 2412.16985, Table 1):

* no plan: eager, each batch padded to its longest sample;
* padded: each batch padded to a power of two, the last bucket the longest sample there is, and a plan for each bucket;
* points: one program for the whole range that decides at each call what is evicted, each batch padded to its longest sample;
* plans by shape: a few plans for the whole range, of which a call runs the fastest that fits at its shape.

Of the three numbers of samples eager fits the first only: what the device has is a twentieth more than eager's highest
peak there, as 40 GB are to 38.2. Plans may use what BladeDISC++ used, as a share of eager's peak with the first number.

Programs take turns, batch by batch, in one process. Real tokens by second count time for captures and plans; tokens of
padding do not count. Peaks are predicted for all batches, and measured for the longest and for some others: a prediction is
exact where both are the same to the byte. "Above the exact plan" is by how much the peak of a batch is above that of a plan
made for its shape alone with the same bytes, for some shapes. Times and peaks are two parts of each number of samples, with a
process of its own for each; every part is kept in `results/parts/` as soon as it is there, and `--keep` takes it from there:
peaks may be made beside other work, and times afterwards where it is quiet. The result is `results/dynamic_shapes.json`; `quote_results.py`
puts its table into `docs/reference/results.md`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench_record import MIB, RESULTS, markdown, recorded, run_part, save, say, table
from dynamic_shapes_cases import ALLOWED, BY_SHAPE, MODEL, POINTS, SEED, TIME_LIMIT_S, peaks, timed

SAMPLES: Final = (7, 8, 9)
PARTS: Final = {"peaks": peaks, "timed": timed}
PART_S: Final = 3600.0
COLUMNS: Final = (
    "samples",
    "program",
    "tokens / s",
    "once planned",
    "peak (MiB)",
    "of the device",
    "padding",
    "plans",
    "capture and plan (s)",
    "exact",
)

Row = dict[str, Any]


def lines(result: Row) -> list[tuple[str, ...]]:
    """The table."""
    found = []
    for row in result["rows"]:
        for name in ("no plan", "padded", POINTS, BY_SHAPE):
            program = next((p for p in row["programs"] if p["program"] == name), None)
            if program is None:
                peak = row["unplanned_peak_bytes"]
                cells = (
                    "-",
                    "-",
                    f"{peak / MIB:.1f}",
                    f"{peak / row['device_bytes']:.3f}: too much",
                    "-",
                    "-",
                    "-",
                    "-",
                )
            else:
                exact = program["exact"]
                cells = (
                    f"{program['tokens_per_s']:.0f}",
                    f"{program['tokens_per_s_running']:.0f}",
                    f"{program['peak_bytes'] / MIB:.1f}",
                    f"{program['peak_bytes'] / row['device_bytes']:.3f}",
                    f"{program['padding']:.0%}",
                    str(program["plans"] or "-"),
                    f"{program['compile_s']:.0f}" if program["compile_s"] else "-",
                    f"{exact['same']} of {exact['of']}" if exact else "-",
                )
            found.append((str(row["samples"]), name, *cells))
    return found


def in_markdown(result: Row) -> str:
    """The table of the page."""
    text = markdown(COLUMNS, lines(result))
    above = [
        one["peak_bytes"] / one["exact_peak_bytes"] - 1
        for row in result["rows"]
        for one in row["above_exact"]
    ]
    text += [
        "",
        f"Peaks beside plans made for one shape each, for {len(above)} shapes: {min(above):+.1%} to {max(above):+.1%}.",
        f"{result['rows'][0]['batches']} batches of each kind; made {result['made'][:10]}, one thread.",
    ]
    return "\n".join(text)


def part(name: str, samples: int, share: float, first: int, batches: int, folder: Path, *, keep: bool) -> Row:
    """One part in a process of its own, or as an earlier run has kept it."""
    kept = folder / f"dynamic_shapes-{name}-{samples}-{batches}.json"
    if keep and kept.exists():
        found: Row = json.loads(kept.read_text(encoding="utf-8"))
        return found
    say(f"{name}: {samples} samples")
    began = time.monotonic()
    asked = ("--one", name, str(samples), str(share), str(first))
    row = run_part("dynamic_shapes.py", "--batches", str(batches), *asked, timeout_s=PART_S)
    if failure := row.get("failure"):
        raise SystemExit(failure)
    row["seconds"] = round(time.monotonic() - began, 1)
    say(f"  {row['seconds']:.0f} s")
    save(kept.stem, row, folder)
    return row


def joined(found: Mapping[str, Row]) -> Row:
    """The parts of one number of samples as one row."""
    exact = found["peaks"]["exact"]
    programs = [program | {"exact": exact.get(program["program"])} for program in found["timed"]["programs"]]
    return found["peaks"] | found["timed"] | {"programs": programs}


def main() -> None:
    """All numbers of samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", nargs=3, type=int, default=list(SAMPLES))
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="make these only")
    parser.add_argument("--keep", action="store_true", help="take parts that an earlier run has kept")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument(
        "--one", nargs=4, metavar=("PART", "SAMPLES", "SHARE", "FIRST"), help=argparse.SUPPRESS
    )
    asked = parser.parse_args()
    if asked.one:
        name, samples, share, first_peak = asked.one
        print(json.dumps(PARTS[name](int(samples), float(share), asked.batches, int(first_peak))))
        return
    rows: list[Row] = []
    first = 0
    for samples, share in zip(asked.samples, ALLOWED, strict=True):
        found = {}
        for name in asked.parts:
            found[name] = part(
                name, samples, share, first, asked.batches, asked.output / "parts", keep=asked.keep
            )
            first = first or found[name]["first_peak_bytes"]
        if set(found) == set(PARTS):
            rows.append(joined(found))
    if not rows:
        say("the other parts are still to be made: --keep takes those that are there")
        return
    result = recorded(rows, seed=SEED, repeats=1, model=MODEL, time_limit_s=TIME_LIMIT_S)
    save("dynamic_shapes", result, asked.output)
    print(table(COLUMNS, lines(result)))


if __name__ == "__main__":
    main()
