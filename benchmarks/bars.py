"""The bars of this project, measured: `python benchmarks/bars.py [--quick]`.

Runs the benchmarks beside it, prints one table (bar, target, measured, met) and writes `bars.json` and the result
of each benchmark. Everything takes about an hour on one core; `--quick` takes a few small models and minutes, and
writes into a folder of its own. The exit code is 0 whether or not the bars are met.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import baseline_cost
import first_touch
import paper_planning
import zoo_exactness
from bench_record import GIB, RESULTS, recorded, save, say
from neaptide import zoo

ALLOCATOR_TOLERANCE: Final = 0.01
NUMBERS_TOLERANCE: Final = 1e-5  # where a library takes another branch when it is traced
COST_RATIO: Final = 1.05
FIRST_PLAN_S: Final = 30.0
IMPORT_S: Final = 0.1
HELP_S: Final = 0.2
PROCESS_BYTES: Final = 4 * GIB
QUICK_MODELS: Final = ["mlp", "resnet50", "gpt2"]
SHOWN: Final = 4  # of the cases that miss a bar

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the summary.

    Attributes:
        name: what is held.
        target: the bound, in words.
        measured: what was found, in words.
        met: whether every case that was run holds it; a case that failed does not.
    """

    name: str
    target: str
    measured: str
    met: bool


def exactness_bars(rows: Rows) -> list[Bar]:
    """Peaks, allocator and numbers of `zoo_exactness`."""
    cases = [
        (f"{row['spec']} {name}", program)
        for row in rows
        if "failure" not in row
        for name, program in row["programs"].items()
    ]
    failed = [row["spec"] for row in rows if "failure" in row]
    exact = [name for name, program in cases if not program["is_exact"]]
    furthest = max((abs(program["allocator_difference"]) for _, program in cases), default=0.0)
    differing = {n: max(p["max_abs_diff"].values()) for n, p in cases if not p["bitwise_equal"]}
    models = sorted({name.partition("@")[0] for name in differing})
    numbers = f"{len(cases) - len(differing)} of {len(cases)} bitwise"
    if differing:
        numbers += f"; {', '.join(models)} within {max(differing.values()):.1e}"
    return [
        Bar(
            "predicted peak = measured peak, baseline and plan",
            "all, to the byte",
            _counted(len(cases), exact, failed),
            not exact and not failed,
        ),
        Bar(
            "allocator's peak against its prediction",
            f"within {ALLOCATOR_TOLERANCE:.0%}",
            f"at most {furthest:.3%} off" + _failures(failed),
            furthest <= ALLOCATOR_TOLERANCE and not failed,
        ),
        Bar(
            "numbers of eager after 3 steps",
            f"bitwise; another library branch: under {NUMBERS_TOLERANCE:.0e}",
            numbers + _failures(failed),
            all(d < NUMBERS_TOLERANCE for d in differing.values()) and not failed,
        ),
    ]


def cost_bars(rows: Rows) -> list[Bar]:
    """Time and peak of `baseline_cost`."""
    measured = [row for row in rows if "failure" not in row]
    failed = [row["spec"] for row in rows if "failure" in row]
    slow = [row["spec"] for row in measured if row["cpu_ratio"] > COST_RATIO]
    worst = max(measured, key=lambda row: row["cpu_ratio"], default=None)
    found = "nothing was measured"
    if worst is not None:
        interval = f"{worst['cpu_ratio_low']:.3f} to {worst['cpu_ratio_high']:.3f}"
        found = f"at most {worst['cpu_ratio']:.3f} ({interval}; {worst['spec']}), {worst['pairs']} pairs"
    above = [row["spec"] for row in measured if row["baseline_peak_bytes"] > row["eager_peak_bytes"]]
    return [
        Bar(
            "CPU time of the baseline program over eager's",
            f"at most {COST_RATIO}",
            found + (f"; above: {_some(slow)}" if slow else "") + _failures(failed),
            bool(measured) and not slow and not failed,
        ),
        Bar(
            "peak of the baseline program",
            "at most eager's",
            _counted(len(measured), above, failed),
            bool(measured) and not above and not failed,
        ),
    ]


def touch_bars(rows: Rows) -> list[Bar]:
    """Waiting times of `first_touch`."""
    bounds = {"import neaptide": IMPORT_S, "neaptide --help": HELP_S}
    bars = []
    for row in rows:
        if row["name"] == "bare interpreter":
            continue
        bound = bounds.get(row["name"], FIRST_PLAN_S)
        if "failure" in row:
            bars.append(Bar(row["name"], f"under {_time(bound)}", f"failed: {row['failure']}", met=False))
        else:
            seconds = row["seconds"]
            bars.append(Bar(row["name"], f"under {_time(bound)}", _time(seconds), seconds < bound))
    return bars


def paper_bars(rows: Rows) -> list[Bar]:
    """Process memory of `paper_planning`."""
    failed = [f"{row['spec']} for {row['device']}" for row in rows if "failure" in row]
    marks = {
        f"{row['spec']} for {row['device']}": row["process_peak_bytes"]
        for row in rows
        if "failure" not in row and row["process_peak_bytes"] is not None
    }
    bars = []
    groups: dict[str, Callable[[str], bool]] = {
        "gptneo": lambda name: name.startswith(paper_planning.MAIN_MODEL + "@"),
        "the other models": lambda name: not name.startswith(paper_planning.MAIN_MODEL + "@"),
    }
    for title, is_of_group in groups.items():
        found = [nbytes for name, nbytes in marks.items() if is_of_group(name)]
        missing = [name for name in failed if is_of_group(name)]
        if found or missing:
            most = max(found, default=0)
            bars.append(
                Bar(
                    f"process memory, planning {title} at paper size",
                    f"under {PROCESS_BYTES / GIB:.0f} GiB",
                    f"at most {most / GIB:.2f} GiB" + _failures(missing),
                    bool(found) and most < PROCESS_BYTES and not missing,
                )
            )
    return bars


def measure(*, quick: bool, folder: Path, again: bool = True) -> dict[str, Any]:
    """Run the benchmarks, keep the result of each, and hold the bars against them.

    Args:
        quick: a few small models.
        folder: of the results.
        again: run all; otherwise take a result that is in the folder as it is.
    """
    models = QUICK_MODELS if quick else list(zoo.names())

    def part(name: str, collect: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        kept = folder / f"{name}.json"
        if not again and kept.exists():
            found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
            return found
        say(name)
        result = collect()
        save(name, result, folder)
        return result

    exactness = part(
        "zoo_exactness",
        lambda: zoo_exactness.collect(
            models,
            ["tiny"] if quick else ["tiny", "small"],
            ["fp32"] if quick else ["fp32", "bf16"],
            peak="70%",
            repeats=1 if quick else 3,
            time_limit_s=5.0 if quick else 10.0,
        ),
    )
    cost = part(
        "baseline_cost",
        lambda: baseline_cost.collect(
            models[:1] if quick else models, size="small", pairs=5 if quick else 41
        ),
    )
    touch = part(
        "first_touch",
        lambda: first_touch.collect(
            repeats=3 if quick else first_touch.REPEATS,
            models=first_touch.MODELS[1:] if quick else first_touch.MODELS,
        ),
    )
    paper = part(
        "paper_planning",
        lambda: paper_planning.collect(
            [paper_planning.MAIN_MODEL] if quick else [*models, paper_planning.DEEP_MODEL],
            list(paper_planning.DEVICES[:1] if quick else paper_planning.DEVICES),
            peak=paper_planning.PEAK,
            time_limit_s=5.0 if quick else 20.0,
        ),
    )
    bars = [
        *exactness_bars(exactness["rows"]),
        *cost_bars(cost["rows"]),
        *touch_bars(touch["rows"]),
        *paper_bars(paper["rows"]),
    ]
    return recorded(
        [asdict(bar) for bar in bars], seed=zoo_exactness.SEED, repeats=cost["repeats"], quick=quick
    )


def text(result: dict[str, Any]) -> str:
    """The summary as a table in Markdown."""
    lines = [
        [row["name"], row["target"], row["measured"], "yes" if row["met"] else "**no**"]
        for row in result["rows"]
    ]
    rows = ["| " + " | ".join(line) + " |" for line in [["bar", "target", "measured", "met"], *lines]]
    rows.insert(1, "| --- | --- | --- | --- |")
    return "\n".join(rows)


def _counted(count: int, missed: list[str], failed: list[str]) -> str:
    text_of_missed = f"; not: {_some(missed)}" if missed else ""
    return f"{count - len(missed)} of {count}{text_of_missed}" + _failures(failed)


def _failures(failed: list[str]) -> str:
    return f"; failed: {_some(failed)}" if failed else ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few small models, for a look in minutes")
    parser.add_argument("--output", type=Path, help="folder of the JSON; by default benchmarks/results")
    parser.add_argument(
        "--keep", action="store_true", help="take results that are in the folder; run only what is missing"
    )
    asked = parser.parse_args()
    folder = asked.output or (RESULTS / "quick" if asked.quick else RESULTS)
    result = measure(quick=asked.quick, folder=folder, again=not asked.keep)
    print(text(result))
    save("bars", result, folder)


if __name__ == "__main__":
    main()
