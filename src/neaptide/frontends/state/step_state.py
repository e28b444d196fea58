"""What a training step works on: modules, optimizers, loose tensors and the Python state it may read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from neaptide.frontends.objects.places import Place


@dataclass(eq=False)
class TensorSlot:
    """A tensor of the step's state and every place that holds it (tied weights have several)."""

    name: str
    role: str
    places: list[Place]

    def current(self) -> torch.Tensor:
        """The tensor that is there now; it may have been replaced since the capture."""
        tensor: torch.Tensor = self.places[0].get()
        return tensor


@dataclass(eq=False)
class Owner:
    """An object whose attributes, at the capture those that are `known`, decide what the step runs.

    Where it `is_open`, any further attribute may be read, named by the step's code or not.
    """

    name: str
    item: Any
    known: tuple[str, ...]
    is_open: bool = False


@dataclass(eq=False)
class StepState:
    """Everything that was found.

    Attributes:
        modules: by a name in the user's words; a module inside another found one is not listed.
        optimizers: those that have parameter groups of their own, likewise. Some may share groups and state.
        wrappers: optimizers by type that hand on to one of those, and keep nothing themselves.
        scalers: gradient scalers that are enabled, likewise.
        tensors: parameters, buffers and loose tensors, one slot for each distinct tensor.
        unused: loose tensors that no captured program of the step reads.
        scalars: Python numbers, strings and flags that the step may read; guards are made of them.
        objects: places of modules, optimizers, functions and containers that the step may read: another object
            there means another step.
        watched: every place that was seen; a step that writes one while it is traced is refused.
        containers: mutable lists and dicts (and attribute dicts) that the step could write to.
        sized: the lists, dicts and deques whose length and order the step may read.
        tuples: places of tuples; their entries are places of their own.
        contents: collections without places for their entries (sets, arrays, bytes), read as a whole.
        closed: places of data that is too large to be compared at each call; a trace may not use it.
        iterators: places of iterators and open files, which a trace must not draw from.
        environment: environment variables that the step was seen to read while it was traced; they are guards.
        hidden: names of tensors that were seen where no place can be swapped.
        module_paths: `id(submodule)` to its dotted path.
        torch_owned: ids of attribute dicts of torch's own modules; what they write there by themselves is no effect.
        functions: the user's functions and methods that the step can reach; `codes` is their code.
        names: globals, attributes and strings that the code mentions.
        classes: those whose methods and variables the step can reach, the user's and the libraries'.
        owners: modules, optimizers and the user's objects: a new attribute of one may hide what its class has.
        lacking: names that the step looks up in vain among some globals, and finds among the builtins.
        left: places in which the step leaves another tensor at each call; the program gives it.
        once: identities of places that the step writes when it is called first; what it writes is no effect of the trace.
        unread: places that the step is taken not to read: neither they nor what is reached through them are guarded;
            likewise leaves of the arguments, by position.
        counted: names of numbers among the plain values that the step itself writes: inputs and outputs of its programs.
        flagged: names of the tensors whose `requires_grad` the step leaves changed at some call; None before a capture.
        caches: functions that keep what they returned (`functools.lru_cache`), by name.
        key_fakes: what stands for tensors that are keys of dicts, by `id`, during a trace.
        undoes_checkpoints: traces run functions that the user checkpoints once, as plain code.
    """

    modules: dict[str, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    wrappers: list[torch.optim.Optimizer] = field(default_factory=list)
    scalers: dict[str, torch.amp.GradScaler] = field(default_factory=dict)
    tensors: list[TensorSlot] = field(default_factory=list)
    unused: list[TensorSlot] = field(default_factory=list)
    scalars: list[Place] = field(default_factory=list)
    objects: list[Place] = field(default_factory=list)
    watched: list[Place] = field(default_factory=list)
    containers: list[tuple[str, Any]] = field(default_factory=list)
    sized: list[tuple[str, Any]] = field(default_factory=list)
    tuples: list[Place] = field(default_factory=list)
    contents: list[tuple[str, Any]] = field(default_factory=list)
    closed: list[Place] = field(default_factory=list)
    iterators: list[Place] = field(default_factory=list)
    environment: list[Place] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    module_paths: dict[int, str] = field(default_factory=dict)
    torch_owned: set[int] = field(default_factory=set)
    functions: list[FunctionType] = field(default_factory=list)
    codes: list[Any] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    classes: dict[int, type] = field(default_factory=dict)
    owners: list[Owner] = field(default_factory=list)
    lacking: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    left: list[Place] = field(default_factory=list)
    once: set[Any] = field(default_factory=set)
    unread: list[Place] = field(default_factory=list)
    unread_arguments: frozenset[int] = frozenset()
    counted: frozenset[str] = frozenset()
    flagged: frozenset[str] | None = None
    caches: list[tuple[str, Any]] = field(default_factory=list)
    key_fakes: dict[int, Any] = field(default_factory=dict)
    undoes_checkpoints: bool = False

    def kept_state(self) -> Iterator[tuple[str, Any]]:
        """The state of the optimizers, each table once, with the name of the first that has it."""
        seen: set[int] = set()
        for label, optimizer in self.optimizers.items():
            if id(optimizer.state) not in seen:
                seen.add(id(optimizer.state))
                yield label, optimizer.state


def names_of_one(state: StepState, names: frozenset[str]) -> frozenset[str]:
    """Those of some names of plain values that are not called by the name of another one as well."""
    counts = Counter(place.name for place in state.scalars)
    return frozenset(name for name in names if counts[name] < 2)
