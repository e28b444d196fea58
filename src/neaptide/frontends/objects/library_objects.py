"""Objects of libraries that hold settings, or state of the user's: a configuration, a trainer's wrapper, a loader.

They are entered where they lead to state or to code of the user's. Those of the standard library, of numpy and of
torch's inner rooms are not: what they hold is not called by a training step.
"""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from neaptide.frontends.objects.containers import copied, entries_of
from neaptide.frontends.objects.places import Place, attributes_of
from neaptide.frontends.objects.values import MAX_CONTAINER, is_scalar
from neaptide.frontends.source.users_code import class_file, is_library_file

# Objects that are nothing but their attributes.
SETTINGS = (types.SimpleNamespace, argparse.Namespace, threading.local)
_STATE = (
    *(torch.Tensor, torch.nn.Module, torch.optim.Optimizer),
    *(torch.amp.GradScaler, torch.optim.lr_scheduler.LRScheduler),
)
_CLOSED = frozenset({*sys.stdlib_module_names, "numpy", "neaptide"})
_CLOSED_ROOMS = (
    *("torch._", "torch.fx", "torch.jit", "torch.distributed", "torch.futures", "torch.utils.hooks"),
)
_MOST_STEPS = 5  # from one object to the next: a trainer's strategy's precision plugin's scaler
_LEAD_NOWHERE = (type, types.BuiltinMethodType)
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
# Code that mentions one of these may read an attribute without naming it.
_READS_ALL = frozenset({"__dict__", "vars", "getattr", "setattr", "asdict", "astuple", "__getattribute__"})


def settings_in(item: Any, name: str) -> Iterator[Place]:
    """Plain attributes of an object of a library that a module keeps.

    What tells one object from another is no setting: a handle (it refers to its hooks weakly) is a number in a
    count, and an attribute may be the `id` of its own object.
    """
    if callable(item) or isinstance(item, (torch.Tensor, list, tuple, dict)) or is_scalar(item):
        return
    entries = getattr(item, "__dict__", None)
    if isinstance(entries, dict) and not any(isinstance(c, weakref.ref) for c in vars(item).values()):
        yield from (place for place in attributes_of(item, name) if is_scalar(place.get()))


def is_all_users(kind: type, is_users: Callable[[str], bool]) -> bool:
    """Whether every method of a class is the user's own, so that the names in them tell what is read."""
    known = {object, torch.nn.Module, torch.optim.Optimizer, *(k for s in SETTINGS for k in s.__mro__)}
    return all(base in known or is_users(class_file(base)) for base in kind.__mro__)


def is_own_identity(content: Any, owner: Any) -> bool:
    """Whether a number is the `id` of the object that keeps it."""
    return type(content) is int and content == id(owner)


def is_entered(item: Any) -> bool:
    """Whether the attributes of a library's object are looked at."""
    kind = type(item)
    if isinstance(item, (type, types.ModuleType, types.FunctionType, torch.dtype, torch.device)):
        return False
    if kind.__module__.partition(".")[0] in _CLOSED or kind.__module__.startswith(_CLOSED_ROOMS):
        return False
    return is_library_file(class_file(kind))


def is_closed_by_hand(item: Any) -> bool:
    """Whether an object of a library stands for something outside: a connection, a data base, a queue. It is closed."""
    kind = type(item)
    return callable(getattr(kind, "close", None)) and is_library_file(class_file(kind))


def parts_of(item: Any, name: str) -> Iterator[tuple[str, Any]] | None:
    """What a container, a bound method or a partial holds, with names; None for anything else."""
    if isinstance(item, dict):
        entries = islice(copied(item).items(), MAX_CONTAINER)
        return ((_entry_name(name, key), content) for key, content in entries)
    if isinstance(item, _SEQUENCES):
        members = enumerate(entries_of(item)[:MAX_CONTAINER])
        return ((f"{name}[{position}]", content) for position, content in members)
    if isinstance(item, (types.MethodType, types.BuiltinMethodType)):
        return iter([(name, item.__self__), (name, getattr(item, "__func__", None))])
    if isinstance(item, functools.partial):
        return iter([(name, item.func), (name, item.args), (name, item.keywords)])
    return None


def _entry_name(name: str, key: Any) -> str:
    if isinstance(key, torch.Tensor):  # its repr prints its numbers
        return f"{name}[a tensor]"
    return f"{name}.{key}" if isinstance(key, str) and key.isidentifier() else f"{name}[{key!r}]"


class Leads:
    """Tells what leads to state or to code of the user's, by what says of an object and of a file that it is the user's."""

    def __init__(self, is_users: Callable[[Any], bool], is_users_file: Callable[[str], bool]) -> None:
        self._is_users = is_users
        self._is_users_file = is_users_file

    def to_state(self, item: Any) -> bool:
        """Whether something is state or code of the user's, or holds such. O(objects within a few steps)."""
        return self._leads(item, set(), _MOST_STEPS)

    def _leads(self, item: Any, seen: set[int], left: int) -> bool:
        if isinstance(item, _STATE):
            return True
        if left == 0 or is_scalar(item) or isinstance(item, _LEAD_NOWHERE) or id(item) in seen:
            return False
        seen.add(id(item))
        if isinstance(item, types.FunctionType):
            return self._is_users_file(item.__code__.co_filename)
        if self._is_users(item):
            return True
        parts = parts_of(item, "")
        if parts is None:
            parts = ((p.name, p.get()) for p in attributes_of(item, "")) if is_entered(item) else iter(())
        return any(self._leads(part, seen, left - 1) for _, part in parts)


class ReadsByName:
    """Names in the code of a step, and places and methods that count once their name is met.

    `names` are known, and grow. `read` is called with each place whose name has been met, `look_later` with each such method,
    its name and None.
    """

    def __init__(
        self,
        names: set[str],
        read: Callable[[Place], None],
        look_later: Callable[[Any, str, Place | None], None],
    ) -> None:
        self._names = names
        self._read = read
        self._look_later = look_later
        self._methods: dict[str, list[types.FunctionType]] = {}
        self._places: dict[str, list[Place]] = {}
        self._settings: dict[str, list[Place]] = {}

    @property
    def reads_all(self) -> bool:
        """Whether code may read attributes without naming them."""
        return bool(self._names & _READS_ALL)

    def place(self, key: str, place: Place) -> None:
        """An attribute of the user's own: a counter that only the caller reads is no guard."""
        if key in self._names or self.reads_all:
            self._read(place)
        else:
            self._places.setdefault(key, []).append(place)

    def setting(self, key: str, place: Place) -> None:
        """An attribute of an object of a library, which code that reads all attributes hardly means."""
        if key in self._names:
            self._read(place)
        else:
            self._settings.setdefault(key, []).append(place)

    def method(self, key: str, function: types.FunctionType) -> None:
        """A method of the user's own."""
        if key in self._names:
            self._look_later(function, key, None)
        else:
            self._methods.setdefault(key, []).append(function)

    def learn(self, names: set[str]) -> None:
        """The step reaches code with these names: so it does the methods and attributes that are called so."""
        new = names - self._names
        self._names.update(new)
        for name in sorted(new):
            for method in self._methods.pop(name, ()):
                self._look_later(method, name, None)
        for name in sorted(new & self._settings.keys()):
            for place in self._settings.pop(name):
                self._read(place)
        for name in sorted(self._places) if new & _READS_ALL else sorted(new & self._places.keys()):
            for place in self._places.pop(name):
                self._read(place)
