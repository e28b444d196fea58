"""Compares what is kept in many places with what was there before, by identity, at a few nanoseconds a place."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from neaptide.frontends.objects.containers import getter
from neaptide.frontends.objects.places import (
    AttributePlace,
    CellPlace,
    DefaultPlace,
    ItemPlace,
    PartialPlace,
    Place,
)

_Getter = Callable[[Any], Iterable[Any]]
# What reading a place raises when it is gone.
GONE = (LookupError, AttributeError, ValueError, TypeError)
_END = (object(),)


class Sweep:
    """Places that are read together, without a Python call for each.

    It says whether the same objects are there as when it was armed. What is there and may itself change is a matter
    of further places.
    """

    def __init__(self) -> None:
        self._getters: list[_Getter] = []
        self._holders: list[Any] = []
        self._known: list[Any] = []

    def add(self, getter: _Getter, holder: Any) -> None:
        """Sweep over what `getter(holder)` gives."""
        self._getters.append(getter)
        self._holders.append(holder)

    def add_places(self, places: Iterable[Place]) -> None:
        """Sweep over some places; those of one list or dict are read at once."""
        keys: dict[int, list[Any]] = {}
        holders: dict[int, Any] = {}
        for place in places:
            if isinstance(place, ItemPlace):
                holders[id(place.holder)] = place.holder
                keys.setdefault(id(place.holder), []).append(place.key)
            else:
                self._add_place(place)
        for number, holder in holders.items():
            self.add(getter(holder, keys[number]), holder)

    def _add_place(self, place: Place) -> None:
        if isinstance(place, CellPlace):
            self.add(_attribute("cell_contents"), place.cell)
        elif isinstance(place, DefaultPlace):
            self.add(_attribute("__defaults__"), place.function)
        elif isinstance(place, PartialPlace):
            self.add(_attribute("args"), place.partial)
        elif isinstance(place, AttributePlace) and isinstance(place.owner, type):
            self.add(operator.itemgetter(place.key, place.key), vars(place.owner))
        elif isinstance(place, AttributePlace):
            self.add(_attribute(place.key), place.owner)
        else:
            self.add(_content_of_place, place)

    def _now(self) -> Iterable[Any]:
        return chain(chain.from_iterable(map(operator.call, self._getters, self._holders)), _END)

    def arm(self) -> None:
        """Remember what is there; something that is gone makes the next look find a change."""
        try:
            self._known = list(self._now())
        except GONE:
            self._known = []

    def unchanged(self) -> bool:
        """Whether everything is as it was. O(places)."""
        try:
            # The mark at the end meets itself only if there are as many as before.
            return bool(self._known) and all(map(operator.is_, self._now(), self._known))
        except GONE:
            return False


def _attribute(name: str) -> _Getter:
    """A getter that gives a tuple, which it does for two names."""
    return operator.attrgetter(name, name)


def _content_of_place(place: Place) -> tuple[Any]:
    return (place.get(),)
