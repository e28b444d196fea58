"""Whether a busy machine decides other plans: `python benchmarks/busy_machine.py [--models gpt2 unet vit] [--threads 1 2]`.

Each step is planned for 60 % of its peak on a machine without other work and beside a process that multiplies matrices
all the time, each with costs measured anew. Both plans are then priced by the costs of the quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_record import MIB, RESULTS, recorded, run_part, save, say, table

SEED = 0
PEAK = "60%"
MODELS = ("gpt2", "unet", "vit")
LOAD = "import torch; torch.set_num_threads(1); a = torch.rand(1024, 1024)\nwhile True: a @ a"


def planned(spec: str, threads: int) -> dict[str, Any]:
    """The usual program of a step, planned here with costs measured now: its order, bytes and costs."""
    import torch

    import neaptide.zoo
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.policy.prepared_step import prepare

    torch.set_num_threads(threads)
    step, batch = neaptide.zoo.factory(spec)()
    prepared = prepare(step, (batch,), name=spec)
    problem = prepared.problem()
    options = Ask(Budget(PEAK), in_place=False)  # one graph for both prices
    program, _ = prepared.plan_program(0, options, prepared.allowed(options, 0, None))
    return {
        "fingerprint": program.fingerprint,
        "peak_bytes": program.predictions.peak_with_workspace_bytes,
        "sequence": program.sequence,
        "node_s": problem.seconds,
        "repeat_s": problem.repeat_seconds,
    }


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """One process beside that multiplies matrices."""
    other = subprocess.Popen([sys.executable, "-c", LOAD])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def measure(spec: str, threads: int) -> dict[str, Any]:
    """A row: the two plans, priced by the same costs."""
    found = {}
    for name, machine in (("quiet", contextlib.nullcontext()), ("busy", busy())):
        with machine, tempfile.TemporaryDirectory() as folder:
            part = run_part(
                Path(__file__).name,
                *("--part", spec, "--threads", str(threads)),
                timeout_s=900,
                environment={"XDG_CACHE_HOME": folder},
            )
        if "failure" in part:
            return {"model": spec, "torch_threads": threads, "failure": f"{name}: {part['failure']}"}
        found[name] = part
    quiet, loaded = found["quiet"], found["busy"]
    if quiet["fingerprint"] != loaded["fingerprint"]:
        raise RuntimeError(f"{spec}: two captures differ")
    row = {"model": spec, "torch_threads": threads, "baseline_s": sum(quiet["node_s"])}
    for name, part in found.items():
        row |= {
            f"{name}_s": seconds_of(part["sequence"], quiet),
            f"{name}_peak_bytes": part["peak_bytes"],
            f"{name}_predicted_s": seconds_of(part["sequence"], part),
        }
    return row


def seconds_of(sequence: list[int], costs: dict[str, Any]) -> float:
    """What an order takes, nodes after their first time at the price of a repetition."""
    seen: set[int] = set()
    total = 0.0
    for node in sequence:
        total += costs["repeat_s" if node in seen else "node_s"][node]
        seen.add(node)
    return total


def told(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    if "failure" in row:
        return [row["model"], str(row["torch_threads"]), row["failure"], "", "", ""]
    return [
        row["model"],
        str(row["torch_threads"]),
        f"{row['quiet_s'] / row['baseline_s']:.3f}x, {row['quiet_peak_bytes'] / MIB:.1f} MiB",
        f"{row['busy_s'] / row['baseline_s']:.3f}x, {row['busy_peak_bytes'] / MIB:.1f} MiB",
        f"{row['busy_s'] / row['quiet_s'] - 1:+.2%}, {row['busy_peak_bytes'] / row['quiet_peak_bytes'] - 1:+.2%}",
        f"{row['busy_predicted_s'] / row['quiet_s']:.2f}x",
    ]


def main() -> None:
    """All models at one thread and two, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--part", metavar="SPEC", help="plan it here and print JSON")
    asked = parser.parse_args()
    if asked.part:
        print(json.dumps(planned(asked.part, asked.threads[0])))
        return
    rows = []
    for model in asked.models:
        for threads in asked.threads:
            say(f"{model}, {threads} threads")
            rows.append(measure(f"{model}@small", threads))
            say(json.dumps(rows[-1]))
    save("busy_machine", recorded(rows, seed=SEED, repeats=1, peak=PEAK), asked.output)
    columns = ("model", "threads", "quiet", "busy", "busy against quiet", "predicted while busy")
    print(table(columns, [told(row) for row in rows]))


if __name__ == "__main__":
    main()
