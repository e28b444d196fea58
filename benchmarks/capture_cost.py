"""What looking for impure Python costs a capture: `python benchmarks/capture_cost.py [--steps gru]`.

Captures with and without the checks take turns, in processor time, so that a slow minute hits both. Printed are the
medians, the median of the ratios of the pairs and its bootstrap interval (95 %). One thread, one process a step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from bench_record import RESULTS, recorded, run_part, save, say, table
from neaptide import zoo

SEED = 0
PAIRS = 7
STEPS = ("gpt2@small", "resnet50@small", "gru")
COLUMNS = ("step", "programs", "operations", "without (CPU s)", "with (CPU s)", "ratio", "95 % interval")


def gru() -> tuple[Any, Any]:
    """A recurrent step with a plain optimizer: one program only, so that it is rehearsed."""
    import torch

    torch.manual_seed(SEED)
    layers, head = torch.nn.GRU(32, 64, 2, batch_first=True), torch.nn.Linear(64, 4)
    optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.1)

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = head(layers(batch)[0]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(4, 24, 32)


def measure(name: str, pairs: int) -> dict[str, Any]:
    """One step, captured with and without the checks in turns."""
    import torch

    from neaptide.frontends.torch_step import capture_step
    from neaptide.runtime.comparing import contestants
    from neaptide.runtime.measuring.timing import median_ratio

    torch.set_num_threads(1)
    step, batch = gru() if name == "gru" else contestants.build(zoo.factory(name), SEED)
    captured = capture_step(step, (batch,))  # what is loaded and cached once is
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(pairs):
        for watched in (False, True) if pair % 2 else (True, False):
            began = time.process_time()
            capture_step(step, (batch,), watched=watched)
            seconds[watched].append(time.process_time() - began)
    ratio = median_ratio(seconds[True], seconds[False], seed=SEED)
    return {
        "step": name,
        "programs": len(captured.programs),
        "operations": sum(len(program.graph.nodes) for program in captured.programs),
        "without_cpu_seconds": statistics.median(seconds[False]),
        "with_cpu_seconds": statistics.median(seconds[True]),
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "confidence": ratio.confidence,
        "pairs": pairs,
    }


def collect(names: list[str], *, pairs: int) -> dict[str, Any]:
    """All rows; a step that fails is a row with its `failure`."""
    rows = []
    for name in names:
        say(name)
        found = run_part("capture_cost.py", "--one", name, f"--pairs={pairs}", timeout_s=900)
        rows.append({"step": name, **found})
    return recorded(rows, seed=SEED, repeats=pairs)


def text(result: dict[str, Any]) -> str:
    """The table that is printed."""
    lines = [
        [
            row["step"],
            str(row["programs"]),
            str(row["operations"]),
            f"{row['without_cpu_seconds']:.2f}",
            f"{row['with_cpu_seconds']:.2f}",
            f"{row['ratio']:.3f}",
            f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}",
        ]
        for row in result["rows"]
        if "failure" not in row
    ]
    failures = [f"{row['step']} failed: {row['failure']}" for row in result["rows"] if "failure" in row]
    return "\n".join([table(COLUMNS, lines), *failures])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", nargs="*", default=list(STEPS), help="`gru` or steps of the zoo")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="timed pairs of captures")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="STEP", help="measure one step here and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.pairs)))
        return
    result = collect(asked.steps, pairs=asked.pairs)
    print(text(result))
    save("capture_cost", result, asked.output)


if __name__ == "__main__":
    main()
