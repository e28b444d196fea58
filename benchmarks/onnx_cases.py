"""What the benchmarks of model files share: the folder of the corpus, and a model planned for its footprint or for ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx

from neaptide.cost.cache import cache_dir
from neaptide.cost.onnxruntime.calls import MOST_NUMBERS
from neaptide.cost.onnxruntime.scratch import KernelMeter
from neaptide.errors import UsageError
from neaptide.frontends.onnx.model import OnnxModel
from neaptide.ir.graph import Graph
from neaptide.lower.onnx.writer import write_model
from neaptide.ops.onnx import registry
from neaptide.planner.passes.plan_passes import LEARNED, plan_passes
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.of_model import model_problem
from neaptide.schedule.order.of_runtime import runtime_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.transform.passes import PASSES
from neaptide_corpus.onnx_models import catalogue

KIB: Final = 1024
FOLDER: Final = cache_dir() / "onnx_models"

ProblemOf = Callable[[Graph], OrderProblem]


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A model after passes and an order.

    Attributes:
        baseline_bytes: of the canonical file in its own order.
        order_bytes: of the best order without passes.
        peak_bytes: of the best order after passes.
        steps: passes that were taken.
    """

    model: onnx.ModelProto
    baseline_bytes: int
    order_bytes: int
    peak_bytes: int
    steps: tuple[str, ...]
    extra: dict[str, Any]


def footprint(graph: Graph) -> OrderProblem:
    """Activations and inputs: what the bars count."""
    return model_problem(graph, registry())


def for_runtime(read: OnnxModel, meter: KernelMeter) -> ProblemOf:
    """What ONNX Runtime allocates for graphs that passes make of a model."""
    numbers = read.small_numbers(MOST_NUMBERS)

    def problem_of(graph: Graph) -> OrderProblem:
        scratch = meter.scratch(graph, numbers)
        if scratch.note:
            raise UsageError(
                scratch.note, next_step="run the benchmark where a compiler and ONNX Runtime are"
            )
        return runtime_problem(graph, scratch)

    return problem_of


def planned(read: OnnxModel, problem_of: ProblemOf, passes: Iterable[str] = (LEARNED,)) -> Planned:
    """The model with the lowest peak that passes and orders reach."""
    before = problem_of(read.graph)
    found = plan_passes(read.graph, registry(), PASSES, problem_of, names=passes).require()
    after = problem_of(found.graph)
    order = best_order(after).require().order
    return Planned(
        write_model(read, found.graph, order),
        evaluate_order(before, range(before.op_count)).peak_bytes,
        best_order(before).require().peak_bytes,
        evaluate_order(after, order).peak_bytes,
        tuple(step.name for step in found.steps),
        {"measurements": found.measurements},
    )


def canonical(read: OnnxModel) -> onnx.ModelProto:
    """The model as it is read, in its own order."""
    return write_model(read)


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def named(names: Sequence[str], among: Sequence[str] = catalogue.NAMES) -> list[str]:
    """Names that are asked for, all by default; one may be a part of several."""
    return [name for name in among if not names or any(asked in name for asked in names)]


def file_of(name: str) -> Path:
    return catalogue.path(name, FOLDER)
