"""The backend `neaptide` of `torch.compile`: AOTAutograd's joint graph is planned, and lowered to two programs of one plan.

A model in training is cut at a border that the plan decides: what lives across it is saved, the rest is recomputed. Both
programs empty the list of their arguments, so that what was saved dies inside of the backward. In inference there is one
program, and its order alone is planned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import fx

from neaptide.analysis.sizes import usual_device
from neaptide.cost._torch_private import storage_identity
from neaptide.errors import NeaptideError
from neaptide.integrations.torch_compile import _torch_private as private
from neaptide.integrations.torch_compile.elsewhere import PassMeter
from neaptide.integrations.torch_compile.inductor.route import Request, compile_by_inductor
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph, Sides, read_joint
from neaptide.integrations.torch_compile.joint.normal_form import normal_form
from neaptide.integrations.torch_compile.ledger import Ledger, ledger_of
from neaptide.integrations.torch_compile.options import INDUCTOR, Options, read_options
from neaptide.integrations.torch_compile.planning import PlannedJoint
from neaptide.integrations.torch_compile.programs.boxed import boxed
from neaptide.integrations.torch_compile.programs.partition import cut, in_order, sides_of

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
        partition = Partition(asked, ledger, frame, input_names(module), owned_bytes(inputs))
        compiled = Compiled(module, inputs, partition)
    except NeaptideError as error:
        return _refusal(error)
    return compiled


def _refusal(error: NeaptideError) -> Callable[..., Any]:
    """What raises an error as it is. Dynamo would wrap one that is raised while it compiles."""

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    return refused


class Compiled:
    """The programs of a graph of Dynamo; they are made anew where the ledger says so."""

    def __init__(self, module: fx.GraphModule, inputs: Sequence[Any], partition: Partition) -> None:
        self.module, self.partition = module, partition
        self.programs = self._made(inputs)

    def __call__(self, *args: Any) -> Any:
        if self.partition.replanned is not None:
            with private.traced_again(self.module) as fakes:
                self.programs = self._made(fakes)
        return self.programs(*args)

    def _made(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        partition = self.partition
        backend = private.aot_backend(
            fw_compiler=partition.forward,
            bw_compiler=partition.backward,
            inference_compiler=partition.inference,
            partition_fn=partition,
        )
        made: Callable[..., Any] = backend(self.module, inputs)
        return made


class Partition:
    """The partition function of AOTAutograd, and the same for a graph without a backward.

    Any compiler may take what it returns; `forward`, `backward` and `inference` make programs of ATen.
    """

    def __init__(
        self,
        options: Options,
        ledger: Ledger,
        frame: str,
        names: Sequence[str] = (),
        owned: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.options, self.ledger, self.frame, self.names = options, ledger, frame, names
        self.owned = owned
        self.replanned: PlannedJoint | None = None
        self._meter: PassMeter | None = None

    def __call__(self, joint: fx.GraphModule, _inputs: Any, *, num_fwd_outputs: int, **_more: Any) -> Modules:
        """The forward and the backward graph, in the order of the plan."""
        plan, self.replanned = self.replanned, None
        if plan is None:
            normal_form(joint)
            plan = self._plan(read_joint(joint, sides_of(joint, num_fwd_outputs)))
            where = torch.device(usual_device(plan.joint.graph))
            if where.type == "cuda":
                tell = partial(self.ledger.measured, self.frame)
                self._meter = PassMeter(where, len(plan.joint.sides.tangents), tell)
        return cut(plan.joint, plan.sequence)

    def forward(self, module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """The program of a forward pass."""
        return boxed(module) if self._meter is None else self._meter.forward(boxed(module))

    def backward(self, module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """The program of a backward pass."""
        return boxed(module) if self._meter is None else self._meter.backward(boxed(module))

    def inference(self, module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """The program of a graph without a backward, in the order of its plan."""
        plan, self.replanned = self.replanned, None
        if plan is None:
            normal_form(module)
            taken = tuple(node for node in module.graph.nodes if node.op == "placeholder")
            output = next(iter(reversed(module.graph.nodes)))
            plan = self._plan(read_joint(module, Sides(taken, (), tuple(output.args[0]), (), {})))
        return boxed(in_order(plan.joint, plan.sequence))

    def _plan(self, read: JointGraph) -> PlannedJoint:
        return self.ledger.plan(self.frame, read, self.names, self.owned, self._plan_again)

    def _plan_again(self, plan: PlannedJoint) -> None:
        self.replanned = plan


def owned_bytes(inputs: Sequence[Any]) -> dict[int, int]:
    """Bytes of the inputs that are no results of the model, by storage; of what has none, nothing is known."""
    found = {}
    for one in inputs:
        if isinstance(one, torch.Tensor) and one.grad_fn is None and not private.is_fake(one):
            storage = one.untyped_storage()
            found[storage_identity(storage)] = storage.nbytes()
    return found


def input_names(module: fx.GraphModule) -> tuple[str, ...]:
    """What the user calls the inputs of a graph of Dynamo, about: `l_self_modules_head_parameters_weight_` is `head.weight`."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(".".join(filter(None, _CONTAINERS.split(_LOCAL.sub("", name)))) for name in names)
