"""Places: where a Python object is kept, so that it can be read anew at each call and swapped during a trace."""

from __future__ import annotations

import contextvars
import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from neaptide.frontends.objects.containers import entries_of, entry, put


@runtime_checkable
class Place(Protocol):
    """Somewhere an object is kept. `identity` tells two places apart."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> tuple[int, Any]: ...

    def get(self) -> Any: ...

    def set(self, content: Any) -> None: ...


@dataclass(frozen=True, eq=False, slots=True)
class CellPlace:
    """A variable of a closure."""

    name: str
    cell: types.CellType

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.cell), None

    def get(self) -> Any:
        return self.cell.cell_contents

    def set(self, content: Any) -> None:
        self.cell.cell_contents = content


@dataclass(frozen=True, eq=False, slots=True)
class ItemPlace:
    """An entry of a list or dict; attributes and globals are entries of their dict."""

    name: str
    holder: Any
    key: Any

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.holder), self.key

    def get(self) -> Any:
        return entry(self.holder, self.key)

    def set(self, content: Any) -> None:
        put(self.holder, self.key, content)


@dataclass(frozen=True, eq=False, slots=True)
class TensorKeyPlace(ItemPlace):
    """An entry of a dict whose key is a tensor; while `twins` has another tensor for it, by `id`, that is the key."""

    twins: dict[int, Any]

    def get(self) -> Any:
        return entry(self.holder, self.twins.get(id(self.key), self.key))

    def set(self, content: Any) -> None:
        put(self.holder, self.twins.get(id(self.key), self.key), content)


@dataclass(frozen=True, eq=False, slots=True)
class AttributePlace:
    """An attribute that lies in no dict that can be written: a slot, or a variable of a class."""

    name: str
    owner: Any
    key: str

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.owner), self.key

    def get(self) -> Any:
        return vars(self.owner)[self.key] if isinstance(self.owner, type) else getattr(self.owner, self.key)

    def set(self, content: Any) -> None:
        if isinstance(self.owner, type):
            setattr(self.owner, self.key, content)
        else:  # past the guard of a frozen dataclass
            object.__setattr__(self.owner, self.key, content)


@dataclass(frozen=True, eq=False, slots=True)
class DefaultPlace:
    """A default value of a positional parameter."""

    name: str
    function: types.FunctionType
    position: int

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.function), self.position

    def get(self) -> Any:
        return (self.function.__defaults__ or ())[self.position]

    def set(self, content: Any) -> None:
        defaults = list(self.function.__defaults__ or ())
        defaults[self.position] = content
        self.function.__defaults__ = tuple(defaults)


@dataclass(frozen=True, eq=False, slots=True)
class PartialPlace:
    """A positional argument of a `functools.partial`."""

    name: str
    partial: functools.partial[Any]
    position: int

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.partial), self.position

    def get(self) -> Any:
        return self.partial.args[self.position]

    def set(self, content: Any) -> None:
        args = list(self.partial.args)
        args[self.position] = content
        state = (self.partial.func, tuple(args), self.partial.keywords, vars(self.partial) or None)
        self.partial.__setstate__(state)  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False, slots=True)
class TuplePlace:
    """An entry of a tuple, which is made anew in its own place when the entry changes."""

    name: str
    parent: Place
    position: int

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.parent.get()), self.position

    def get(self) -> Any:
        return tuple.__getitem__(self.parent.get(), self.position)

    def set(self, content: Any) -> None:
        before = self.parent.get()
        entries = entries_of(before)
        entries[self.position] = content
        made = tuple.__new__(type(before), entries)
        if hasattr(before, "__dict__"):
            vars(made).update(vars(before))
        self.parent.set(made)


@dataclass(frozen=True, eq=False, slots=True)
class ContextPlace:
    """The value of a context variable; None while it has none."""

    name: str
    variable: contextvars.ContextVar[Any]

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.variable), None

    def get(self) -> Any:
        return self.variable.get(None)

    def set(self, content: Any) -> None:
        self.variable.set(content)


def root_of(place: Place) -> Place:
    """The place itself, or the one that keeps the outermost tuple around it."""
    while isinstance(place, TuplePlace):
        place = place.parent
    return place


def attributes_of(item: Any, name: str) -> Iterator[ItemPlace | AttributePlace]:
    """Places of an object's own attributes, those in slots included."""
    entries = getattr(item, "__dict__", None)
    if isinstance(entries, dict):
        for key in list(entries):
            yield ItemPlace(f"{name}.{key}", entries, key)
    for kind in type(item).__mro__:
        slots = vars(kind).get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else tuple(slots):
            if isinstance(vars(kind).get(key), types.MemberDescriptorType) and hasattr(item, key):
                yield AttributePlace(f"{name}.{key}", item, key)
