"""The same table at paper size, predicted: `python benchmarks/dynamic_shapes_paper.py [--batches 500]`.

Llama-2-1B of BladeDISC++ (arXiv 2412.16985, 3): Llama-2-7B with four layers, 14, 16 and 18 samples a batch, for the preset
`a100-40g`. Captured on the meta device, so nothing is run: peaks are counted exactly, with workspace by formula; seconds are
those of the preset, without captures and plans. Texts are those of `neaptide_corpus.text_lengths`. The device has as many bytes
beyond the highest peak of 14 samples without a plan as 40 GB are beyond 38.2, and plans may use what BladeDISC++ used.
The result is `results/dynamic_shapes_paper.json`.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench_record import GIB, RESULTS, recorded, save, say, table
from dynamic_shapes_cases import ALLOWED, DEVICE_SHARE

SEED: Final = 0
DEVICE: Final = "a100-40g"
SAMPLES: Final = (14, 16, 18)
LONGEST: Final = 750
MODEL: Final = "llama@paper,layers=4,width=4096,heads=32,kv_heads=32,inner=11008,vocab=32000"
TIME_LIMIT_S: Final = 20.0
COLUMNS: Final = ("samples", "program", "tokens / s", "peak (GiB)", "of the device", "padding")

Row = dict[str, Any]


def predicted(samples: int, share: float, batches: int, first_peak: int) -> Row:
    """One number of samples: no plan, padded plans, and one program with points."""
    from neaptide import zoo
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.frontends.torch_step import capture_step
    from neaptide.outcome import Limits
    from neaptide.planner.points.plan import Decisions
    from neaptide.policy.points.for_all_shapes import for_all_shapes
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide_corpus.text_lengths import batches_of_tokens

    lengths = batches_of_tokens(batches, samples, SEED)
    widths = [max(batch) for batch in lengths]
    step, batch = zoo.factory(f"{MODEL},batch={samples},seq={LONGEST}", device="meta")()
    captured = capture_step(step, (batch,), dynamic={"batch": {1: (2, LONGEST)}})
    (dim,) = captured.steady.graph.dims
    prepared = PreparedStep(captured, device=DEVICE)

    def options(allowed: int) -> Ask:
        return Ask(Budget(allowed), limits=Limits(time_s=TIME_LIMIT_S, seed=SEED))

    # Without a limit the decisions are those of no plan.
    free = for_all_shapes(prepared, options(1 << 50)).graphs[0].points.plan.shaped
    unplanned = [free.at({dim.name: width}).peak_bytes for width in widths]
    first_peak = first_peak or max(unplanned)
    device, allowed = int(DEVICE_SHARE * first_peak), int(share * first_peak)
    plan = for_all_shapes(prepared, options(allowed)).graphs[0].points.plan
    decisions = Decisions(plan)

    @cache
    def at_points(width: int) -> tuple[int, float, float]:
        shape = {dim.name: width}
        problem = plan.shaped.problem_at(shape)
        script = decisions.of(shape, allowed).script
        again = sum(problem.repeat_seconds[node] for node in script.repeated)
        return script.peak_bytes, problem.baseline_seconds + again, problem.baseline_seconds

    @cache
    def padded(width: int) -> tuple[int, float]:
        made, there = zoo.factory(f"{MODEL},batch={samples},seq={width}", device="meta")()
        static = PreparedStep(capture_step(made, (there,)), device=DEVICE)
        found = static.plan(options(allowed)).plan.programs[0].predictions
        return found.peak_with_workspace_bytes, found.seconds

    real = sum(map(sum, lengths))
    buckets = [min(1 << (width - 1).bit_length(), LONGEST) for width in widths]
    programs = {
        "points": (max(at_points(w)[0] for w in widths), sum(at_points(w)[1] for w in widths), widths),
        "padded": (max(padded(b)[0] for b in buckets), sum(padded(b)[1] for b in buckets), buckets),
        "no plan": (max(unplanned), sum(at_points(w)[2] for w in widths), widths),
    }
    return {
        "samples": samples,
        "batches": batches,
        "first_peak_bytes": first_peak,
        "device_bytes": device,
        "allowed_bytes": allowed,
        "programs": [
            {
                "program": name,
                "tokens_per_s": real / seconds,
                "peak_bytes": peak,
                "padding": 1 - real / (samples * sum(taken)),
                "fits": peak <= (device if name == "no plan" else allowed),
            }
            for name, (peak, seconds, taken) in reversed(programs.items())
        ],
    }


def lines(result: Row) -> list[tuple[str, ...]]:
    """The table."""
    return [
        (
            str(row["samples"]),
            program["program"],
            f"{program['tokens_per_s']:.0f}" if program["fits"] else "-",
            f"{program['peak_bytes'] / GIB:.2f}",
            f"{program['peak_bytes'] / row['device_bytes']:.3f}" + ("" if program["fits"] else ": too much"),
            f"{program['padding']:.0%}",
        )
        for row in result["rows"]
        for program in row["programs"]
    ]


def main() -> None:
    """All numbers of samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    asked = parser.parse_args()
    rows: list[Row] = []
    for samples, share in zip(SAMPLES, ALLOWED, strict=True):
        say(f"{samples} samples")
        first = rows[0]["first_peak_bytes"] if rows else 0
        rows.append(predicted(samples, share, asked.batches, first))
    result = recorded(rows, seed=SEED, repeats=1, device=DEVICE, model=MODEL)
    print(table(COLUMNS, lines(result)))
    save("dynamic_shapes_paper", result, asked.output)


if __name__ == "__main__":
    main()
