"""Looks through a training step for the state it works on.

A plain function is looked through: its closure, its defaults, the object it is bound to, the globals it names, and
the user's own functions, methods and objects among those. Library code is not entered. Nothing is changed here.
"""

from __future__ import annotations

import builtins
import contextvars
import functools
import io
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.containers import entries_of, keys_of, size_of
from neaptide.frontends.objects.library_objects import (
    SETTINGS,
    Leads,
    ReadsByName,
    is_all_users,
    is_closed_by_hand,
    is_entered,
    is_own_identity,
    settings_in,
)
from neaptide.frontends.objects.places import (
    AttributePlace,
    ContextPlace,
    ItemPlace,
    Place,
    PositionPlace,
    TensorKeyPlace,
    TuplePlace,
    attributes_of,
)
from neaptide.frontends.objects.unread import ALL_READ, UnreadNames
from neaptide.frontends.objects.values import (
    MAX_CONTAINER,
    entries_in,
    is_read_whole,
    is_scalar,
    is_too_large,
)
from neaptide.frontends.source.library_code import looked_up_by_class, looked_up_in_module, namespace_name
from neaptide.frontends.source.users_code import (
    class_file,
    functions_of,
    globals_in,
    hides_code,
    home_of,
    is_library_file,
    is_patchable,
    names_in,
)
from neaptide.frontends.state.names_of_state import label_of, name_modules, name_tensors
from neaptide.frontends.state.state_refusals import refuse, refuse_odd_state, refuse_wrapper
from neaptide.frontends.state.step_state import Owner, StepState, TensorSlot

_CACHED = type(functools.cache(int))
_NOT_CALLED_BY_STEPS = frozenset(
    {"__init__", "__new__", "__init_subclass__", "__class_getitem__", "__repr__"}
)


def find_state(
    step: Callable[..., Any],
    extra: Any = None,
    *,
    without: types.FunctionType | None = None,
    unread: UnreadNames = ALL_READ,
) -> StepState:
    """Looks through a step for the state it works on. O(objects reached).

    Args:
        step: the training step: a function, a bound method, a partial or an object with `__call__`.
        extra: further modules, optimizers or tensors (any nesting of lists and dicts) that cannot be found.
        without: a function that is not looked through, although code of the step has its name in it.
        unread: what the step is taken not to read.
    """
    finder = _Finder(home_of(step), without, unread)
    finder.look_at(step, "step")
    if extra is not None:
        finder.look_at(extra, "state")
    for kind, hooks in private.GLOBAL_HOOKS.items():
        for hook in hooks.values():
            finder.look_at(hook, kind)
    return finder.finish()


class _Finder:
    def __init__(self, home: str | None, without: types.FunctionType | None, unread: UnreadNames) -> None:
        self.state = StepState(unread_arguments=unread.arguments)
        self._unread = unread.places
        self._home = home  # the folder of the step itself counts as the user's, wherever it is installed
        self._seen: dict[int, Any] = {id(without): without}
        self._places: set[tuple[int, Any]] = set()
        self._slots: dict[int, TensorSlot] = {}
        self._modules: list[tuple[str, torch.nn.Module]] = []
        self._waiting: deque[tuple[Any, str, Place | None]] = deque()
        self._leads = Leads(self._is_users_object, self._is_users)
        self._by_name = ReadsByName(self.state.names, self._at, self._later)

    def look_at(self, item: Any, name: str) -> None:
        """Look at something and all that is reached from it."""
        self._visit(item, name, None)
        while self._waiting:
            self._visit(*self._waiting.popleft())

    def finish(self) -> StepState:
        """Name modules and their tensors, add what only the optimizer holds, keep the guards that matter."""
        state = self.state
        name_modules(state, self._modules)
        name_tensors(state, self._slots, self._tensor)
        # Parameter groups that the step also reaches by themselves: their rates are inputs, not guards.
        groups = {id(group) for optimizer in state.optimizers.values() for group in optimizer.param_groups}
        state.scalars = [place for place in state.scalars if place.identity[0] not in groups]
        for owner in state.owners:
            owner.is_open = owner.is_open or self._by_name.reads_all
        return state

    def _later(self, item: Any, name: str, place: Place | None) -> None:
        self._waiting.append((item, name, place))

    def _at(self, place: Place) -> None:
        """Note a place that the step may read, and look at what is there."""
        if place.identity in self._places:
            return
        self._places.add(place.identity)
        content = place.get()
        if place.name in self._unread and not isinstance(content, torch.Tensor):
            self.state.unread.append(place)
            return
        if not isinstance(content, torch.Tensor):
            self.state.watched.append(place)
            self._guard(place, content)
        self._later(content, place.name, place)

    def _guard(self, place: Place, content: Any) -> None:
        if is_scalar(content):
            self.state.scalars.append(place)
        elif isinstance(content, tuple):
            self.state.tuples.append(place)
        else:
            self.state.objects.append(place)

    def _library(self, namespace: dict[str, Any], key: str) -> None:
        """Note what a library's module has under a name; it is not looked into, and no step writes it."""
        place = ItemPlace(f"{namespace_name(namespace)}.{key}", namespace, key)
        content = namespace[key]
        if place.identity not in self._places and not isinstance(content, (torch.Tensor, tuple)):
            self._places.add(place.identity)
            self._guard(place, content)

    def _visit(self, item: Any, name: str, place: Place | None) -> None:
        if isinstance(item, torch.Tensor):
            self._tensor(item, name, "tensor", place)
            return
        if is_scalar(item):
            # Of a class of the user's own it may have attributes: a member of an enumeration, say.
            if hasattr(item, "__dict__") and id(item) not in self._seen:
                self._seen[id(item)] = item
                self._plain_object(item, name)
            return
        if isinstance(item, tuple):  # not by identity: equal tuples are shared, and each place is its own
            for position, content in enumerate(entries_of(item)[:MAX_CONTAINER]):
                if place is not None:
                    self._at(TuplePlace(f"{name}[{position}]", place, position))
                else:
                    self._later(content, f"{name}[{position}]", None)
            return
        if id(item) in self._seen:
            return
        self._seen[id(item)] = item
        refuse(item, name)
        if isinstance(item, torch.nn.Module):
            self._module(item, name)
        elif isinstance(item, torch.optim.Optimizer):
            self._optimizer(item, name)
        elif isinstance(item, torch.amp.GradScaler):
            self._scaler(item, name)
        elif isinstance(item, functools.partial):
            self._later(item.func, name, None)
            for position in range(len(item.args)):
                self._at(PositionPlace(f"{name}.args[{position}]", item, position))
            self._later(item.keywords, f"{name}.keywords", None)
        elif isinstance(item, types.MethodType):
            self._later(item.__self__, "self" if name == "step" else name, None)
            self._later(item.__func__, name, None)
        elif isinstance(item, types.FunctionType):
            if self._is_users(item.__code__.co_filename):
                self._function(item)
            elif hasattr(item, "__wrapped__"):
                self._later(item.__wrapped__, name, None)
                self._cells(item)
        elif isinstance(item, _CACHED):
            self.state.caches.append((name, item))
            self._later(item.__wrapped__, name, None)
        elif isinstance(item, (list, dict, deque)) or is_read_whole(item):
            if not is_too_large(item):
                (self._container if isinstance(item, (list, dict, deque)) else self._whole)(item, name)
            elif place is not None:
                self.state.closed.append(place)
            self._plain_object(item, name)
        elif isinstance(item, contextvars.ContextVar):
            self._at(ContextPlace(name, item))
        elif not isinstance(item, type) and (
            isinstance(item, (io.IOBase, Iterator)) or is_closed_by_hand(item)
        ):
            if place is not None:
                self.state.iterators.append(place)
        elif isinstance(item, torch.optim.lr_scheduler.LRScheduler):
            self.state.containers.append((name, vars(item)))
            self._inside_library(item, name)
        elif isinstance(item, type):
            if self._is_users(class_file(item)):
                self._class(item)
                self._constructor(item, name)
        else:
            self._plain_object(item, name)

    def _plain_object(self, item: Any, name: str) -> None:
        if self._is_users_object(item):
            self._object(item, name)
        else:
            for place in settings_in(item, name):
                self._by_name.setting(str(place.key), place)
            self._inside_library(item, name)

    def _function(self, function: types.FunctionType) -> None:
        self.state.functions.append(function)
        self.state.codes.append(function.__code__)
        self.state.containers.append((function.__name__, vars(function)))
        for key in list(vars(function)):
            self._at(ItemPlace(f"{function.__name__}.{key}", vars(function), key))
        self._cells(function)
        for position in range(len(function.__defaults__ or ())):
            self._at(PositionPlace(f"{function.__name__}.default[{position}]", function, position))
        for key in function.__kwdefaults__ or {}:
            self._at(ItemPlace(f"{function.__name__}.{key}", function.__kwdefaults__, key))
        names = names_in(function.__code__)
        for variable in sorted(globals_in(function.__code__)):
            self._global(function.__globals__, variable, names)
        self._by_name.learn(names)

    def _global(self, namespace: dict[str, Any], variable: str, names: set[str]) -> None:
        if variable not in namespace:
            if variable in vars(builtins):
                self.state.lacking.append((namespace, variable))
                self._library(vars(builtins), variable)
            return
        self._at(ItemPlace(variable, namespace, variable))
        content = namespace[variable]
        if not isinstance(content, types.ModuleType):
            return
        if self._is_users(getattr(content, "__file__", None) or ""):
            for attribute in sorted(names & vars(content).keys()):
                self._at(ItemPlace(f"{variable}.{attribute}", vars(content), attribute))
        else:
            for inner, key in looked_up_in_module(content, names):
                self._library(inner, key)

    def _cells(self, function: types.FunctionType) -> None:
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                cell.cell_contents  # noqa: B018 - a variable that is not assigned yet raises
            except ValueError:
                continue
            self._at(AttributePlace(variable, cell, "cell_contents"))

    def _class(self, kind: type) -> None:
        """Methods that the step can reach, by name, and variables of the user's classes."""
        for base in kind.__mro__:
            if id(base) in self.state.classes or not is_patchable(base):
                continue
            self.state.classes[id(base)] = base
            if not self._is_users(class_file(base)):
                for namespace, key in looked_up_by_class(base):
                    self._library(namespace, key)
                continue
            for key, member in list(vars(base).items()):
                functions = list(functions_of(member))
                unasked = key == "forward" or (key[:2] == "__" and key not in _NOT_CALLED_BY_STEPS)
                for function in functions:
                    if unasked:
                        self._later(function, key, None)
                    else:
                        self._by_name.method(key, function)
                if not functions and key[:2] != "__" and not isinstance(member, types.MemberDescriptorType):
                    self._by_name.place(key, AttributePlace(f"{base.__name__}.{key}", base, key))

    def _container(self, item: Any, name: str) -> None:
        if not isinstance(item, deque):
            self.state.containers.append((name, item))
        self.state.sized.append((name, item))
        for key in keys_of(item) if isinstance(item, dict) else range(size_of(item)):
            if isinstance(key, torch.Tensor):
                self._at(TensorKeyPlace(f"{name}[a tensor]", item, key, self.state.key_fakes))
            else:
                self._at(ItemPlace(f"{name}[{key!r}]", item, key))

    def _whole(self, item: Any, name: str) -> None:
        """A collection whose entries have no places: what it holds is compared as a whole."""
        self.state.contents.append((name, item))
        for entry in entries_in(item):
            self._later(entry, f"an entry of {name}", None)
        if not self._is_users_object(item):  # what a collection of a library keeps its entries in
            for inner in attributes_of(item, name):
                self._at(inner)

    def _object(self, item: Any, name: str) -> None:
        if hasattr(item, "__dict__"):
            self.state.containers.append((name, vars(item)))
            self.state.owners.append(Owner(name, item, tuple(vars(item))))
        plain = is_all_users(type(item), self._is_users)
        for place in attributes_of(item, name):
            self._attribute(type(item), place, plain)
        self._class(type(item))

    def _attribute(self, kind: type, place: Place, by_name: bool) -> None:
        """An attribute of an object that is read by its name alone, or whenever code calls the object."""
        if by_name and not hides_code(kind, str(place.key)):
            self._by_name.place(str(place.key), place)
        else:
            self._at(place)

    def _constructor(self, kind: type, name: str) -> None:
        """A step that names a class may make objects of it; a module is rather asked for its type."""
        if not issubclass(kind, torch.nn.Module):
            for key in ("__new__", "__init__"):
                for function in functions_of(vars(kind).get(key)):
                    self._later(function, name, None)

    def _tensor(self, tensor: torch.Tensor, name: str, role: str, place: Place | None) -> None:
        if place is None:
            self.state.hidden.append(name)
            return
        refuse_wrapper(tensor, name)
        slot = self._slots.get(id(tensor))
        if slot is None:
            self._class(type(tensor))
            slot = self._slots[id(tensor)] = TensorSlot(name, role, [])
            self.state.tensors.append(slot)
            self._hooks(chain(*private.parameter_hooks(tensor)), name)
            for inner in attributes_of(tensor, name):
                self._by_name.place(str(inner.key), inner)
        elif slot.role == "tensor" and role != "tensor":
            slot.role, slot.name = role, name
        if all(known.identity != place.identity for known in slot.places):
            slot.places.append(place)

    def _hooks(self, hooks: Iterable[Any], name: str) -> None:
        for hook in hooks:
            self._later(hook, f"{name}.hook", None)

    def _module(self, root: torch.nn.Module, name: str) -> None:
        self._modules.append((name, root))
        for path, module in root.named_modules():
            self._seen[id(module)] = module
            where = f"{name}.{path}" if path else name
            attributes = vars(module)
            self.state.containers.append((where, attributes))
            if type(module).__module__.startswith("torch."):
                self.state.torch_owned.add(id(attributes))
            plain = is_all_users(type(module), self._is_users)
            self.state.owners.append(Owner(where, module, tuple(attributes), is_open=not plain))
            refuse(module, where)
            for key in [k for k in attributes if k not in private.MODULE_INTERNALS]:
                place = ItemPlace(f"{where}.{key}", attributes, key)
                if is_own_identity(attributes[key], module):
                    continue
                self._attribute(type(module), place, plain and key not in private.READ_BY_CALLS)
                for inner in settings_in(attributes[key], place.name):
                    self._at(inner)
            children = private.children(module)
            self.state.containers.append((where, children))
            self.state.objects += [ItemPlace(f"{where}.{key}", children, key) for key in children]
            for kind, hooks in private.module_hooks(module).items():
                self.state.containers.append((f"{where}.{kind}", hooks))
                self._hooks(hooks.values(), where)
            for _, entries in private.module_tensors(module):
                for key, tensor in entries.items():
                    if tensor is None:
                        self.state.scalars.append(ItemPlace(f"{where}.{key}", entries, key))
                    else:
                        self._hooks(chain(*private.parameter_hooks(tensor)), where)
            self._class(type(module))

    def _optimizer(self, item: torch.optim.Optimizer, name: str) -> None:
        if not {"param_groups", "state"} <= vars(item).keys():  # one by type, that hands on to another one
            self.state.wrappers.append(item)
            self._plain_object(item, name)
            return
        label = label_of(name)
        while label in self.state.optimizers:
            label = f"{name}_{len(self.state.optimizers)}"
        refuse_odd_state(item, label)
        self.state.optimizers[label] = item
        for hooks in private.optimizer_hooks(item).values():
            self._hooks(hooks.values(), name)
        self.state.owners.append(Owner(label, item, tuple(vars(item))))
        self._class(type(item))
        if not self._is_users(class_file(type(item))):
            self._inside_library(item, name)
            return
        self.state.containers.append((label, vars(item)))
        plain = is_all_users(type(item), self._is_users)
        for place in attributes_of(item, name):
            if place.key in private.OPTIMIZER_INTERNALS:
                continue
            if is_scalar(place.get()):
                self._by_name.place(str(place.key), place)
            else:
                self._attribute(type(item), place, plain)

    def _inside_library(self, item: Any, name: str) -> None:
        """Attributes of a library's object that lead to state, or to code of the user's, which the object may call."""
        if not is_entered(item):
            return
        found = [
            place
            for place in attributes_of(item, name)
            if place.key not in private.OPTIMIZER_INTERNALS and self._leads.to_state(place.get())
        ]
        if found and hasattr(item, "__dict__"):
            self.state.containers.append((name, vars(item)))
        for place in found:
            self._at(place)

    def _scaler(self, item: torch.amp.GradScaler, name: str) -> None:
        if item.is_enabled():
            private.start_scaler(item)
            self.state.scalers[name] = item
        keys = (*private.SCALER_TENSORS, *private.SCALER_SETTINGS) if item.is_enabled() else ("_enabled",)
        for key in keys:
            self._at(ItemPlace(f"{name}.{key}", vars(item), key))

    def _is_users(self, path: str) -> bool:
        return (self._home is not None and path.startswith(self._home)) or not is_library_file(path)

    def _is_users_object(self, item: Any) -> bool:
        if isinstance(item, SETTINGS):
            return True
        return not isinstance(item, type) and self._is_users(class_file(type(item)))
