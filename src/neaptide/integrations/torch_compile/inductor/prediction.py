"""What the programs that Inductor makes of a plan hold at any moment: forward, then backward, as AOTAutograd calls them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import fx

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.integrations.torch_compile._torch_private import as_in_eager
from neaptide.integrations.torch_compile.inductor import _torch_private as inductor
from neaptide.integrations.torch_compile.inductor._torch_private import Generated
from neaptide.integrations.torch_compile.inductor.program import Meter, play
from neaptide.integrations.torch_compile.inductor.scratch import scratch_bytes
from neaptide.integrations.torch_compile.joint.fx_values import hint, is_number
from neaptide.integrations.torch_compile.programs.partition import given_by, output_of


@dataclass(frozen=True, slots=True)
class Compiled:
    """The programs of a plan, before their kernels are compiled, and what they hold.

    Attributes:
        programs: forward and backward; one in inference.
        peak_bytes: the highest, with scratch of ATen's kernels; parameters, inputs, outputs and gradients are included.
        saved_bytes: what lives between both passes beside the caller's inputs and outputs.
        held_bytes: what lives when all has run: no plan has a lower peak.
        moved: operations that Inductor runs earlier or later, among its kernels, than the graphs say.
    """

    programs: tuple[Generated, ...]
    peak_bytes: int
    saved_bytes: int
    held_bytes: int
    moved: int


class Prediction:
    """Plays the programs of one graph, one after the other."""

    def __init__(self) -> None:
        self.mode = private.new_fake_mode()
        self.meter = Meter()
        self.held: list[torch.Tensor] = []  # by the caller

    def fakes(self, nodes: Iterable[fx.Node]) -> list[Any]:
        """Arguments of a program, as at the first call."""
        made = []
        for node in nodes:
            content = node.meta["val"]
            if isinstance(content, torch.Tensor):
                content = self._fake(content)
            made.append(hint(content))
        return made

    def hold(self, given: Iterable[Any]) -> None:
        """Note what the caller keeps: it lives to the end."""
        for one in given:
            if isinstance(one, torch.Tensor):
                self.held.append(one)
                self.meter.enter(one)

    def run(self, program: Generated, args: list[Any]) -> list[Any]:
        """What a program returns. The list of its arguments is emptied.

        Raises:
            CaptureError: it does something that needs numbers, or another machine.
        """
        constants = {name: self._fake(one) for name, one in program.constants.items()}
        for one in args:
            if isinstance(one, torch.Tensor):
                self.meter.enter(one)
        self.meter.moments.append((self.meter.live_bytes, None))
        with as_in_eager(), self.mode:
            try:
                return list(play(program.source, args, self.meter, constants))
            except Exception as error:
                raise CaptureError(
                    "what a program of Inductor allocates cannot be told before it runs",
                    why=(str(error).strip().splitlines() or [type(error).__name__])[0],
                    next_step='use "lowering": "aten"',
                ) from error

    def peak_bytes(self) -> int:
        """The highest bytes, with scratch."""
        moments = self.meter.moments
        with as_in_eager():
            scratch = scratch_bytes(call for _, call in moments if call is not None)
        return max(live + (scratch[call] if call is not None else 0) for live, call in moments)

    def compiled(
        self, programs: tuple[Generated, ...], modules: tuple[fx.GraphModule, ...], saved_bytes: int
    ) -> Compiled:
        """What was found, when all has run."""
        moved = sum(map(moved_in, modules, programs))
        return Compiled(programs, self.peak_bytes(), saved_bytes, self.meter.live_bytes, moved)

    def _fake(self, content: torch.Tensor) -> torch.Tensor:
        shape, strides = [hint(n) for n in content.shape], [hint(n) for n in content.stride()]
        return private.new_fake(self.mode, shape, strides, content.dtype, content.device)


def moved_in(module: fx.GraphModule, program: Generated) -> int:
    """How many operations run before one that a graph has earlier. Kernels stand where the last of their nodes stands."""
    place = {node.name: position for position, node in enumerate(module.graph.nodes)}
    moved = highest = 0
    for kernel in program.kernels:
        places = [place[name] for name in kernel.origins if name in place]
        if places:
            moved += len(places) * (max(places) < highest)
            highest = max(highest, *places)
    return moved


def placeholders(module: fx.GraphModule) -> list[fx.Node]:
    """The inputs of a graph."""
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _fakes_of(given: Iterable[Any]) -> list[Any]:
    return [one.meta.get("val") if isinstance(one, fx.Node) else one for one in given]


def of_training(
    forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int, **settings: Any
) -> Compiled:
    """What Inductor makes of the two graphs of a plan."""
    played = Prediction()
    _mark_visible(forward, num_fwd_outputs)
    with inductor.patched(**settings):
        first = inductor.generate(forward, [node.meta["val"] for node in placeholders(forward)])
    args = played.fakes(placeholders(forward))
    played.hold(args)
    returned = played.run(first, args)
    played.hold(returned[:num_fwd_outputs])
    saved = returned[num_fwd_outputs:]
    del returned
    saved_bytes = played.meter.bytes_of(saved) - played.meter.bytes_of(played.held, saved)
    taken = placeholders(backward)
    numbers = [node for node in taken if is_number(node)]
    tensors = [node for node in taken if not is_number(node)]
    assert saved_bytes >= 0
    saved[:] = [*saved[len(saved) - len(numbers) :], *saved[: len(saved) - len(numbers)]]
    kept = [node.meta["val"] for node in tensors[: len(saved) - len(numbers)]]
    fakes = (_fakes_of(given_by(forward)[:num_fwd_outputs]), kept, _fakes_of(given_by(backward)))
    inputs = [node.meta["val"] for node in placeholders(forward)]
    with inductor.patched(**settings), inductor.overwriting_saved(inputs, *fakes, len(numbers)):
        second = inductor.generate(
            backward,
            [_as_returned(node, one) for node, one in zip_longest([*numbers, *tensors], saved)],
            is_backward=True,
            static_input_idxs=list(range(inductor.first_fixed(backward))),
        )
    tangents = played.fakes(taken[len(saved) :])
    played.hold(tangents)
    saved += tangents
    played.hold(played.run(second, saved))
    return played.compiled((first, second), (forward, backward), saved_bytes)


def of_inference(module: fx.GraphModule, **more: Any) -> Compiled:
    """What Inductor makes of a graph without a backward."""
    played = Prediction()
    program = inductor.generate(module, [node.meta["val"] for node in placeholders(module)], **more)
    args = played.fakes(placeholders(module))
    played.hold(args)
    played.hold(played.run(program, args))
    return played.compiled((program,), (module,), 0)


def _mark_visible(forward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """Say which outputs the user sees, whose strides Inductor keeps."""
    seen = enumerate(given_by(forward)[:num_fwd_outputs])
    output_of(forward).meta["user_visible_output_idxs"] = [k for k, one in seen if isinstance(one, fx.Node)]


def _as_returned(node: fx.Node, saved: Any) -> Any:
    """The fake of AOTAutograd for an input of the backward, with the strides that the forward program gives it."""
    content = node.meta["val"]
    if not isinstance(saved, torch.Tensor) or [hint(n) for n in content.stride()] == list(saved.stride()):
        return content
    return content.as_strided(content.size(), saved.stride())
