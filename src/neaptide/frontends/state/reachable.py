"""Every object that a step can reach, libraries' objects included.

The search for state (`state_finder`) stops at library code, because what it finds becomes inputs and guards. What must
not *change* during a trace is looked for further: through the attributes of library objects, through closures, bound
methods and containers, and through what the user's code names in a library's module.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends.objects.containers import copied, entries_of, size_of
from neaptide.frontends.objects.contents import MAX_CONTAINER
from neaptide.frontends.objects.places import attributes_of
from neaptide.frontends.objects.scalars import is_scalar
from neaptide.frontends.source.users_code import names_in
from neaptide.frontends.state.step_state import StepState

_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_NOT_ENTERED = (type, torch.Tensor, torch.dtype, torch.device, types.CodeType)
_TOLD_BY_NAME = (types.FunctionType, types.ModuleType, type)


def reachable_objects(state: StepState) -> Iterator[tuple[str, Any]]:
    """Objects that are neither tensors nor plain values, each once, with a name. O(objects reached)."""
    names = frozenset().union(*(names_in(code) for code in state.codes))
    return _Walk(names).run(state)


class _Walk:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._seen: set[int] = set()
        self._waiting: collections.deque[tuple[str, Any]] = collections.deque()

    def run(self, state: StepState) -> Iterator[tuple[str, Any]]:
        for place in state.watched:
            self._waiting.append((place.name, place.get()))
        self._waiting.extend(state.modules.items())
        for name, holder in state.containers:
            self._waiting.append((name, holder))
        while self._waiting:
            name, item = self._waiting.popleft()
            if is_scalar(item) or isinstance(item, _NOT_ENTERED) or id(item) in self._seen:
                continue
            self._seen.add(id(item))
            yield name, item
            self._waiting.extend(self._inside(name, item))

    def _inside(self, name: str, item: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(item, dict):
            if size_of(item) <= MAX_CONTAINER:
                yield from ((_entry(name, key), content) for key, content in copied(item).items())
        elif isinstance(item, _SEQUENCES):
            if size_of(item) <= MAX_CONTAINER:
                yield from (
                    (f"{name}[{position}]", content) for position, content in enumerate(entries_of(item))
                )
        elif isinstance(item, types.ModuleType):
            entries = vars(item)
            yield from ((f"{name}.{key}", entries[key]) for key in sorted(self._names & entries.keys()))
        elif isinstance(item, types.FunctionType):
            yield from _of_function(name, item)
        elif isinstance(item, (types.MethodType, types.BuiltinMethodType)):
            yield name, item.__self__
            yield name, getattr(item, "__func__", None)
        elif isinstance(item, functools.partial):
            yield from ((name, part) for part in (item.func, item.args, item.keywords))
        else:
            yield name, getattr(item, "__wrapped__", None)
            yield from ((place.name, place.get()) for place in attributes_of(item, name))
            for base in type(item).__mro__:
                if id(base) not in self._seen:
                    self._seen.add(id(base))
                    yield from _of_class(name, base)


def _entry(name: str, key: Any) -> str:
    if isinstance(key, torch.Tensor):  # its repr prints its numbers
        return f"{name}[a tensor]"
    return f"{name}.{key}" if isinstance(key, str) and key.isidentifier() else f"{name}[{key!r}]"


def _of_function(name: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Closure and defaults, and the objects among the globals that the code names, but no further functions."""
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield variable, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield name, function.__defaults__ or ()
    yield name, function.__kwdefaults__ or {}
    for variable in function.__code__.co_names:
        content = function.__globals__.get(variable)
        if content is not None and not isinstance(content, _TOLD_BY_NAME):
            yield variable, content


def _of_class(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for key, content in list(vars(kind).items()):
        if key[:2] != "__" and not callable(content) and not hasattr(type(content), "__get__"):
            yield f"{name}.{key}", content
