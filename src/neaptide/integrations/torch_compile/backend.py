"""The backend `neaptide` of `torch.compile`: AOTAutograd's joint graph is planned, and lowered to two programs of one plan.

A model in training is cut at a border that the plan decides: what lives across it is saved, the rest is recomputed. Both
programs empty the list of their arguments, so that what was saved dies inside of the backward. In inference there is one
program, and its order alone is planned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from torch import fx

from neaptide.errors import NeaptideError
from neaptide.integrations.torch_compile import _torch_private as private
from neaptide.integrations.torch_compile.boxed import boxed
from neaptide.integrations.torch_compile.inductor.route import Request, compile_by_inductor
from neaptide.integrations.torch_compile.joint_graph import JointGraph, Sides, read_joint
from neaptide.integrations.torch_compile.ledger import Ledger, Piece, ledger_of
from neaptide.integrations.torch_compile.normal_form import normal_form
from neaptide.integrations.torch_compile.options import INDUCTOR, Options, read_options
from neaptide.integrations.torch_compile.partition import cut, in_order, sides_of
from neaptide.integrations.torch_compile.planning import PlannedJoint, plan_joint

_LOCAL: Final = re.compile("^[lL]_(self_)?|_$")
_CONTAINERS: Final = re.compile("_?(?:modules|parameters|buffers)_")
Modules = tuple[fx.GraphModule, fx.GraphModule]


def neaptide(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo. What is wrong with the request, or does not fit, is raised by the call that compiles it."""
    try:
        asked = read_options(options, mode)
        frame = private.frame_id()
        ledger = ledger_of(options, asked, frame)
        ledger.look_for_break(module)
        if asked.lowering == INDUCTOR:
            return compile_by_inductor(module, inputs, Request(asked, ledger, frame, input_names(module)))
        partition = Partition(asked, ledger, frame, input_names(module))
        backend = private.aot_backend(
            fw_compiler=_compiled,
            bw_compiler=_compiled,
            inference_compiler=partition.inference,
            partition_fn=partition,
        )
        compiled: Callable[..., Any] = backend(module, inputs)
    except NeaptideError as error:
        return _refusal(error)
    return compiled


def _refusal(error: NeaptideError) -> Callable[..., Any]:
    """What raises an error as it is. Dynamo would wrap one that is raised while it compiles."""

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    return refused


def _compiled(module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
    return boxed(module)


class Partition:
    """The partition function of AOTAutograd, and the same for a graph without a backward.

    `inference` makes programs of ATen.
    """

    def __init__(self, options: Options, ledger: Ledger, frame: str, names: Sequence[str] = ()) -> None:
        self.options, self.ledger, self.frame, self.names = options, ledger, frame, names

    def __call__(self, joint: fx.GraphModule, _inputs: Any, *, num_fwd_outputs: int, **_more: Any) -> Modules:
        """The forward and the backward graph, in the order of the plan."""
        normal_form(joint)
        read = read_joint(joint, sides_of(joint, num_fwd_outputs))
        return cut(read, self._plan(read).sequence)

    def inference(self, module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """The program of a graph without a backward, in the order of its plan."""
        normal_form(module)
        taken = tuple(node for node in module.graph.nodes if node.op == "placeholder")
        output = next(iter(reversed(module.graph.nodes)))
        read = read_joint(module, Sides(taken, (), tuple(output.args[0]), (), {}))
        return boxed(in_order(read, self._plan(read).sequence))

    def _plan(self, read: JointGraph) -> PlannedJoint:
        plan = plan_joint(read, self.options, self.ledger.outside_bytes(self.frame), self.names)
        self.ledger.add(Piece.of(self.frame, plan))
        return plan


def input_names(module: fx.GraphModule) -> tuple[str, ...]:
    """What the user calls the inputs of a graph of Dynamo, about: `l_self_modules_head_parameters_weight_` is `head.weight`."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(".".join(filter(None, _CONTAINERS.split(_LOCAL.sub("", name)))) for name in names)
