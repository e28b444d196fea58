"""Facts about the Python state that a step can read: plain values, objects, lengths and contents of collections."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from neaptide.frontends.objects.containers import getter, keys_getter, keys_of, size_getter, size_of
from neaptide.frontends.objects.places import (
    GONE,
    MISSING,
    AttributePlace,
    ItemPlace,
    Place,
    PositionPlace,
    read,
    root_of,
)
from neaptide.frontends.objects.values import Same, content_of, exact, holds_bytes
from neaptide.frontends.state.step_state import StepState

Fact = tuple[str, Any]
_END = (object(),)


class Sweep:
    """Compares what is kept in many places with what was there before, by identity, at a few nanoseconds a place.

    What is there and may itself change is a matter of further places.
    """

    def __init__(self) -> None:
        self._getters: list[Callable[[Any], Iterable[Any]]] = []
        self._holders: list[Any] = []
        self._known: list[Any] = []

    def add(self, read: Callable[[Any], Iterable[Any]], holder: Any) -> None:
        """Sweep over what `read(holder)` gives."""
        self._getters.append(read)
        self._holders.append(holder)

    def add_places(self, places: Iterable[Place]) -> None:
        """Sweep over some places; those of one list or dict are read at once."""
        keys: dict[int, list[Any]] = {}
        holders: dict[int, Any] = {}
        for place in places:
            if isinstance(place, ItemPlace):
                holders[id(place.holder)] = place.holder
                keys.setdefault(id(place.holder), []).append(place.key)
            elif isinstance(place, AttributePlace) and isinstance(place.holder, type):
                self.add(operator.itemgetter(place.key, place.key), vars(place.holder))
            elif isinstance(place, (AttributePlace, PositionPlace)):
                name = place.attribute if isinstance(place, PositionPlace) else place.key
                self.add(operator.attrgetter(name, name), place.holder)  # a tuple, for two names
            else:
                self.add(lambda place: (place.get(),), place)
        for number, holder in holders.items():
            self.add(getter(holder, keys[number]), holder)

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


class Facts(ABC):
    """A kind of facts: read in full, by name, or fast as something that is only compared."""

    def __init__(self) -> None:
        self._sweep = Sweep()
        self._known: Any = None

    @abstractmethod
    def measured(self) -> Any:
        """What is there now beside the sweep; raises one of `GONE` where a place is gone."""

    def arm(self) -> None:
        """Remember what is there."""
        self._sweep.arm()
        try:
            self._known = self.measured()
        except (*GONE, RuntimeError):
            self._known = None

    def unchanged(self) -> bool:
        """Whether all is as it was, but for what is an input of the program. O(places), some tens of nanoseconds each."""
        try:
            same = self._known is not None and bool(self.measured() == self._known)
        except (*GONE, RuntimeError):
            return False
        return same and self._sweep.unchanged()


class PlaceFacts(Facts):
    """Reads the places of a step; of the numbers called `changing`, which are inputs of the program, only the type."""

    def __init__(self, state: StepState, changing: frozenset[str]) -> None:
        super().__init__()
        self._state = state
        self._changing = changing
        self._inputs = [place for place in state.scalars if place.name in changing]
        kept = [place for place in state.scalars if place.name not in changing]
        roots = {root.identity: root for root in map(root_of, (*kept, *state.objects))}
        # A tuple of nothing but tensors is not held on to: only its length is compared.
        self._loose = [place for place in state.tuples if root_of(place).identity not in roots]
        self._lists = [holder for _, holder in state.sized if not isinstance(holder, dict)]
        self._measures = list(map(size_getter, self._lists))
        self._bytes = [item for _, item in state.contents if holds_bytes(item)]
        self._sweep.add_places(roots.values())
        for _, holder in state.sized:
            if isinstance(holder, dict):
                self._sweep.add(keys_getter(holder), holder)
        for _, item in state.contents:
            if not holds_bytes(item):
                is_mapping = isinstance(item, Mapping)
                self._sweep.add((lambda i: [*i, *i.values()]) if is_mapping else keys_getter(item), item)

    def scalars(self) -> list[Fact]:
        """Values that can be compared, and the lengths and contents of what holds them."""
        state = self._state
        facts: list[Fact] = [(f"len({name})", size_of(holder)) for name, holder in state.sized]
        facts += [
            (f"order of {name}", tuple(k if isinstance(k, (str, int)) else Same(k) for k in keys_of(holder)))
            for name, holder in state.sized
            if isinstance(holder, dict)
        ]
        facts += [(name, content_of(item)) for name, item in state.contents]
        for place in (*state.scalars, *state.environment):
            content = read(place)
            if content is not MISSING:
                known = place.name in self._changing
                facts.append((place.name, type(content) if known else (type(content), exact(content))))
        for place in state.tuples:
            content = read(place)
            if content is not MISSING:
                facts.append((f"len({place.name})", _length(content)))
        return facts + [(f"type of {place.name}", type(read(place))) for place in state.unread]

    def objects(self) -> list[Fact]:
        """What can only be told apart by identity."""
        found = ((place.name, read(place)) for place in self._state.objects)
        return [(name, None if content is MISSING else Same(content)) for name, content in found]

    def measured(self) -> Any:
        return (
            list(map(operator.call, self._measures, self._lists)),
            [_length(read(place)) for place in self._loose],
            [type(read(place)) for place in (*self._inputs, *self._state.unread)],
            [content_of(item) for item in self._bytes],
            list(map(read, self._state.environment)),
        )


def _length(content: Any) -> Any:
    return size_of(content) if isinstance(content, tuple) else type(content)
