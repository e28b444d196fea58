"""What a step reads by name: places and methods count once code that the step reaches has their names in it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from neaptide.frontends.objects.places import Place

# Code that mentions one of these may read an attribute without naming it.
_READS_ALL = frozenset({"__dict__", "vars", "getattr", "setattr", "asdict", "astuple", "__getattribute__"})


class ReadsByName:
    """Names in the code of a step, and what waits for its name to be met.

    Args:
        names: that are known; grows.
        read: called with each place whose name has been met.
        look_later: called with each method whose name has been met, its name and None.
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
