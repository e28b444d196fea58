"""Places: where a Python object is kept, so that it can be read anew at each call and swapped during a trace."""

from __future__ import annotations

import contextlib
import functools
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from neaptide.frontends.objects.containers import entries_of, entry, put


@dataclass(frozen=True, eq=False, slots=True)
class Place(ABC):
    """Somewhere an object is kept, named as the user reaches it.

    What was set is there. `tests/frontends/objects/test_place_conformance.py` holds each kind to what its methods say.
    """

    name: str
    holder: Any
    key: Any = None

    @property
    def identity(self) -> tuple[int, Any]:
        """Tells two places apart."""
        return id(self.holder), self.key

    @abstractmethod
    def get(self) -> Any:
        """What is there; raises one of `GONE` where the place itself is gone."""

    @abstractmethod
    def set(self, content: Any) -> None:
        """Keep something else there."""


class ItemPlace(Place):
    """An entry of a list or dict; attributes and globals are entries of their dict."""

    __slots__ = ()

    def get(self) -> Any:
        return entry(self.holder, self.key)

    def set(self, content: Any) -> None:
        put(self.holder, self.key, content)


@dataclass(frozen=True, eq=False, slots=True)
class TensorKeyPlace(ItemPlace):
    """An entry of a dict whose key is a tensor; while `fakes` has another tensor for it, by `id`, that is the key."""

    fakes: dict[int, Any] | None = None

    def get(self) -> Any:
        return entry(self.holder, (self.fakes or {}).get(id(self.key), self.key))

    def set(self, content: Any) -> None:
        put(self.holder, (self.fakes or {}).get(id(self.key), self.key), content)


class AttributePlace(Place):
    """An attribute that lies in no dict that can be written: a slot, a variable of a class or, in its cell, of a closure."""

    __slots__ = ()

    def get(self) -> Any:
        own = vars(self.holder) if isinstance(self.holder, type) else None
        return getattr(self.holder, self.key) if own is None else own[self.key]

    def set(self, content: Any) -> None:
        if isinstance(self.holder, type):
            setattr(self.holder, self.key, content)
        else:  # past the guard of a frozen dataclass
            object.__setattr__(self.holder, self.key, content)


class PositionPlace(Place):
    """A default value of a function's parameter, or an argument of a `functools.partial`, by position."""

    __slots__ = ()

    @property
    def attribute(self) -> str:
        """That the tuple of them is kept in."""
        return "args" if isinstance(self.holder, functools.partial) else "__defaults__"

    def get(self) -> Any:
        return (getattr(self.holder, self.attribute) or ())[self.key]

    def set(self, content: Any) -> None:
        holder, contents = self.holder, list(getattr(self.holder, self.attribute) or ())
        contents[self.key] = content
        if isinstance(holder, functools.partial):
            state = (holder.func, tuple(contents), holder.keywords, vars(holder) or None)
            holder.__setstate__(state)  # type: ignore[attr-defined]
        else:
            holder.__defaults__ = tuple(contents)


class TuplePlace(Place):
    """An entry of the tuple in the place `holder`, which is made anew there when the entry changes."""

    __slots__ = ()

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.holder.get()), self.key

    def get(self) -> Any:
        return tuple.__getitem__(self.holder.get(), self.key)

    def set(self, content: Any) -> None:
        before = self.holder.get()
        entries = entries_of(before)
        entries[self.key] = content
        made = tuple.__new__(type(before), entries)
        if hasattr(before, "__dict__"):
            vars(made).update(vars(before))
        self.holder.set(made)


class ContextPlace(Place):
    """The value of a context variable; None while it has none."""

    __slots__ = ()

    def get(self) -> Any:
        return self.holder.get(None)

    def set(self, content: Any) -> None:
        self.holder.set(content)


# What reading a place raises when it is gone.
GONE = (LookupError, AttributeError, ValueError, TypeError)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = _Missing()


def read(place: Place) -> Any:
    """What is in a place now; `MISSING` where the place itself is gone."""
    try:
        return place.get()
    except GONE:
        return MISSING


def root_of(place: Place) -> Place:
    """The place itself, or the one that keeps the outermost tuple around it."""
    while isinstance(place, TuplePlace):
        place = place.holder
    return place


def attributes_of(item: Any, name: str) -> Iterator[Place]:
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


@contextlib.contextmanager
def swapped(contents: Sequence[tuple[Place, Any]]) -> Iterator[None]:
    """While open, places hold other contents; a tuple around one of them is made anew, and the old one is put back."""
    held = [(root, root.get()) for root in (root_of(place) for place, _ in contents)]
    try:
        for place, content in contents:
            place.set(content)
        yield
    finally:
        for root, content in reversed(held):
            root.set(content)


Replacement: TypeAlias = tuple[Any, str, Callable[[Any], Any]]
"""Whose attribute it is, its name, and what makes the stand-in of what is there: of None where nothing is."""


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """While open, an attribute is what `make` makes of it; one that was inherited or missing is so again after."""
    own = name in vars(owner)
    original = vars(owner)[name] if own else None
    setattr(owner, name, make(getattr(owner, name, None)))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


@contextlib.contextmanager
def all_replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Each of them, in order: a later one of the same attribute stands around an earlier one."""
    with contextlib.ExitStack() as stack:
        for replacement in replacements:
            stack.enter_context(replaced(*replacement))
        yield
