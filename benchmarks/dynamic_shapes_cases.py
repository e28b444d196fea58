"""The programs that `dynamic_shapes.py` compares, one number of samples at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

    from neaptide.ask import Ask
    from neaptide.frontends.programs.captured import CapturedStep
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide.runtime.shapes.limit_by_shape import PointsWithin
    from neaptide.runtime.shapes.plans import ShapePlans
    from neaptide.runtime.steps.planned_graph import PlannedVariant, StepPlan

SEED: Final = 0
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

Row = dict[str, Any]
Batch = Mapping[str, "torch.Tensor"]


class Loader:
    """Batches of some numbers of samples, padded to a length."""

    def __init__(self, samples: int, batches: int) -> None:
        from neaptide_corpus.text_lengths import batches_of_tokens

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
    from neaptide.policy.prepared_step import PreparedStep

    return PreparedStep(captured)


def planned(captured: CapturedStep, allowed: int) -> StepPlan:
    """The plan of a capture of one shape within so many bytes."""
    return _prepared(captured).plan(_options(allowed))


def planned_for_all(captured: CapturedStep, allowed: int, name: str) -> PlannedVariant:
    """What runs at all shapes within so many bytes."""
    from neaptide.policy.plans_by_shape import plan_shapes
    from neaptide.policy.points.for_all_shapes import for_all_shapes

    if name == BY_SHAPE:
        return plan_shapes(_prepared(captured), _options(allowed))
    return for_all_shapes(_prepared(captured), _options(allowed))


def _options(allowed: int) -> Ask:
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.outcome import Limits

    return Ask(Budget(allowed), limits=Limits(time_s=TIME_LIMIT_S, seed=SEED))


def eager_peaks(captured: CapturedStep, loader: Loader) -> list[int]:
    """Bytes that each batch takes in program order."""
    from neaptide.analysis.shape_peaks import ShapePeaks
    from neaptide.ir.schedule import Schedule

    graph = captured.steady.graph
    (dim,) = graph.dims
    peaks = ShapePeaks(graph, Schedule.program_order(graph), {dim.name: LONGEST})
    return [peaks.peak_bytes({dim.name: max(lengths)}) for lengths in loader.lengths]


def _begun(
    samples: int, share: float, batches: int, first_peak: int
) -> tuple[Loader, list[int], list[_Program], _Room]:
    """Batches, their lengths, our programs and the room that there is; arguments as of `timed`."""
    import torch

    torch.set_num_threads(1)
    loader = Loader(samples, batches)
    widths = [max(lengths) for lengths in loader.lengths]
    ours = [_for_all(name, samples, share, first_peak, loader) for name in (POINTS, BY_SHAPE)]
    return loader, widths, ours, _Room.of(ours[0].unplanned, share, first_peak)


def timed(samples: int, share: float, batches: int, first_peak: int) -> Row:
    """One number of samples: all programs that the device has room for, batch by batch in turns.

    Args:
        samples: of a batch.
        share: of `first_peak` that plans may use.
        batches: how many.
        first_peak: what eager takes with the first number of samples; 0 where this is it.
    """
    loader, widths, ours, room = _begun(samples, share, batches, first_peak)
    padded = _Padded(samples, widths, room.allowed_bytes)
    programs: list[_Program] = [*ours, padded]
    eager_step, _ = made(samples, LONGEST)
    if max(ours[0].unplanned) <= room.device_bytes:
        programs.insert(0, _Program("no plan", eager_step, ours[0].unplanned))
    for number in range(batches):
        for turn in range(len(programs)):
            program = programs[(turn + number) % len(programs)]
            batch = loader.batch(number, program.widths[number] if program.widths else None)
            run = program.step_for(batch)
            began = time.process_time()
            run(batch)
            program.run_s += time.process_time() - began
    real = sum(loader.tokens(number) for number in range(batches))
    rows = [program.row(real, samples, widths) for program in programs]
    for row in rows:
        row["within"] = row["peak_bytes"] <= (
            room.device_bytes if row["program"] == "no plan" else room.allowed_bytes
        )
    return {"samples": samples, "batches": batches, **asdict(room), "programs": rows}


def peaks(samples: int, share: float, batches: int, first_peak: int) -> Row:
    """One number of samples: measured peaks beside predicted ones, and these beside those of plans for one shape.

    Args:
        samples: of a batch.
        share: of `first_peak` that plans may use.
        batches: how many.
        first_peak: what eager takes with the first number of samples; 0 where this is it.
    """
    loader, widths, ours, room = _begun(samples, share, batches, first_peak)
    return {
        "samples": samples,
        "batches": batches,
        **asdict(room),
        "exact": {program.name: _measured_peaks(program, widths, loader) for program in ours},
        "above_exact": _above_exact(samples, room.allowed_bytes, ours, sorted(set(widths))),
    }


@dataclass(frozen=True)
class _Room:
    """What programs may take."""

    unplanned_peak_bytes: int
    first_peak_bytes: int
    device_bytes: int
    allowed_bytes: int

    @classmethod
    def of(cls, unplanned: Sequence[int], share: float, first_peak: int) -> _Room:
        first = first_peak or max(unplanned)
        return cls(max(unplanned), first, int(DEVICE_SHARE * first), int(share * first))


class _Program:
    """One way to run all batches, and what it took so far."""

    def __init__(self, name: str, step: Any, peaks: Sequence[int] = ()) -> None:
        self.name, self.step, self.peaks = name, step, list(peaks)
        self.widths: list[int] = []
        self.run_s = self.compile_s = 0.0
        self.plans = 0
        self.unplanned: list[int] = []
        self.peak_of: Callable[[int], int] = lambda _: 0

    def step_for(self, _batch: Batch) -> Callable[[Batch], Any]:
        """What runs a batch."""
        return self.step

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


class _Padded(_Program):
    """A plan for each bucket, made when the first batch falls into it."""

    def __init__(self, samples: int, widths: Sequence[int], allowed: int) -> None:
        super().__init__("padded", made(samples, LONGEST)[0])
        self.widths = [bucket(width) for width in widths]
        self._allowed = allowed
        self._runners: dict[int, Callable[[Batch], Any]] = {}

    def step_for(self, batch: Batch) -> Callable[[Batch], Any]:
        from neaptide.frontends.torch_step import capture_step
        from neaptide.runtime.steps.planned_step import PlannedStep

        width = batch["input_ids"].shape[1]
        if width not in self._runners:
            began = time.process_time()
            found = planned(capture_step(self.step, (batch,)), self._allowed)
            self._runners[width] = PlannedStep(self.step, _never, found.variant, on_mismatch="error")
            self.compile_s += time.process_time() - began
            self.plans += 1
            self.peaks.append(found.plan.programs[0].predictions.peak_bytes)
        return self._runners[width]


def _never(*_: object) -> Any:
    raise AssertionError("planned again")


def _for_all(name: str, samples: int, share: float, first_peak: int, loader: Loader) -> _Program:
    """One program, or a few plans, for all shapes. Its peaks are those that it predicts for the batches."""
    from neaptide.frontends.torch_step import capture_step
    from neaptide.runtime.steps.planned_step import PlannedStep

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
    return shapes.at(shape).peaks.peak_bytes(shape)


def _peak_by_points(points: PointsWithin, dim: str, width: int) -> int:
    from neaptide.planner.points.plan import Decisions

    return Decisions(points.plan).of({dim: width}, points.budget_bytes).script.peak_bytes


def _measured_peaks(ours: _Program, widths: Sequence[int], loader: Loader) -> Row:
    """Measured beside predicted, for the longest batches and for some others."""
    from neaptide.runtime.measuring.meter import measure_step

    by_length = sorted(range(len(widths)), key=lambda number: -widths[number])
    chosen = dict.fromkeys((*by_length[: MEASURED // 2], *range(min(MEASURED // 2, len(widths)))))
    runner, same = ours.step, 0
    runner(loader.batch(0))  # the first step makes the state of the optimizer, by a program of its own
    for number in chosen:
        batch = loader.batch(number)
        found = measure_step(
            lambda batch=batch: runner(batch), lambda batch=batch: [*runner.persistent(), *batch.values()]
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
