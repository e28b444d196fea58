"""Model files as targets: reading them, and the sizes of their dims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.cli.command import Request
from neaptide.errors import NeaptideError, TargetError, UsageError

if TYPE_CHECKING:
    from neaptide.frontends.onnx.model import OnnxModel
    from neaptide.frontends.tflite.to_graph import TfliteGraph
    from neaptide.ir.graph import Graph
    from neaptide.ir.registry import OpRegistry
    from neaptide.schedule.order.problem import OrderProblem

OF_STEPS: Final = (
    *("--latency", "--host", "--trials", "--dynamic", "--rewrite", "--picture", "--device", "--strategy"),
    *("--atomic", "--state-between-steps", "--allow-nondeterministic", "--numerics"),
)
"""Options of `plan` that are for training steps."""
_DIM: Final = re.compile(r"(.+)=\s*(\d+)")


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A model file as a graph of known sizes, with the rows of its operators."""

    model: OnnxModel
    registry: OpRegistry

    @property
    def graph(self) -> Graph:
        return self.model.graph

    def problem(self) -> OrderProblem:
        """What there is to order in it; its peaks are footprints."""
        from neaptide.schedule.order.of_model import model_problem

        return model_problem(self.graph, self.registry)


def model_of(request: Request) -> ModelTarget | TfliteGraph:
    """The model file of a command, by its suffix."""
    if Path(request.target).suffix == ".tflite":
        return tflite_of(request)
    return onnx_of(request)


def tflite_of(request: Request, *, on_operands: bool = False) -> TfliteGraph:
    """A model file of TensorFlow Lite, whose sizes are known; results may take the bytes of operands if it is said."""
    from neaptide.frontends.tflite.reader import read_tflite
    from neaptide.frontends.tflite.to_graph import tflite_graph

    if request.model.dim:
        raise UsageError("a .tflite file has no named dims", next_step="leave out --dim")
    return tflite_graph(read_tflite(request.target), on_operands=on_operands)


def onnx_of(request: Request) -> ModelTarget:
    """A model file of ONNX, with the sizes of `--dim`; every dim must have one."""
    from neaptide.frontends.onnx.reader import read_model
    from neaptide.ops.onnx import registry

    with located(request.target):
        model = read_model(request.target, parse_sizes(request.model.dim))
    if model.graph.dims:
        free = [model.dims[dim.name] for dim in model.graph.dims]
        raise TargetError(
            "the model has dims without a size",
            where=request.target,
            why=", ".join(free),
            next_step=" ".join(f"--dim {name}=1" for name in free),
        )
    return ModelTarget(model, registry())


def place_of_model(output: Path, target: str, *, may_be_folder: bool = True) -> Path:
    """The file that a model is written to: `output`, or in the folder `output` a file of the target's name.

    Raises:
        UsageError: that is the target itself, or a file of another kind.
    """
    source = Path(target)
    path = output / source.name if may_be_folder and not output.suffix else output
    if path.suffix != source.suffix:
        raise UsageError(
            f"what is written is a {source.suffix} file",
            where=str(output),
            next_step=f"write -o {output.stem}{source.suffix}",
        )
    if path.resolve() == source.resolve():
        raise UsageError(
            "what is written would take the place of the model",
            where=target,
            next_step="write it elsewhere: -o out",
        )
    return path


@contextmanager
def located(target: str) -> Iterator[None]:
    """An error that names no place names the file."""
    try:
        yield
    except NeaptideError as error:
        if error.where is None:
            error.where = target
            error.args = (error.render(),)
        raise


def parse_sizes(texts: tuple[str, ...]) -> Mapping[str, int]:
    """Sizes by name of a dim, from `NAME=SIZE`."""
    found = {}
    for text in texts:
        matched = _DIM.fullmatch(text.strip())
        if matched is None:
            raise UsageError(f"{text!r} gives no dim a size", next_step="write --dim batch=1")
        found[matched[1].strip()] = int(matched[2])
    return found
