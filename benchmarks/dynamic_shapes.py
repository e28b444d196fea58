"""Fine-tuning with batches of all lengths: `python benchmarks/dynamic_shapes.py [--samples 7 8 9] [--batches 500]`.

A small Llama of four layers, with batches of a fixed number of random samples, whose lengths are those of
`neaptide.corpus.text_lengths`, four times shorter. In the form of the table of BladeDISC++ (arXiv 2412.16985, Table 1):

* no plan: eager, each batch padded to its longest sample;
* padded: each batch padded to a power of two, the last bucket the longest sample there is, and a plan for each bucket;
* points: one program for the whole range that decides at each call what is evicted, each batch padded to its longest sample;
* plans by shape: a few plans for the whole range, of which a call runs the fastest that fits at its shape.

Of the three numbers of samples eager fits the first only: what the device has is a twentieth more than eager's highest
peak there, as 40 GB are to 38.2. Plans may use what BladeDISC++ used, as a share of eager's peak with the first number.

Programs take turns, batch by batch, in one process. Real tokens by second count time for captures and plans; tokens of
padding do not count. Peaks are predicted for all batches, and measured for the longest and for some others: a prediction is
exact where both are the same to the byte. "Above the exact plan" is by how much the peak of a batch is above that of a plan
made for its shape alone with the same bytes, for some shapes. The result is `results/dynamic_shapes.json`; its table is put into
`docs/explanation/dynamic-shapes.md`, with `--quote` alone without anything measured.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_record import MIB, RESULTS, recorded, run_part, save, say, table
from quote_bars import quote_into

if TYPE_CHECKING:
    import torch

    from neaptide.frontends.captured import CapturedStep
    from neaptide.runtime.planned_graph import PlannedVariant, PointsWithin
    from neaptide.runtime.prepared_step import PreparedStep
    from neaptide.runtime.search_options import SearchOptions
    from neaptide.runtime.shape_plans import ShapePlans
    from neaptide.runtime.step_plan import StepPlan

SEED: Final = 0
SAMPLES: Final = (7, 8, 9)
ALLOWED: Final = (35.76 / 38.20, 37.89 / 38.20, 39.18 / 38.20)
"""What BladeDISC++ used with its three numbers of samples, as shares of what the first takes without a plan."""
DEVICE_SHARE: Final = 40 / 38.20
SCALE: Final = 4
LONGEST: Final = 3000 // (4 * SCALE)
MODEL: Final = "llama@small,layers=4,vocab=4096"
TIME_LIMIT_S: Final = 20.0
MEASURED: Final = 20
POINTS: Final = "points"
BY_SHAPE: Final = "plans by shape"
PART_S: Final = 3600.0
PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "dynamic-shapes.md"
BEGIN: Final = "<!-- dynamic_shapes:begin -->"
END: Final = "<!-- dynamic_shapes:end -->"
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
Batch = Mapping[str, "torch.Tensor"]


class Loader:
    """Batches of some numbers of samples, padded to a length."""

    def __init__(self, samples: int, batches: int) -> None:
        from neaptide.corpus.text_lengths import batches_of_tokens

        self.lengths = batches_of_tokens(batches, samples, SEED, scale=SCALE)

    def batch(self, number: int, padded: int | None = None) -> dict[str, torch.Tensor]:
        """One batch; labels of padding are left out of the loss."""
        import torch

        lengths = self.lengths[number]
        width = padded or max(lengths)
        chance = torch.Generator().manual_seed(number)
        tokens = torch.randint(0, 4096, (len(lengths), width), generator=chance)
        places = torch.arange(width)[None, :] >= torch.tensor(lengths)[:, None]
        return {"input_ids": tokens.masked_fill(places, 0), "labels": tokens.masked_fill(places, -100)}

    def tokens(self, number: int) -> int:
        """Real ones of a batch."""
        return sum(self.lengths[number])


def bucket(length: int) -> int:
    """The power of two that a length is padded to, or the longest there is."""
    return min(1 << (length - 1).bit_length(), LONGEST)


def made(samples: int, width: int) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """The step, with a batch of one width."""
    from neaptide import zoo

    return zoo.factory(f"{MODEL},batch={samples},seq={LONGEST}")()[0], Loader(samples, 1).batch(0, width)


def _prepared(captured: CapturedStep) -> PreparedStep:
    from neaptide.runtime.prepared_step import PreparedStep

    return PreparedStep(captured)


def planned(captured: CapturedStep, allowed: int) -> StepPlan:
    """The plan of a capture of one shape within so many bytes."""
    return _prepared(captured).plan(_options(allowed))


def planned_for_all(captured: CapturedStep, allowed: int, name: str) -> PlannedVariant:
    """What runs at all shapes within so many bytes."""
    from neaptide.runtime.for_all_shapes import for_all_shapes
    from neaptide.runtime.shape_planning import plan_shapes

    if name == BY_SHAPE:
        return plan_shapes(captured, _prepared, _options(allowed)).variant
    return for_all_shapes(_prepared(captured), _options(allowed))


def _options(allowed: int) -> SearchOptions:
    from neaptide.outcome import Limits
    from neaptide.planner.budget import Budget
    from neaptide.runtime.search_options import SearchOptions

    return SearchOptions(Budget(allowed), limits=Limits(time_s=TIME_LIMIT_S, seed=SEED))


def eager_peaks(captured: CapturedStep, loader: Loader) -> list[int]:
    """Bytes that each batch takes in program order."""
    from neaptide.analysis.shape_peaks import ShapePeaks
    from neaptide.ir.schedule import Schedule

    graph = captured.steady.graph
    (dim,) = graph.dims
    peaks = ShapePeaks(graph, Schedule.program_order(graph), {dim.name: LONGEST})
    return [peaks.peak_bytes({dim.name: max(lengths)}) for lengths in loader.lengths]


def measured(samples: int, share: float, batches: int, first_peak: int) -> Row:
    """One number of samples: all programs that the device has room for, batch by batch in turns.

    Args:
        samples: of a batch.
        share: of `first_peak` that plans may use.
        batches: how many.
        first_peak: what eager takes with the first number of samples; 0 where this is it.
    """
    import torch

    from neaptide.frontends.torch_step import capture_step
    from neaptide.runtime.planned_step import PlannedStep

    torch.set_num_threads(1)
    loader = Loader(samples, batches)
    widths = [max(lengths) for lengths in loader.lengths]

    ours = [_for_all(name, samples, share, first_peak, loader) for name in (POINTS, BY_SHAPE)]
    peaks, first_peak = ours[0].unplanned, first_peak or max(ours[0].unplanned)
    device, allowed = int(DEVICE_SHARE * first_peak), int(share * first_peak)

    padded = _Program("padded", None)
    padded.widths = [bucket(width) for width in widths]
    step_of_padded, _ = made(samples, LONGEST)
    runners: dict[int, PlannedStep] = {}
    peak_of: dict[int, int] = {}

    def runner(width: int) -> PlannedStep:
        if width not in runners:
            began = time.process_time()
            there = capture_step(step_of_padded, (loader.batch(0, width),))
            found = planned(there, allowed)
            runners[width] = PlannedStep(step_of_padded, _never, found.variant, on_mismatch="error")
            peak_of[width] = found.plan.programs[0].predictions.peak_bytes
            padded.compile_s += time.process_time() - began
            padded.plans += 1
        return runners[width]

    programs = [*ours, padded]
    eager_step, _ = made(samples, LONGEST)
    if max(peaks) <= device:
        programs.insert(0, _Program("no plan", eager_step, peaks))
    for number in range(batches):
        for turn in range(len(programs)):
            program = programs[(turn + number) % len(programs)]
            width = program.widths[number] if program.widths else None
            batch = loader.batch(number, width)
            run = program.step if width is None else runner(width)
            began = time.process_time()
            run(batch)
            program.run_s += time.process_time() - began
    padded.peaks = [peak_of[width] for width in padded.widths]
    real = sum(loader.tokens(number) for number in range(batches))
    rows = [program.row(real, samples, widths) for program in programs]
    exact = {program.name: _measured_peaks(program, widths, loader) for program in ours}
    for row in rows:
        row["within"] = row["peak_bytes"] <= (device if row["program"] == "no plan" else allowed)
        row["exact"] = exact.get(row["program"])
    return {
        "samples": samples,
        "batches": batches,
        "unplanned_peak_bytes": max(peaks),
        "first_peak_bytes": first_peak,
        "device_bytes": device,
        "allowed_bytes": allowed,
        "programs": rows,
        "above_exact": _above_exact(samples, allowed, ours, sorted(set(widths))),
    }


class _Program:
    """One way to run all batches, and what it took so far."""

    def __init__(self, name: str, step: Any, peaks: Sequence[int] = ()) -> None:
        self.name, self.step, self.peaks = name, step, list(peaks)
        self.widths: list[int] = []
        self.run_s = self.compile_s = 0.0
        self.plans = 0
        self.unplanned: list[int] = []
        self.peak_of: Callable[[int], int] = lambda _: 0

    def row(self, real: int, samples: int, widths: Sequence[int]) -> Row:
        taken = samples * sum(self.widths or widths)
        return {
            "program": self.name,
            "tokens_per_s": real / (self.run_s + self.compile_s),
            "tokens_per_s_running": real / self.run_s,
            "peak_bytes": max(self.peaks),
            "padding": 1 - real / taken,
            "compile_s": self.compile_s,
            "run_s": self.run_s,
            "plans": self.plans,
        }


def _never(*_: object) -> Any:
    raise AssertionError("planned again")


def _for_all(name: str, samples: int, share: float, first_peak: int, loader: Loader) -> _Program:
    """One program, or a few plans, for all shapes. Its peaks are those that it predicts for the batches."""
    from neaptide.frontends.torch_step import capture_step
    from neaptide.runtime.planned_step import PlannedStep

    step, example = made(samples, LONGEST)
    began = time.process_time()
    captured = capture_step(step, (example,), dynamic={"batch": {1: (2, LONGEST)}})
    unplanned = eager_peaks(captured, loader)
    allowed = int(share * (first_peak or max(unplanned)))
    variant = planned_for_all(captured, allowed, name)
    program = _Program(name, PlannedStep(step, _never, variant, on_mismatch="error"))
    program.compile_s = time.process_time() - began
    (dim,) = captured.steady.graph.dims
    graph = variant.graphs[0]
    program.unplanned = unplanned
    if name == BY_SHAPE:
        program.plans = len(graph.by_shape.plans)
        program.peak_of = partial(_peak_by_shape, graph.by_shape, dim.name)
    else:
        program.plans = 1
        program.peak_of = partial(_peak_by_points, graph.points, dim.name)
    program.peaks = [program.peak_of(max(lengths)) for lengths in loader.lengths]
    return program


def _peak_by_shape(shapes: ShapePlans, dim: str, width: int) -> int:
    shape = {dim: width}
    return shapes.plans[shapes.choose(shape)].peaks.peak_bytes(shape)


def _peak_by_points(points: PointsWithin, dim: str, width: int) -> int:
    from neaptide.planner.points.plan import Decisions

    return Decisions(points.plan).of({dim: width}, points.budget_bytes).script.peak_bytes


def _measured_peaks(ours: _Program, widths: Sequence[int], loader: Loader) -> Row:
    """Measured beside predicted, for the longest batches and for some others."""
    from neaptide.runtime.meter import measure_step

    by_length = sorted(range(len(widths)), key=lambda number: -widths[number])
    chosen = dict.fromkeys((*by_length[: MEASURED // 2], *range(min(MEASURED // 2, len(widths)))))
    runner, same = ours.step, 0
    for number in chosen:
        batch = loader.batch(number)
        found = measure_step(
            lambda batch=batch: runner(batch), lambda batch=batch: [*runner.resident(), *batch.values()]
        )
        same += found.measured_peak_bytes == ours.peaks[number]
    return {"same": same, "of": len(chosen)}


def _above_exact(
    samples: int, allowed: int, programs: Sequence[_Program], widths: Sequence[int]
) -> list[Row]:
    """Peaks beside those of plans for one shape each, with the same bytes."""
    from neaptide.frontends.torch_step import capture_step

    found = []
    step, _ = made(samples, LONGEST)
    for width in sorted({widths[len(widths) * k // 4 - 1] for k in (1, 2, 3, 4)}):
        there = capture_step(step, (Loader(samples, 1).batch(0, width),))
        exact = planned(there, allowed).plan.programs[0].predictions.peak_bytes
        for program in programs:
            one = {"program": program.name, "width": width}
            found.append(one | {"peak_bytes": program.peak_of(width), "exact_peak_bytes": exact})
    return found


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
    text = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    text += ["| " + " | ".join(cells) + " |" for cells in lines(result)]
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


def main() -> None:
    """All numbers of samples, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", nargs=3, type=int, default=list(SAMPLES))
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--quote", action="store_true", help="put the kept result into the page")
    parser.add_argument("--one", nargs=3, metavar=("SAMPLES", "SHARE", "FIRST"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        samples, share, first = asked.one
        print(json.dumps(measured(int(samples), float(share), asked.batches, int(first))))
        return
    path = asked.output / "dynamic_shapes.json"
    if not asked.quote:
        rows: list[Row] = []
        for samples, share in zip(asked.samples, ALLOWED, strict=True):
            say(f"{samples} samples")
            first = rows[0]["first_peak_bytes"] if rows else 0
            options = ("--batches", str(asked.batches), "--one", str(samples), str(share), str(first))
            rows.append(run_part("dynamic_shapes.py", *options, timeout_s=PART_S))
            if failure := rows[-1].get("failure"):
                raise SystemExit(failure)
        result = recorded(rows, seed=SEED, repeats=1, model=MODEL, time_limit_s=TIME_LIMIT_S)
        save(path.stem, result, asked.output)
    result = json.loads(path.read_text(encoding="utf-8"))
    print(table(COLUMNS, lines(result)))
    if asked.output == RESULTS:
        quote_into(PAGE, in_markdown(result), BEGIN, END)


if __name__ == "__main__":
    main()
