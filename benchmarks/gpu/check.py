"""What `benchmarks/gpu/run` does."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench_record import MIB, RESULTS, part_environment, recorded, run_part, save, say, table
from quoting import in_markdown

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CASES: Final[Mapping[str, tuple[str, ...]]] = {
    "mlp@small": ("plan:100%", "plan:80%", "plan:60%"),
    "resnet50@small": ("plan:100%", "plan:80%", "checkpoint"),
    "unet2d@small": ("plan:100%", "plan:80%", "plan:60%"),
    "vit@small": ("plan:100%", "plan:80%", "plan:60%", "checkpoint"),
    "gpt2@small": ("plan:100%", "plan:80%", "plan:60%", "checkpoint"),
    "gpt2@small,bf16": ("plan:100%", "plan:60%"),
    "resnet50@paper": ("plan:80%", "plan:60%", "checkpoint"),
    "gpt2@paper": ("plan:100%", "plan:80%", "plan:60%", "checkpoint"),
    "mlp@paper": ("plan:80%", "plan:80%,host=8GiB", "save_on_cpu", "checkpoint"),
}
"""By model, what runs beside eager. `small` models keep the host busy, `paper` ones the card."""
DETERMINISTIC: Final = ("resnet50", "unet2d", "gpt2@paper")
"""Their convolutions or embeddings add with atomics otherwise, and eager itself gives other bits at each run."""
COMPILED: Final[Mapping[str, tuple[str, ...]]] = {
    "gpt2@small": ("inductor", "inductor:0.5"),
    "gpt2@paper": ("inductor", "inductor:0.5"),
}
"""In processes of their own: Dynamo runs code of one model for another of the same class."""
_TESTS_S: Final = 300.0
_CASE_S: Final = 900.0


def main() -> int:
    """Check the card, if there is one; gives the exit code."""
    import torch

    arguments = argparse.ArgumentParser(description="Check a card.")
    arguments.add_argument("cases", nargs="*", help="models of the zoo, such as gpt2@small; by default eight")
    arguments.add_argument("--seconds", type=float, default=15.0, help="for each plan")
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--side-by-side", type=int, default=1, help="processes; what is timed runs alone")
    arguments.add_argument("--no-tests", action="store_true")
    arguments.add_argument("--results", type=Path, default=RESULTS)
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        print("There is no card here that PyTorch can use: nothing was checked.")
        return 0
    tests = None if given.no_tests else tested()
    operations = same_operations()
    rows = [row for found in measured(given) for row in found]
    card = torch.cuda.get_device_properties(0)
    settings = {
        "card": card.name,
        "card_bytes": card.total_memory,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "seconds_for_a_plan": given.seconds,
        "side_by_side": given.side_by_side,
        "tests": tests,
        "operations_of_an_absent_card": operations,
    }
    save("gpu", recorded(rows, seed=1, repeats=given.rounds, **settings), given.results)
    print(table(COLUMNS, [cells(row) for row in rows]))
    failed = [row for row in rows if "failure" in row and row["program"] == "eager"]
    return int(bool(failed) or tests not in (None, "passed") or operations != "same")


def tested() -> str:
    """Run the tests that need a card; `passed`, or the end of what they said."""
    say("tests of the card")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=part_environment(),
        capture_output=True,
        text=True,
        timeout=_TESTS_S,
        check=False,
    )
    return "passed" if not done.returncode else "\n".join(done.stdout.splitlines()[-20:])


def same_operations() -> str:
    """Whether captures for this card as if it were absent have the operations of captures on it; `same`, or how they differ."""
    say("operations of captures, on the card and as if it were absent")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            str(Path(__file__).parent / "operations.py"),
            "-o",
            str(Path(folder) / "lists.json"),
        ]
        done = subprocess.run(
            command,
            env=part_environment(),
            capture_output=True,
            text=True,
            timeout=_CASE_S,
            check=False,
        )
    return "same" if not done.returncode else "\n".join((done.stdout + done.stderr).splitlines()[-20:])


def measured(given: argparse.Namespace) -> Iterable[list[dict[str, Any]]]:
    """Rows of each case, in a process of its own."""
    asked = [
        (spec, variants)
        for cases in (CASES, COMPILED)
        for spec, variants in cases.items()
        if not given.cases or spec in given.cases
    ]

    def one(case: tuple[str, tuple[str, ...]]) -> list[dict[str, Any]]:
        spec, variants = case
        say(f"{spec}: {', '.join(variants)}")
        timed = [v if not v.startswith("plan") else f"{v},time_limit_s={given.seconds}" for v in variants]
        options = ["--rounds", str(given.rounds)]
        options += ["--deterministic"] if spec.startswith(DETERMINISTIC) else []
        found = run_part("gpu/case.py", spec, *timed, *options, timeout_s=_CASE_S)
        if "failure" in found:
            return [{"spec": spec, "program": "eager", "failure": found["failure"]}]
        rows = [{"spec": spec, **row} for row in found["rows"]]
        named = [row | {"program": row["program"].partition(",time_limit_s")[0]} for row in rows]
        kernels = {"kernels": "deterministic"} if "--deterministic" in options else {}
        return [row | kernels for row in named]

    with ThreadPoolExecutor(given.side_by_side) as pool:
        yield from pool.map(one, asked)


COLUMNS: Final = ("model", "program", "predicted MiB", "measured MiB", "of eager's", "time", "bits")


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the table: peaks as `max_memory_allocated`, time as a share of eager's in the same rounds."""

    def shown(key: str, unit: float, places: int) -> str:
        return f"{row[key] / unit:.{places}f}" if key in row else "-"

    kernels = f" ({row['kernels']})" if row.get("kernels") else ""
    if "failure" in row:
        return (row["spec"] + kernels, row["program"], *["-"] * 4, row["failure"].partition(":")[0])
    predicted = "predicted_allocated_bytes" if "predicted_allocated_bytes" in row else "predicted_peak_bytes"
    is_eager = row["program"] == "eager"
    same = row["eager_gives_same_bits_again" if is_eager else "same_bits"]
    return (
        row["spec"] + kernels,
        row["program"],
        shown(predicted, MIB, 1),
        shown("measured_allocated_bytes", MIB, 1),
        "1.000" if is_eager else shown("peak_of_eager", 1, 3),
        "1.00" if is_eager else shown("measured_ratio", 1, 2),
        "same" if same else "vary" if is_eager else "other",
    )


def in_page(result: Mapping[str, Any]) -> str:
    """The table for the page of results."""
    settings = result["settings"]
    told = f"{settings['card']}, torch {result['versions']['torch']}, CUDA {settings['cuda']}"
    made = f"Made {result['made'][:10]} on {told}, beside {settings['side_by_side']} processes that plan."
    return in_markdown(COLUMNS, map(cells, result["rows"])) + f"\n\n{made}"
