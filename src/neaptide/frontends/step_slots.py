"""The data of a traced step: what goes in, what comes out, and what exists before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from neaptide.frontends.recording import Recording
from neaptide.frontends.step_state import StepState

HOST_RATE_KEYS = ("lr",)  # changing scalars of a parameter group that become inputs of the graph
IGNORED_GROUP_KEYS = frozenset({"params", "lr", "initial_lr", "foreach", "fused", "param_names"})


@dataclass(frozen=True)
class TensorSpec:
    """Geometry of a tensor that may not exist yet, such as optimizer state before the first step."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorSpec:
        """The geometry of a tensor."""
        return TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)

    def empty(self) -> torch.Tensor:
        """A new tensor of this geometry; what has no bytes stands for a tensor on the CPU."""
        device = torch.device("cpu") if self.device.type == "meta" else self.device
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)


@dataclass(frozen=True)
class EntryPattern:
    """Which gradients and which optimizer state exist when the step begins.

    Attributes:
        gradients: by parameter name.
        optimizer_state: by (optimizer, parameter name, key).
    """

    gradients: Mapping[str, TensorSpec] = field(default_factory=dict)
    optimizer_state: Mapping[tuple[str, str, str], TensorSpec] = field(default_factory=dict)

    def names(self) -> tuple[frozenset[str], frozenset[tuple[str, str, str]]]:
        """What is present, without the geometry."""
        return frozenset(self.gradients), frozenset(self.optimizer_state)


@dataclass(frozen=True)
class InputSlot:
    """One input of the captured program.

    `role` is parameter, buffer, tensor, gradient, optimizer_state, rate (a Python number that changes: of a
    parameter group, where it may be a tensor as well, of the state or among the arguments) or batch. `key` says
    where it is read at each call.
    """

    role: str
    name: str
    key: tuple[Any, ...]


@dataclass(frozen=True)
class OutputSlot:
    """One output: `role` is result (a leaf of what the step returns), gradient or optimizer_state."""

    role: str
    name: str
    key: tuple[Any, ...]


@dataclass(frozen=True)
class Trace:
    """A traced step.

    Attributes:
        recording: the operations that were dispatched.
        inputs: meaning of each placeholder, in order.
        outputs: meaning of each output, in order.
        result_spec: how the step's return value is put together again.
        constants: leaves of the return value that are no tensors, by leaf position.
        entry: what the step was traced with.
        exit: what it leaves behind.
        kept_gradients: parameters whose entry gradient is still theirs after the step.
        borrowed: leaves of the return value that are the user's own, by leaf position: `("tensor", name)` of a slot or
            `("object", name)` of a place.
        attached: positions of the tensors in the return value that autograd knows how to go back through.
    """

    recording: Recording
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    result_spec: Any
    constants: Mapping[int, Any]
    entry: EntryPattern
    exit: EntryPattern
    kept_gradients: frozenset[str]
    borrowed: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    attached: frozenset[int] = frozenset()


def present_pattern(state: StepState) -> EntryPattern:
    """The gradients and optimizer state that exist right now."""
    gradients = {}
    parameter_names = {}
    for slot in state.tensors:
        tensor = slot.current()
        parameter_names[id(tensor)] = slot.name
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
            gradients[slot.name] = TensorSpec.of(tensor.grad)
    optimizer_state = {}
    for label, optimizer in state.optimizers.items():
        for parameter, entries in optimizer.state.items():
            if id(parameter) not in parameter_names:
                continue
            for key, content in entries.items():
                if isinstance(content, torch.Tensor):
                    name = parameter_names[id(parameter)]
                    optimizer_state[label, name, key] = TensorSpec.of(content)
    return EntryPattern(gradients, optimizer_state)


def present_names(state: StepState) -> tuple[frozenset[str], frozenset[tuple[str, str, str]]]:
    """Which gradients and optimizer state exist right now: picks the program of a step, at each call."""
    gradients = set()
    names = {}
    for slot in state.tensors:
        tensor = slot.current()
        names[id(tensor)] = slot.name
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
            gradients.add(slot.name)
    entries = {
        (label, names[id(parameter)], key)
        for label, optimizer in state.optimizers.items()
        for parameter, kept in optimizer.state.items()
        if id(parameter) in names
        for key, content in kept.items()
        if isinstance(content, torch.Tensor)
    }
    return frozenset(gradients), frozenset(entries)


def argument_name(position: int) -> str:
    """Name of a leaf of the step's arguments."""
    return f"batch[{position}]"


def observation_name(parameter: str, optimizer_step: int) -> str:
    """Name of a gradient as it is when the n-th `optimizer.step()` of a training step begins (from 0)."""
    return f"{parameter}.grad@{optimizer_step}"
