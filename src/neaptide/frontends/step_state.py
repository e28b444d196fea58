"""Finds what a training step works on: modules, optimizers, loose tensors and Python scalars.

A plain function is looked through: its closure, the object it is bound to, the globals it names, and the user's
own functions and objects among those. Library code is not entered. Nothing is changed here.
"""

from __future__ import annotations

import enum
import functools
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from neaptide.errors import CaptureError

SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, enum.Enum)
MAX_CONTAINER = 10_000  # a longer list is data, not configuration


@dataclass(frozen=True, eq=False)
class Place:
    """Somewhere a Python object is kept: a cell of a closure, or an entry of a dict or list."""

    name: str
    holder: Any
    key: Any = None

    def get(self) -> Any:
        return self.holder.cell_contents if isinstance(self.holder, types.CellType) else self.holder[self.key]

    def set(self, content: Any) -> None:
        if isinstance(self.holder, types.CellType):
            self.holder.cell_contents = content
        else:
            self.holder[self.key] = content


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
class StepState:
    """Everything that was found.

    Attributes:
        modules: by a name in the user's words; a module inside another found one is not listed.
        optimizers: likewise.
        tensors: parameters, buffers and loose tensors, one slot for each distinct tensor.
        scalars: Python numbers, strings and flags that the step may read; guards are made of them.
        containers: mutable lists and dicts (and attribute dicts) that the step could write to.
        module_paths: `id(submodule)` to its dotted path.
        torch_owned: ids of attribute dicts of torch's own modules, which refresh caches of their weights (RNNs).
    """

    modules: dict[str, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    tensors: list[TensorSlot] = field(default_factory=list)
    scalars: list[Place] = field(default_factory=list)
    containers: list[tuple[str, Any]] = field(default_factory=list)
    module_paths: dict[int, str] = field(default_factory=dict)
    torch_owned: set[int] = field(default_factory=set)


def find_state(step: Callable[..., Any], extra: Any = None) -> StepState:
    """Looks through a step for the state it works on.

    Args:
        step: the training step: a function, a bound method, a partial or an object with `__call__`.
        extra: further modules, optimizers or tensors (any nesting of lists and dicts) that cannot be found.

    Raises:
        CaptureError: for state that a captured step cannot carry (a random generator, a gradient scaler,
            a tensor in a tuple).
    """
    finder = _Finder(_home_of(step))
    finder.visit(step, "step", None)
    if extra is not None:
        finder.visit(extra, "state", None)
    return finder.finish()


class _Finder:
    def __init__(self, home: str | None) -> None:
        self.state = StepState()
        self._home = home  # the folder of the step itself counts as the user's, wherever it is installed
        self._seen: dict[int, Any] = {}
        self._slots: dict[int, TensorSlot] = {}
        self._modules: list[tuple[str, torch.nn.Module]] = []

    def visit(self, item: Any, name: str, place: Place | None) -> None:
        if isinstance(item, torch.Tensor):
            self._tensor(item, name, "tensor", place)
            return
        if isinstance(item, SCALARS):
            if place is not None:
                self.state.scalars.append(place)
            return
        if id(item) in self._seen:
            return
        self._seen[id(item)] = item
        self._refuse(item, name)
        if isinstance(item, torch.nn.Module):
            self._modules.append((name, item))
        elif isinstance(item, torch.optim.Optimizer):
            self.state.optimizers[_last_word(name)] = item
        elif isinstance(item, functools.partial):
            self.visit(item.func, name, None)
            self.visit(item.args, f"{name}.args", None)
            self.visit(item.keywords, f"{name}.keywords", None)
        elif isinstance(item, types.MethodType):
            self.visit(item.__self__, "self" if name == "step" else name, None)
            self.visit(item.__func__, name, None)
        elif isinstance(item, types.FunctionType):
            if self._is_users(item.__code__.co_filename):
                self._function(item)
        elif isinstance(item, (list, tuple, dict)):
            self._container(item, name)
        elif isinstance(item, types.ModuleType):
            return
        elif self._is_users_object(item):
            self._attributes(item, name)

    def _function(self, function: types.FunctionType) -> None:
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # a variable that is not assigned yet
                continue
            self.visit(content, variable, Place(variable, cell))
        for position, default in enumerate(function.__defaults__ or ()):
            self.visit(default, f"{function.__name__}.default[{position}]", None)
        names = _named_globals(function.__code__)
        for variable in names:
            if variable in function.__globals__:
                content = function.__globals__[variable]
                self.visit(content, variable, Place(variable, function.__globals__, variable))
                if isinstance(content, types.ModuleType) and self._is_users(getattr(content, "__file__", None) or ""):
                    entries = vars(content)
                    for attribute in names & entries.keys():
                        where = Place(f"{variable}.{attribute}", entries, attribute)
                        self.visit(entries[attribute], where.name, where)

    def _container(self, item: Any, name: str) -> None:
        if len(item) > MAX_CONTAINER:
            return
        if not isinstance(item, tuple):
            self.state.containers.append((name, item))
        entries = item.items() if isinstance(item, dict) else enumerate(item)
        for key, content in list(entries):
            place = None if isinstance(item, tuple) else Place(f"{name}[{key!r}]", item, key)
            if place is None and isinstance(content, torch.Tensor):
                raise CaptureError(
                    f"the tensor {name}[{key!r}] is kept in a tuple",
                    why="a tensor of the step's state must be in a place that can be read anew at each call",
                    next_step="keep it in a list, a dict, an attribute or a variable",
                )
            self.visit(content, f"{name}[{key!r}]", place)

    def _attributes(self, item: Any, name: str) -> None:
        entries = vars(item)
        self.state.containers.append((name, entries))
        for attribute, content in list(entries.items()):
            self.visit(content, f"{name}.{attribute}", Place(f"{name}.{attribute}", entries, attribute))
        call = getattr(type(item), "__call__", None)  # noqa: B004 - the function itself is wanted
        if isinstance(call, types.FunctionType):
            self.visit(call, name, None)

    def _tensor(self, tensor: torch.Tensor, name: str, role: str, place: Place | None) -> None:
        if place is None:
            return
        slot = self._slots.get(id(tensor))
        if slot is None:
            slot = self._slots[id(tensor)] = TensorSlot(name, role, [])
            self.state.tensors.append(slot)
        elif slot.role == "tensor" and role != "tensor":
            slot.role, slot.name = role, name
        if all(p.holder is not place.holder or p.key != place.key for p in slot.places):
            slot.places.append(place)

    def _refuse(self, item: Any, name: str) -> None:
        reason = None
        if isinstance(item, torch.Generator):
            reason = "an explicit random generator would be frozen into the program; use the default generator"
        elif isinstance(item, torch.amp.GradScaler) and item.is_enabled():
            reason = "GradScaler.step decides by the data whether to update; use bfloat16 autocast without a scaler"
        elif isinstance(item, torch.nn.parallel.DistributedDataParallel):
            reason = "its gradient reduction runs outside the traced program"
        if reason is not None:
            raise CaptureError(f"{name} ({type(item).__name__}) cannot be part of a captured step", why=reason)

    def _is_users(self, path: str) -> bool:
        if self._home is not None and path.startswith(self._home):
            return True
        return not is_library_file(path)

    def _is_users_object(self, item: Any) -> bool:
        if isinstance(item, types.SimpleNamespace):
            return True
        if isinstance(item, type) or not hasattr(item, "__dict__"):
            return False
        module = sys.modules.get(type(item).__module__)
        return module is not None and self._is_users(getattr(module, "__file__", None) or "")

    def finish(self) -> StepState:
        state = self.state
        inner = {id(m) for _, root in self._modules for m in root.modules() if m is not root}
        roots = [(name, module) for name, module in self._modules if id(module) not in inner]
        for name, module in roots:
            state.modules[_last_word(name)] = module
        for label, module in state.modules.items():
            prefix = "" if len(state.modules) == 1 else f"{label}."
            self._module(module, prefix)
        for label, optimizer in state.optimizers.items():
            self._optimizer(optimizer, label)
        return state

    def _module(self, root: torch.nn.Module, prefix: str) -> None:
        for path, module in root.named_modules(remove_duplicate=True):
            where = f"{prefix}{path}" if path else prefix.rstrip(".")
            self.state.module_paths[id(module)] = where
            dotted = f"{where}." if where else ""
            for role, entries in (("parameter", module._parameters), ("buffer", module._buffers)):  # noqa: SLF001
                for key, tensor in entries.items():
                    if tensor is not None:
                        self._tensor(tensor, f"{dotted}{key}", role, Place(f"{dotted}{key}", entries, key))
            attributes = vars(module)
            self.state.containers.append((where or "model", attributes))
            if type(module).__module__.startswith("torch."):
                self.state.torch_owned.add(id(attributes))
            for key, content in list(attributes.items()):
                if key in _MODULE_INTERNALS or isinstance(content, torch.nn.Module):
                    continue
                if isinstance(content, (torch.Tensor, list, dict, tuple, *SCALARS)):
                    self.visit(content, f"{dotted}{key}", Place(f"{dotted}{key}", attributes, key))

    def _optimizer(self, optimizer: torch.optim.Optimizer, label: str) -> None:
        for index, group in enumerate(optimizer.param_groups):
            for position, parameter in enumerate(group["params"]):
                if id(parameter) not in self._slots:
                    name = f"{label}.param_groups[{index}].params[{position}]"
                    self._tensor(parameter, name, "parameter", Place(name, group["params"], position))
                elif self._slots[id(parameter)].role == "tensor":
                    self._slots[id(parameter)].role = "parameter"


_MODULE_INTERNALS = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"}
    | {"_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs"}
    | {"_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"}
    | {"_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"}
)


def _named_globals(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _named_globals(constant)
    return names


def _last_word(name: str) -> str:
    return name.rsplit(".", 1)[-1] if name.startswith("self.") else name


@functools.cache
def _library_roots() -> tuple[str, ...]:
    roots = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= set(site.getsitepackages())
    roots.add(os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))))  # noqa: PTH120, PTH100
    return tuple(os.path.join(root, "") for root in roots if root)  # noqa: PTH118


def _home_of(step: Callable[..., Any]) -> str | None:
    while isinstance(step, (functools.partial, types.MethodType)):
        step = step.func if isinstance(step, functools.partial) else step.__func__
    code = getattr(step, "__code__", None) or getattr(getattr(type(step), "__call__", None), "__code__", None)  # noqa: B004
    return os.path.join(os.path.dirname(code.co_filename), "") if code is not None else None  # noqa: PTH118, PTH120


def is_library_file(path: str) -> bool:
    """Whether a source file belongs to the interpreter or to an installed library."""
    return path.startswith(_library_roots()) or path.startswith("<frozen")


def iter_scalars(state: StepState) -> Iterator[tuple[str, Any]]:
    """Name and present value of every scalar that was found."""
    for place in state.scalars:
        yield place.name, place.get()


def describe_tensors(state: StepState) -> Mapping[str, str]:
    """Role of every tensor by name; for messages and tests."""
    return {slot.name: slot.role for slot in state.tensors}
