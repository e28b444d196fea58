"""What containers hold, past what a subclass makes of it.

A library's dict may make an object at each read, a user's list may log or count. What is looked through, compared and
put back are the entries themselves: they are read and written by the methods of the built-in type.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

_BASES: tuple[Any, ...] = (OrderedDict, dict, list, deque, set, frozenset, tuple)
_EXACT = frozenset(_BASES)
_NOTHING = object()


def base_of(holder: Any) -> Any:
    """The built-in type of a container, by whose methods it is read and written; its own type for anything else."""
    kind = type(holder)
    if kind in _EXACT:
        return kind
    return next((base for base in _BASES if issubclass(kind, base)), kind)


def entry(holder: Any, key: Any) -> Any:
    """What is kept under a key or position; a missing entry is not made, but a `LookupError`."""
    base = base_of(holder)
    if issubclass(base, dict):
        content = dict.get(holder, key, _NOTHING)
        if content is _NOTHING:
            raise KeyError(key)
        return content
    return base.__getitem__(holder, key)


def put(holder: Any, key: Any, content: Any) -> None:
    """Keep something under a key or position."""
    base_of(holder).__setitem__(holder, key, content)


def drop(holder: Any, key: Any) -> None:
    """Keep nothing under a key of a dict any longer."""
    if key in keys_of(holder):
        base_of(holder).__delitem__(holder, key)


def size_of(holder: Any) -> int:
    """How many entries there are."""
    size: int = base_of(holder).__len__(holder)
    return size


def keys_of(holder: Any) -> list[Any]:
    """The keys of a dict or the members of another container, in order."""
    return list(base_of(holder).__iter__(holder))


def entries_of(holder: Any) -> list[Any]:
    """The values of a dict or the members of another container, in order."""
    keys = keys_of(holder)
    return [dict.get(holder, key) for key in keys] if isinstance(holder, dict) else keys


def copied(holder: Any) -> Any:
    """A plain dict or list with the same entries."""
    keys = keys_of(holder)
    return {key: dict.get(holder, key) for key in keys} if isinstance(holder, dict) else keys


def refill(holder: Any, content: Any) -> None:
    """Make a container hold exactly what it held when `copied` was called.

    Entries that are the same objects are left alone; where a dict has another order, it is filled anew.
    """
    base = base_of(holder)
    if issubclass(base, dict):
        for key in [key for key in keys_of(holder) if key not in content]:
            base.__delitem__(holder, key)
        left = keys_of(holder)  # tensors among them cannot be compared
        if list(map(id, left)) != list(map(id, content))[: len(left)]:
            base.clear(holder)
        for key, kept in content.items():
            if dict.get(holder, key, _NOTHING) is not kept:
                base.__setitem__(holder, key, kept)
    elif base is list:
        list.__setitem__(holder, slice(None), content)
    elif list(map(id, keys_of(holder))) != list(map(id, content)):
        base.clear(holder)
        (deque.extend if base is deque else base.update)(holder, content)


def getter(holder: Any, keys: Iterable[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads several entries of a container, as fast as its type allows."""
    wanted = list(keys)
    kind = type(holder)
    plain = kind.__getitem__ is base_of(holder).__getitem__ and not hasattr(kind, "__missing__")
    if plain:
        wanted *= 1 + (
            len(wanted) == 1
        )  # with a single key it would give the content itself instead of a tuple
        return operator.itemgetter(*wanted)
    return lambda now: tuple([entry(now, key) for key in wanted])


def keys_getter(holder: Any) -> Callable[[Any], Iterable[Any]]:
    """`keys_of`, as fast as the type of a container allows."""
    return tuple if type(holder).__iter__ is base_of(holder).__iter__ else keys_of


def size_getter(holder: Any) -> Callable[[Any], int]:
    """`size_of`, as fast as the type of a container allows."""
    return len if type(holder).__len__ is base_of(holder).__len__ else size_of
