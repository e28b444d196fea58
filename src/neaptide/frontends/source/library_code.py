"""What the code of a library looks up when a step dispatches through it: names that a user may have patched."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from neaptide.frontends.source.users_code import codes_in, functions_of

Lookup = tuple[dict[str, Any], str]

# Their own methods look up nothing that computes a number; all modules and tensors inherit from them.
_ROOTS = (object, torch.nn.Module, torch.Tensor, torch.nn.Parameter)


@functools.cache
def looked_up_by_class(kind: type) -> tuple[Lookup, ...]:
    """Where the methods of a library's class find functions and classes: namespaces with a key. O(code reached).

    Functions of the same package are followed; those of other packages are taken as they are.
    """
    if kind in _ROOTS:
        return ()
    package = kind.__module__.partition(".")[0]
    waiting = [function for member in vars(kind).values() for function in functions_of(member)]
    seen = {id(function) for function in waiting}
    found: dict[tuple[int, str], Lookup] = {}
    while waiting:
        for namespace, key in _looked_up(waiting.pop()):
            found[id(namespace), key] = namespace, key
            inner = namespace[key]
            while hasattr(inner, "__wrapped__"):
                inner = inner.__wrapped__
            if isinstance(inner, types.FunctionType) and id(inner) not in seen:
                seen.add(id(inner))
                waiting += [inner] if (inner.__module__ or "").partition(".")[0] == package else []
    return tuple(found.values())


def looked_up_in_module(module: types.ModuleType, names: set[str]) -> Iterator[Lookup]:
    """Entries of a library's module, and of modules in it, that code with these names may reach through it."""
    waiting, seen = [module], {id(module)}
    while waiting:
        namespace = vars(waiting.pop())
        for key in sorted(names & namespace.keys()):
            yield namespace, key
            inner = namespace[key]
            if isinstance(inner, types.ModuleType) and id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)


def _looked_up(function: types.FunctionType) -> Iterator[Lookup]:
    names = {name for code in codes_in(function.__code__) for name in code.co_names}
    for key in sorted(names & function.__globals__.keys()):
        content = function.__globals__[key]
        if isinstance(content, types.ModuleType):
            found = ((space, name) for space, name in looked_up_in_module(content, names))
            yield from ((space, name) for space, name in found if callable(space[name]))
        elif callable(content):
            yield function.__globals__, key


def namespace_name(namespace: Mapping[str, Any]) -> str:
    """What a module's namespace is called."""
    return str(namespace.get("__name__", "globals"))
