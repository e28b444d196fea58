"""Model files as targets: reading them, the sizes of their dims, and the command that profiles one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from neaptide.cli.command import Request
from neaptide.errors import NeaptideError, TargetError, UsageError

if TYPE_CHECKING:
    from neaptide.frontends.onnx.model import OnnxModel
    from neaptide.ir.graph import Graph
    from neaptide.ir.registry import OpRegistry
    from neaptide.schedule.order.problem import OrderProblem

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


def model_of(request: Request) -> ModelTarget:
    """The model file of a command, with the sizes of `--dim`; every dim must have one."""
    from neaptide.frontends.onnx.reader import read_model
    from neaptide.ops.onnx import registry

    try:
        model = read_model(request.target, parse_sizes(request.dim))
    except NeaptideError as error:
        if error.where is None:
            error.where = request.target
            error.args = (error.render(),)
        raise
    if model.graph.dims:
        free = [model.dims[dim.name] for dim in model.graph.dims]
        raise TargetError(
            "the model has dims without a size",
            where=request.target,
            why=", ".join(free),
            next_step=" ".join(f"--dim {name}=1" for name in free),
        )
    return ModelTarget(model, registry())


def parse_sizes(texts: tuple[str, ...]) -> Mapping[str, int]:
    """Sizes by name of a dim, from `NAME=SIZE`."""
    found = {}
    for text in texts:
        matched = _DIM.fullmatch(text.strip())
        if matched is None:
            raise UsageError(f"{text!r} gives no dim a size", next_step="write --dim batch=1")
        found[matched[1].strip()] = int(matched[2])
    return found
