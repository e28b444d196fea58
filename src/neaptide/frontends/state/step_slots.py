"""The data of a traced step: what goes in, what comes out, and what exists before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from neaptide.frontends.objects.values import is_scalar
from neaptide.frontends.recording.host_part import is_host_number
from neaptide.frontends.state.step_state import StepState

_RATE = "lr"  # the hyper-parameter that schedulers are for: an input of every program
_IGNORED_GROUP_KEYS = frozenset({"params", "initial_lr", "foreach", "fused", "param_names"})


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


class HyperParameter(NamedTuple):
    """One entry of a parameter group, or the item at a position of a tuple or list in it, as the betas are."""

    name: str
    group: int
    key: str
    position: int | None
    content: Any

    def is_input(self, changing: frozenset[str]) -> bool:
        """Whether a program reads it at each call: tensors, learning rates, and numbers that were seen to change."""
        if isinstance(self.content, torch.Tensor) or self.name in changing:
            return True
        return self.key == _RATE and type(self.content) in NUMBER_TYPES

    def slot_key(self, label: str) -> tuple[Any, ...]:
        """Of the input that it is."""
        return "rate", label, self.group, self.key, self.position


def hyper_parameters(label: str, optimizer: torch.optim.Optimizer) -> Iterator[HyperParameter]:
    """What stands in the parameter groups of an optimizer, group by group, but the parameters."""
    for index, group in enumerate(optimizer.param_groups):
        where = f"{label}.param_groups[{index}]."
        for key, content in group.items():
            if key in _IGNORED_GROUP_KEYS:
                continue
            if type(content) in (tuple, list):
                for position, item in enumerate(content):
                    yield HyperParameter(f"{where}{key}[{position}]", index, key, position, item)
            else:
                yield HyperParameter(where + key, index, key, None, content)


@dataclass(frozen=True)
class PlainSpec:
    """An entry of optimizer state that is no tensor.

    `content` is None for an int or a float, which the program reads and writes at each call, and for what is no plain value.
    """

    kind: type
    content: Any = None

    @staticmethod
    def of(content: Any) -> PlainSpec:
        """The spec of a number, a symbol that stands for one, or another plain value."""
        if isinstance(content, torch.SymInt):
            return PlainSpec(int)
        if isinstance(content, torch.SymFloat):
            return PlainSpec(float)
        kind = type(content)
        return PlainSpec(kind, content if is_scalar(content) and kind not in NUMBER_TYPES else None)


NUMBER_TYPES = (int, float)  # what the step may count in
INPUT_TYPES = (
    *NUMBER_TYPES,
    np.float64,
)  # what becomes an input where it changes: NumPy's doubles compute as floats do
StateKey = tuple[str, str, str]  # optimizer, parameter name, key


@dataclass(frozen=True)
class EntryPattern:
    """Which gradients, by parameter name, and which optimizer state exist when the step begins.

    Attributes:
        numbers: by slot key, what the host can read of that state, and what the step counts in: step counts, mostly.
        flags: by name of a leaf tensor, `requires_grad`; once a step is captured, of those whose flag it writes.
    """

    gradients: Mapping[str, TensorSpec] = field(default_factory=dict)
    optimizer_state: Mapping[StateKey, TensorSpec | PlainSpec] = field(default_factory=dict)
    numbers: Mapping[tuple[Any, ...], Any] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)

    def names(self) -> tuple[frozenset[str], frozenset[tuple[Any, ...]], frozenset[tuple[str, bool]]]:
        """What is present: of tensors without the geometry, of Python numbers the type, of plain values and flags all."""
        entries = (
            key if isinstance(spec, TensorSpec) else (*key, spec)
            for key, spec in self.optimizer_state.items()
        )
        return frozenset(self.gradients), frozenset(entries), frozenset(self.flags.items())

    def only_flags(self, names: frozenset[str]) -> EntryPattern:
        """The same with the flags of some tensors alone."""
        return replace(self, flags={name: flag for name, flag in self.flags.items() if name in names})


@dataclass(frozen=True)
class InputSlot:
    """One input of the captured program; `key` says where it is read at each call.

    `role` is parameter, buffer, tensor, gradient, optimizer_state, rate (a Python number that changes: of a
    parameter group, where it may be a tensor as well, of the state, of an optimizer's state or among the arguments)
    or batch.
    """

    role: str
    name: str
    key: tuple[Any, ...]


@dataclass(frozen=True)
class OutputSlot:
    """One output.

    `role` is result (a leaf of what the step returns, or leaves in a container among its arguments), gradient,
    optimizer_state, hyper_parameter (a number that the step writes into a parameter group), number (that it writes into a
    place of the state) or skipped (not zero where a gradient scaler skips the optimizer that is the key: then nothing is
    written of its state and groups).
    """

    role: str
    name: str
    key: tuple[Any, ...]


def present_pattern(state: StepState) -> EntryPattern:
    """The gradients and optimizer state that exist right now, and the flags."""
    leaves = [(slot.name, slot.current()) for slot in state.tensors if slot.current().is_leaf]
    flagged = state.flagged
    optimizer_state: dict[StateKey, TensorSpec | PlainSpec] = {}
    numbers = {}
    for key, content in _state_entries(state):
        is_tensor = isinstance(content, torch.Tensor)
        optimizer_state[key] = TensorSpec.of(content) if is_tensor else PlainSpec.of(content)
        if is_host_number(content):
            numbers["state", *key] = content
    return EntryPattern(
        {name: TensorSpec.of(tensor.grad) for name, tensor in leaves if tensor.grad is not None},
        optimizer_state,
        numbers,
        {name: tensor.requires_grad for name, tensor in leaves if flagged is None or name in flagged},
    )


def _state_entries(state: StepState) -> Iterator[tuple[StateKey, Any]]:
    """Entries of optimizer state that belong to a parameter of the step."""
    names = {id(slot.current()): slot.name for slot in state.tensors}
    for label, table in state.kept_state():
        for parameter, entries in table.items():
            if id(parameter) in names:
                yield from (((label, names[id(parameter)], key), content) for key, content in entries.items())


def held_elsewhere(state: StepState) -> dict[StateKey, str]:
    """Entries of optimizer state that the step reaches by another place as well: by key, the name of the tensor."""
    names = {id(slot.current()): slot.name for slot in state.tensors}
    return {key: names[id(content)] for key, content in _state_entries(state) if id(content) in names}


def argument_name(position: int) -> str:
    """Name of a leaf of the step's arguments."""
    return f"batch[{position}]"


def observation_name(parameter: str, optimizer_step: int) -> str:
    """Name of a gradient as it is when the n-th `optimizer.step()` of a training step begins (from 0)."""
    return f"{parameter}.grad@{optimizer_step}"


def renamed_observation(name: str, parameters: Mapping[str, str]) -> str:
    """The name of an observed gradient where the parameters go by other names."""
    parameter, _, optimizer_step = name.rpartition(".grad@")
    return observation_name(parameters.get(parameter, parameter), int(optimizer_step))
