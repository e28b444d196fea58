"""Compiles a graph of Dynamo by Inductor, with our partition of its joint graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import fx

from neaptide.ask import BITWISE
from neaptide.errors import LoweringError
from neaptide.integrations.torch_compile.elsewhere import NOTHING
from neaptide.integrations.torch_compile.inductor import _torch_private as private
from neaptide.integrations.torch_compile.inductor import prediction
from neaptide.integrations.torch_compile.inductor.mutations import write_in_forward
from neaptide.integrations.torch_compile.inductor.rounds import (
    Candidate,
    Problem,
    best_within,
    drawn_once,
    rounds_for,
)
from neaptide.integrations.torch_compile.joint.fx_values import is_number
from neaptide.integrations.torch_compile.joint.joint_graph import Sides, read_joint
from neaptide.integrations.torch_compile.joint.normal_form import normal_form
from neaptide.integrations.torch_compile.ledger import Ledger, Piece
from neaptide.integrations.torch_compile.options import BEST, Options
from neaptide.integrations.torch_compile.planning import plan_joint
from neaptide.integrations.torch_compile.programs.partition import given_by, in_order, output_of, sides_of
from neaptide.version import VERSION

Modules = tuple[fx.GraphModule, fx.GraphModule]


@dataclass(frozen=True)
class Request:
    """What a graph of Dynamo is compiled for."""

    options: Options
    ledger: Ledger
    frame: str
    names: tuple[str, ...] = ()

    @property
    def outside_bytes(self) -> int:
        """What other graphs of the model hold meanwhile."""
        return self.ledger.outside_bytes(self.frame)


def compile_by_inductor(
    module: fx.GraphModule, inputs: Sequence[Any], request: Request
) -> Callable[..., Any]:
    """The compiled graph.

    Raises:
        LoweringError: Inductor has no compiler here.
        InfeasibleBudget: no plan fits.
    """
    _check_compilers(inputs)
    with private.no_programs_of_aot():
        return private.compile_fx(
            module,
            inputs,
            inner_compile=_Inner(request),
            config_patches={"custom_partitioner_fn": partitioner(request), "cpp_wrapper": False},
        )


def _check_compilers(inputs: Sequence[Any]) -> None:
    for device in sorted({one.device.type for one in inputs if isinstance(one, torch.Tensor)}):
        if (reason := private.without_compiler(device)) is not None:
            raise LoweringError(
                f"Inductor cannot compile for {device} here",
                why=reason,
                next_step='install a compiler, or leave out "lowering"',
            )


def partitioner(request: Request) -> Any:
    """What Inductor calls with a joint graph."""

    class Partitioner(private.partitioner_base()):  # type: ignore[misc]
        def __call__(
            self, joint: fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **more: Any
        ) -> Modules:
            own = private.own_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)
            return _partition(request, joint, own, num_fwd_outputs)

        def uuid(self) -> Any:
            return "neaptide", VERSION, tuple(sorted(asdict(request.options).items()))

        def __reduce__(self) -> Any:  # settings of Inductor are pickled where it makes the key of its cache
            return tuple, (self.uuid(),)

    return Partitioner()


def _partition(request: Request, joint: fx.GraphModule, own: Modules, num_fwd_outputs: int) -> Modules:
    first = Candidate(own, prediction.of_training(*own, num_fwd_outputs))

    def problem() -> Problem:
        if any(is_number(node) for node in prediction.placeholders(joint)):
            normal_form(joint)
            return Problem(
                drawn_once(read_joint(joint, write_in_forward(joint, sides_of(joint, num_fwd_outputs))))
            )
        return Problem.of(joint, own, first.compiled.programs, num_fwd_outputs)

    found = best_within(
        first,
        lambda allowed: rounds_for(problem(), request.options, allowed, request.names),
        request.options,
        request.outside_bytes,
    )
    request.ledger.add(_piece(request, found, first))
    return found.modules


def _piece(request: Request, found: Candidate, own: Candidate) -> Piece:
    outside, plan = request.outside_bytes, found.plan
    return Piece(
        name=request.frame,
        predicted_peak_bytes=found.compiled.peak_bytes + outside,
        baseline_peak_bytes=own.compiled.peak_bytes + outside,
        floor_bytes=found.compiled.held_bytes + outside,
        outside_bytes=outside,
        between_bytes=0,
        saved_bytes=found.compiled.saved_bytes,
        recomputed=0 if plan is None else plan.recomputed,
        operations=sum(len(kernel.origins) for one in found.compiled.programs for kernel in one.kernels),
        seconds=0.0 if plan is None else plan.predictions.seconds,
        baseline_seconds=0.0 if plan is None else plan.predictions.baseline_seconds,
        unknown_ops=() if plan is None else plan.joint.unknown_ops,
        lowering=_told(found),
    )


def _told(found: Candidate) -> str:
    kernels = sum(len(one.kernels) for one in found.compiled.programs)
    partition = "its own partition" if found.plan is None else f"our plan, the best of {found.rounds}"
    return f"Inductor with {kernels} kernels, {partition}; it moved {found.compiled.moved} operations"


class _Inner:
    """What compiles the graphs that AOTAutograd makes. In inference nothing was planned before."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **more: Any) -> Any:
        if more.get("is_inference"):
            module = self._in_order(module, more)
        return private.compile_inner(module, inputs, **more)

    def _in_order(self, module: fx.GraphModule, more: dict[str, Any]) -> fx.GraphModule:
        """The graph in the order of its plan, or as it is where that holds no more."""
        request = self.request
        taken = tuple(node for node in module.graph.nodes if node.op == "placeholder")
        sides = write_in_forward(module, Sides(taken, (), given_by(module), (), {}))
        options = replace(request.options, peak=None, on_infeasible=BEST, numerics=BITWISE)
        plan = plan_joint(read_joint(module, sides), options, NOTHING, request.names)
        planned = in_order(plan.joint, plan.sequence)
        output_of(planned).meta.update(output_of(module).meta)
        own, ours = (
            Candidate((one, one), prediction.of_inference(one, **more), made)
            for one, made in ((module, None), (planned, plan))
        )
        least = min(own, ours, key=lambda one: one.compiled.peak_bytes)
        found = best_within(own, lambda _allowed: [ours], request.options, request.outside_bytes)
        found = least if request.options.peak is None else found
        request.ledger.add(_piece(request, found, own))
        return found.modules[0]
