"""Every object that a step can reach, libraries' objects included.

The search for state (`state_finder`) stops at library code, because what it finds becomes inputs and guards. What must
not *change* during a trace is looked for further: through the attributes of library objects, through closures, bound
methods and containers, and through what the user's code names in a library's module.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends.objects.library_objects import parts_of
from neaptide.frontends.objects.places import attributes_of
from neaptide.frontends.objects.values import is_scalar
from neaptide.frontends.source.users_code import names_in
from neaptide.frontends.state.step_state import StepState

_NOT_ENTERED = (type, torch.Tensor, torch.dtype, torch.device, types.CodeType)
_TOLD_BY_NAME = (types.FunctionType, types.ModuleType, type)


def reachable_objects(state: StepState) -> Iterator[tuple[str, Any]]:
    """Objects that are neither tensors nor plain values, each once, with a name. O(objects reached)."""
    names = frozenset().union(*(names_in(code) for code in state.codes))
    seen: set[int] = set()
    waiting: collections.deque[tuple[str, Any]] = collections.deque()
    waiting.extend((place.name, place.get()) for place in state.watched)
    waiting.extend(state.modules.items())
    waiting.extend(state.containers)
    while waiting:
        name, item = waiting.popleft()
        if is_scalar(item) or isinstance(item, _NOT_ENTERED) or id(item) in seen:
            continue
        seen.add(id(item))
        yield name, item
        parts = parts_of(item, name)
        waiting.extend(_inside(name, item, names, seen) if parts is None else parts)


def _inside(name: str, item: Any, names: frozenset[str], seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(item, types.ModuleType):
        entries = vars(item)
        yield from ((f"{name}.{key}", entries[key]) for key in sorted(names & entries.keys()))
    elif isinstance(item, types.FunctionType):
        yield from _of_function(name, item)
    else:
        yield name, getattr(item, "__wrapped__", None)
        yield from ((place.name, place.get()) for place in attributes_of(item, name))
        for base in type(item).__mro__:
            if id(base) not in seen:
                seen.add(id(base))
                yield from _of_class(name, base)


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
