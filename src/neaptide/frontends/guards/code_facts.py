"""Facts about the code that a step runs: hooks, methods, attributes that hide them, functions."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.guards.place_facts import Fact, Facts
from neaptide.frontends.objects.places import AttributePlace
from neaptide.frontends.objects.values import Same, fact_of, is_scalar
from neaptide.frontends.source.users_code import functions_of, hides_code, is_torch_file, names_in
from neaptide.frontends.state.step_state import Owner, StepState

_FUNCTION = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
_BASES = operator.attrgetter("__mro__", "__mro__")


class CodeFacts(Facts):
    """Reads what modules and optimizers dispatch through, and the functions and classes of a step."""

    def __init__(self, state: StepState) -> None:
        super().__init__()
        self._state = state
        owners = [owner.item for owner in state.owners]
        self._owners = owners
        self._attributes = list(map(vars, owners))
        self._modules = [vars(item) for item in owners if isinstance(item, torch.nn.Module)]
        self._optimizers = list(state.optimizers.values())
        self._classes = list(state.classes.values())
        self._members = list(map(vars, self._classes))
        self._before = {id(kind): dict(vars(kind)) for kind in self._classes}
        for function in state.functions:
            self._sweep.add(_FUNCTION, function)
        for kind, members in zip(self._classes, self._members, strict=True):
            self._sweep.add(_BASES, kind)
            self._sweep.add(types.MappingProxyType.values, members)
        # Variables of classes that have places are guarded as plain values are.
        self._placed = {
            place.identity for place in (*state.scalars, *state.unread) if isinstance(place, AttributePlace)
        }

    def read(self) -> list[Fact]:
        """Hooks, attributes that hide code, members of classes and functions, by name."""
        return [
            *self._hooks(),
            *self._shadows(),
            *self._entries(),
            *self._class_members(),
            *self._functions(),
        ]

    def measured(self) -> Any:
        hooks = filter(None, private.hook_dicts(self._modules, self._optimizers))
        return (
            [(id(found), list(map(Same, found.values()))) for found in hooks],
            list(map(type, self._owners)),
            # A new attribute is the last one.
            list(map(len, self._attributes)),
            list(map(next, map(reversed, self._attributes), repeat(None))),
            list(map(tuple, private.entry_dicts(self._modules))),
            list(map(len, self._members)),
            [key in namespace for namespace, key in self._state.lacking],
        )

    # -- by kind ----------------------------------------------------------------------------------------------

    def _hooks(self) -> Iterator[Fact]:
        for owner in self._state.owners:
            if isinstance(owner.item, torch.nn.Module):
                yield from _hook_facts(owner.name, private.module_hooks(owner.item))
            elif isinstance(owner.item, torch.optim.Optimizer):
                yield from _hook_facts(owner.name, private.optimizer_hooks(owner.item))
        yield from _hook_facts("torch", private.GLOBAL_HOOKS)

    def _shadows(self) -> Iterator[Fact]:
        """The type of each owner, and attributes that it has not had and that the step may read instead of others."""
        for owner in self._state.owners:
            yield f"type of {owner.name}", Same(type(owner.item))
            known = set(owner.known)
            for key, content in vars(owner.item).items():
                if (
                    key not in known
                    and self._may_read(owner, key)
                    and not private.only_counts_steps(owner.item, key, content)
                ):
                    yield f"{owner.name}.{key}", "there"

    def _may_read(self, owner: Owner, key: str) -> bool:
        own = key in private.READ_BY_CALLS and isinstance(owner.item, torch.nn.Module)
        return owner.is_open or own or key in self._state.names or hides_code(type(owner.item), key)

    def _entries(self) -> Iterator[Fact]:
        """Which parameters, buffers and submodules a module has, in their order."""
        for owner in self._state.owners:
            if isinstance(owner.item, torch.nn.Module):
                for entries in private.entry_dicts([vars(owner.item)]):
                    if entries:
                        yield f"entries of {owner.name} from {next(iter(entries))}", tuple(entries)

    def _class_members(self) -> Iterator[Fact]:
        for kind in self._classes:
            name = kind.__qualname__
            yield f"bases of {name}", tuple(map(Same, kind.__mro__))
            before = self._before[id(kind)]
            for key, content in vars(kind).items():
                if not self._may_be_asked_for(kind, key, content):
                    continue
                bare = private.unpatched(content)
                if bare is not content and bare is _inherited(kind, key):
                    continue  # Dynamo wraps what each optimizer inherits
                if _is_code(content) or _is_code(before.get(key)):
                    yield f"{name}.{key}", Same(bare)
                elif is_scalar(content) and key in self._state.names and (id(kind), key) not in self._placed:
                    yield f"{name}.{key}", fact_of(content)

    def _may_be_asked_for(self, kind: type, key: str, content: Any) -> bool:
        """Whether a member of a class can make a difference.

        Libraries hang methods of their own on torch's classes, at any time. Torch's code does not name them, and
        where the step's does they are facts.
        """
        if not _is_torchs(kind) or key[:2] == "__" or key in self._state.names:
            return True
        files = [function.__code__.co_filename for function in functions_of(content)]
        if not files or any(is_torch_file(file) for file in files):
            return True
        bases = kind.__mro__[1:]
        named = any(key in _names_in_class(each) for each in kind.__mro__ if _is_torchs(each))
        return named or any(key in vars(base) for base in bases)

    def _functions(self) -> Iterator[Fact]:
        for number, function in enumerate(self._state.functions):
            yield f"code of {function.__qualname__} #{number}", Same(function.__code__)
            defaults = len(function.__defaults__ or ()), tuple(function.__kwdefaults__ or ())
            yield f"defaults of {function.__qualname__} #{number}", defaults
        for namespace, key in self._state.lacking:
            if key in namespace:
                yield key, Same(namespace[key])


def _hook_facts(name: str, hooks: Mapping[str, Mapping[int, Any]]) -> Iterator[Fact]:
    for label, found in hooks.items():
        if found:
            yield f"{name}.{label}", tuple(map(Same, found.values()))


def _is_torchs(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


@functools.cache
def _names_in_class(kind: type) -> frozenset[str]:
    """What torch's own methods of a class name."""
    functions = (function for member in vars(kind).values() for function in functions_of(member))
    return frozenset().union(
        *(names_in(f.__code__) for f in functions if is_torch_file(f.__code__.co_filename))
    )


def _inherited(kind: type, key: str) -> Any:
    """A member as a class would have it that did not define it; without what Dynamo puts around it."""
    found = (vars(base)[key] for base in kind.__mro__[1:] if key in vars(base))
    return private.unpatched(next(found, None))


def _is_code(content: Any) -> bool:
    return callable(content) or hasattr(type(content), "__get__")
