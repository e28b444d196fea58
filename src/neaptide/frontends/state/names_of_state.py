"""What the modules, optimizers and tensors of a step are called, and the places of the tensors that they hold."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.places import ItemPlace, Place
from neaptide.frontends.state.step_state import StepState, TensorSlot

Note = Callable[[torch.Tensor, str, str, Place | None], None]


def label_of(name: str) -> str:
    """What an attribute of the step's own object is called by itself."""
    return name.rsplit(".", 1)[-1] if name.startswith("self.") else name


def name_modules(state: StepState, found: list[tuple[str, torch.nn.Module]]) -> None:
    """List the modules that were found, each with the name it was found by, without those inside another one."""
    inner = {id(m) for _, root in found for m in root.modules() if m is not root}
    for name, module in found:
        if id(module) not in inner:
            names = chain(
                (label_of(name), name), (f"{name}_{number}" for number in count(len(state.modules)))
            )
            state.modules[next(name for name in names if name not in state.modules)] = module


def name_tensors(state: StepState, slots: dict[int, TensorSlot], note: Note) -> None:
    """Note the tensors that modules and optimizers hold, with their roles, and give each slot a name of its own."""
    for label, module in state.modules.items():
        _module_tensors(state, module, "" if len(state.modules) == 1 else f"{label}.", note)
    for label, optimizer in state.optimizers.items():
        for index, group in enumerate(optimizer.param_groups):
            for position, parameter in enumerate(group["params"]):
                if id(parameter) not in slots:
                    name = f"{label}.param_groups[{index}].params[{position}]"
                    note(parameter, name, "parameter", ItemPlace(name, group["params"], position))
                elif slots[id(parameter)].role == "tensor":
                    slots[id(parameter)].role = "parameter"
    _make_names_unique(state.tensors)


def _module_tensors(state: StepState, root: torch.nn.Module, prefix: str, note: Note) -> None:
    for path, module in root.named_modules():
        where = f"{prefix}{path}" if path else prefix.rstrip(".")
        state.module_paths[id(module)] = where
        for role, entries in private.module_tensors(module):
            for key, tensor in entries.items():
                if tensor is not None:
                    own = f"{where}.{key}" if where else key
                    note(tensor, own, role, ItemPlace(own, entries, key))
                state.containers.append((where or "model", entries))


def _make_names_unique(slots: list[TensorSlot]) -> None:
    """Number the later ones of tensors that are called alike."""
    taken: set[str] = set()
    for slot in slots:
        base, number = slot.name, 1
        while slot.name in taken:
            number += 1
            slot.name = f"{base}#{number}"
        taken.add(slot.name)
