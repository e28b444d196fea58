"""Moves tensors between the user's objects and a captured program: read anew at each call, written back after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import StepMismatch
from neaptide.frontends.objects.batch_objects import content_of, leaves_of
from neaptide.frontends.objects.places import Place
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.frontends.recording.host_part import HostPart
from neaptide.frontends.state.argument_changes import Call, part_at
from neaptide.frontends.state.step_slots import OutputSlot, hyper_parameters
from neaptide.frontends.state.step_state import StepState, TensorSlot
from neaptide.frontends.watch.first_writes import NO_WRITES, FirstWrites
from neaptide.frontends.watch.trace_watch import LeftTensor
from neaptide.ir.graph import Graph
from neaptide.runtime import _torch_private as private


class Binding:
    """The inputs and outputs of one captured program, tied to the user's module and optimizer.

    Parameters, state and rates are looked up by place at each call, so that loading a state dict, moving data or
    stepping a learning-rate scheduler between calls is seen.

    Args:
        left: places that get a tensor at each call, in the order of the program's outputs.
    """

    def __init__(
        self,
        program: CapturedProgram,
        graph: Graph,
        state: StepState,
        *,
        left: Sequence[tuple[Place, LeftTensor]] = (),
        last_writes: FirstWrites = NO_WRITES,
    ) -> None:
        self._last_writes = last_writes
        self._left = left
        self._program = program
        self._state = state
        self._slots: dict[str, TensorSlot] = {slot.name: slot for slot in state.tensors}
        self._user_names = {
            graph.values[v].name: slot.name for v, slot in zip(graph.inputs, program.inputs, strict=True)
        }
        used = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
        made = {slot.key[0] for slot in program.outputs if slot.role == "gradient"}
        self._replaced = [
            self._slots[name]
            for name in sorted({*program.entry.gradients, *made})
            if name not in program.kept_gradients
        ]
        read = {slot.key[1] for slot in program.inputs if slot.role == "gradient"}
        self._discarded = [slot for slot in self._replaced if slot.name not in read]
        self._numbers = {place.name: place for place in state.scalars if place.name in state.counted}
        self._flags = [
            (self._slots[name], flag)
            for name, flag in program.exit.flags.items()
            if program.entry.flags.get(name) is not flag
        ]
        self._flagged: list[tuple[torch.Tensor, bool]] = []
        self._scalars = {v for v in graph.inputs if graph.values[v].is_host_scalar}
        self._rates: list[torch.Tensor] = []
        self._borrowed = {at: self._reader(key, -1) for at, key in program.returned.borrowed.items()}
        self._returns_arguments = any(kind == "argument" for kind, _ in program.returned.borrowed.values())
        self._passed: list[
            Any
        ] = []  # leaves of the call's arguments, where the step returns some as they are
        self._call: Call = ((), {})  # the arguments, where the step changes lists or dicts among them
        self._attached = program.returned.attached
        self._readers = [
            self._reader(slot.key, value) if value in used else _nothing
            for slot, value in zip(program.inputs, graph.inputs, strict=True)
        ]

    def _reader(self, key: tuple[Any, ...], value: int) -> Reader:
        if key[0] == "held":
            return lambda _leaves: part_at(self._call, key[1])
        now = input_reader(key, self._state, self._slots)
        if key[0] != "rate" or value in self._scalars or isinstance(now([]), torch.Tensor):
            return now
        # A fused kernel reads the rate from a tensor: one that lives as long as the binding.
        rate = torch.zeros((), dtype=torch.float64, device="cpu")
        self._rates.append(rate)
        return lambda leaves: rate.fill_(now(leaves))

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """One entry for each graph input.

        Gradients that the step throws away unread (a `zero_grad` before the backward) are dropped now, as the step
        itself would before it computes anything; those that it never touches stay.
        """
        if self._program.returned.changes:
            self._call = args, kwargs
            self._program.returned.changes.check(self._call, self._state)
        leaves = leaves_of((args, dict(kwargs)))
        inputs = [reader(leaves) for reader in self._readers]
        self._passed = list(map(content_of, leaves)) if self._returns_arguments else []
        self._flagged = [(leaves[at], flag) for at, flag in self._program.returned.argument_flags.items()]
        self.discard()
        return inputs

    def discard(self) -> None:
        """Drop the gradients that the step throws away unread."""
        for slot in self._discarded:
            slot.current().grad = None

    def write_back(self, outputs: tuple[Any, ...]) -> Any:
        """Set gradients and optimizer state, and put the step's return value together."""
        self._last_writes.do()
        results: dict[int, Any] = dict(self._program.returned.constants)
        gradients: dict[str, torch.Tensor] = {}
        written: dict[OutputSlot, Any] = dict(self._program.written)
        skipped: set[str] = set()
        for slot, output in zip(self._program.outputs, outputs, strict=True):
            if slot.role == "result":
                position = slot.key[0]
                is_leaf = self._attached.get(position)
                results[position] = output if is_leaf is None else attached(output, is_leaf=is_leaf)
            elif slot.role == "left":
                place, left = self._left[slot.key[0]]
                place.set(attached(output, is_leaf=left.is_leaf) if left.attached else output)
            elif slot.role == "gradient":
                gradients[slot.key[0]] = output.detach()  # no view: `module.half()` gives it other bytes
            elif slot.role == "skipped":
                if output.item():
                    skipped.add(slot.key[0])
            else:
                written[slot] = output
        for slot, content in written.items():
            if slot.key[0] not in skipped:
                self._write(slot, content)
        for parameter in self._replaced:
            parameter.current().grad = gradients.get(parameter.name)
        for tensor, flag in (*((slot.current(), flag) for slot, flag in self._flags), *self._flagged):
            tensor.requires_grad_(flag)
        self._flagged = []
        for optimizer in (*self._state.optimizers.values(), *self._state.wrappers):
            private.note_optimizer_step(optimizer)
        results.update((position, read(self._passed)) for position, read in self._borrowed.items())
        self._passed = []
        leaves = [results[position] for position in range(len(results))]
        returned = self._program.returned.spec.num_leaves
        if self._program.returned.changes:
            self._program.returned.changes.do(self._call, leaves[returned:])
            self._call = ((), {})
        return pytree.tree_unflatten(leaves[:returned], self._program.returned.spec)

    def _write(self, slot: OutputSlot, content: Any) -> None:
        """Put something into the state of an optimizer, into a parameter group, or a number where the user counts."""
        if slot.role == "optimizer_state":
            label, name, entry = slot.key
            self._state.optimizers[label].state[self._slots[name].current()][entry] = content
        elif slot.role == "number":
            self._numbers[slot.key[0]].set(content)
        else:
            label, index, entry = slot.key
            self._state.optimizers[label].param_groups[index][entry] = content

    def user_name(self, value_name: str) -> str:
        """What the user calls the input that is `value_name` in the graph."""
        return self._user_names.get(value_name, value_name)

    def persistent(self) -> list[torch.Tensor]:
        """Tensors of the step's state that exist now; they live through the whole step."""
        return [*state_tensors(self._state), *self._rates]


def state_tensors(state: StepState) -> list[torch.Tensor]:
    """Parameters, buffers, loose tensors, tensors among the hyper-parameters, gradients and optimizer state, as of now."""
    tensors = [slot.current() for slot in state.tensors]
    rates = [
        entry.content
        for label, optimizer in state.optimizers.items()
        for entry in hyper_parameters(label, optimizer)
        if isinstance(entry.content, torch.Tensor)
    ]
    gradients = [t.grad for t in tensors if t.is_leaf and t.grad is not None]
    entries = [
        entry
        for _, table in state.kept_state()
        for owned in table.values()
        for entry in owned.values()
        if isinstance(entry, torch.Tensor)
    ]
    return [*tensors, *rates, *gradients, *entries]


def _nothing(_leaves: list[Any]) -> None:
    """The program does not use this input."""
    return


Reader = Callable[[list[Any]], Any]
"""Takes the leaves of a call's arguments and gives the input."""


def input_reader(key: tuple[Any, ...], state: StepState, slots: dict[str, TensorSlot]) -> Reader:
    """The reader of one input."""
    kind = key[0]
    if kind == "tensor":
        return _TensorReader(slots[key[1]])
    if kind == "gradient":
        slot = slots[key[1]]
        return lambda _leaves: slot.current().grad
    if kind == "state":
        _, label, name, entry = key
        optimizer, slot = state.optimizers[label], slots[name]
        return lambda _leaves: optimizer.state[slot.current()][entry]
    if kind == "rate":
        _, label, index, entry, item = key
        optimizer = state.optimizers[label]
        if item is None:
            return lambda _leaves: optimizer.param_groups[index][entry]
        return lambda _leaves: optimizer.param_groups[index][entry][item]
    if kind in {"scalar", "object", "unread"}:
        known = {"scalar": state.scalars, "object": state.objects, "unread": state.unread}[kind]
        place = next(place for place in known if place.name == key[1])
        return lambda _leaves: place.get()
    position = key[1]
    return lambda leaves: leaves[position]


class _TensorReader:
    """The tensor that is in a place now."""

    __slots__ = ("_slot",)

    def __init__(self, slot: TensorSlot) -> None:
        self._slot = slot

    def __call__(self, _leaves: list[Any]) -> Any:
        return self._slot.current()


def attached(tensor: torch.Tensor, *, is_leaf: bool) -> torch.Tensor:
    """The same bytes as a tensor that requires a gradient.

    Args:
        is_leaf: whether it is a leaf in eager; a backward pass through any other is refused.
    """
    leaf = tensor.detach().requires_grad_()
    if is_leaf:
        return leaf
    result: torch.Tensor = _NoWayBack.apply(leaf)  # type: ignore[no-untyped-call]
    return result


class _NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        # Not a view: host code may add to a running loss in place.
        return tensor.new_empty(0).set_(tensor)  # type: ignore[call-overload, no-any-return]

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        raise StepMismatch(
            "a backward pass outside of the planned program goes through one of its results",
            why="the program has done its own backward, and has let go of what another one needs",
            next_step="put loss and backward inside the step, in front of what counts, logs or prints; or use .detach()",
        )


class Decided:
    """The branches of one program, tied to the user's objects."""

    def __init__(self, part: HostPart, state: StepState) -> None:
        self._part = part
        slots = {slot.name: slot for slot in state.tensors}
        self._readers: list[Reader] = [input_reader(key, state, slots) for key in part.keys]

    def hold(self, leaves: list[Any]) -> bool:
        """Whether a call whose arguments have these leaves takes the same branches. O(numbers that decide)."""
        return self._part.holds([reader(leaves) for reader in self._readers])
