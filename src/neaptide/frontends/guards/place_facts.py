"""Facts about the Python state that a step can read: plain values, objects, lengths and contents of collections."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from neaptide.frontends.objects.containers import keys_getter, keys_of, size_getter, size_of
from neaptide.frontends.objects.contents import content_of, exact, holds_bytes
from neaptide.frontends.objects.places import Place, root_of
from neaptide.frontends.objects.same_object import Same
from neaptide.frontends.objects.sweep import GONE, Sweep
from neaptide.frontends.state.step_state import StepState

Fact = tuple[str, Any]


class PlaceFacts:
    """Reads the places of a step.

    Args:
        state: what was found.
        changing: names of Python numbers that are inputs of the program: of them only the type is a fact.
    """

    def __init__(self, state: StepState, changing: frozenset[str]) -> None:
        self._state = state
        self._changing = changing
        self._inputs = [place for place in state.scalars if place.name in changing]
        kept = [place for place in state.scalars if place.name not in changing]
        roots = {root.identity: root for place in (*kept, *state.objects) for root in (root_of(place),)}
        # A tuple of nothing but tensors is not held on to: only its length is compared.
        self._loose = [place for place in state.tuples if root_of(place).identity not in roots]
        self._mappings = [holder for _, holder in state.sized if isinstance(holder, dict)]
        self._lists = [holder for _, holder in state.sized if not isinstance(holder, dict)]
        self._measures = list(map(size_getter, self._lists))
        self._bytes = [item for _, item in state.contents if holds_bytes(item)]
        self._sweep = Sweep()
        self._sweep.add_places(roots.values())
        for holder in self._mappings:
            self._sweep.add(keys_getter(holder), holder)
        for _, item in state.contents:
            if not holds_bytes(item):
                self._sweep.add(_keys_and_values if isinstance(item, Mapping) else keys_getter(item), item)
        self._sizes: Any = None

    def scalars(self) -> list[Fact]:
        """Values that can be compared, and the lengths and contents of what holds them."""
        facts: list[Fact] = [(f"len({name})", size_of(holder)) for name, holder in self._state.sized]
        facts += [
            (f"order of {name}", tuple(map(_key, keys_of(holder))))
            for name, holder in self._state.sized
            if isinstance(holder, dict)
        ]
        facts += [(name, content_of(item)) for name, item in self._state.contents]
        for place in (*self._state.scalars, *self._state.environment):
            content = read(place)
            if content is not MISSING:
                known = place.name in self._changing
                facts.append((place.name, type(content) if known else (type(content), exact(content))))
        for place in self._state.tuples:
            content = read(place)
            if content is not MISSING:
                facts.append((f"len({place.name})", _length(content)))
        return facts + [(f"type of {place.name}", type(read(place))) for place in self._state.unread]

    def objects(self) -> list[Fact]:
        """What can only be told apart by identity."""
        return [
            (place.name, None if (content := read(place)) is MISSING else Same(content))
            for place in self._state.objects
        ]

    def arm(self) -> None:
        """Remember what is there."""
        self._sweep.arm()
        self._sizes = self._measured()

    def unchanged(self) -> bool:
        """Whether all is as it was, but for the numbers that are inputs. O(places)."""
        return self._sweep.unchanged() and self._measured() == self._sizes

    def _measured(self) -> Any:
        return (
            list(map(operator.call, self._measures, self._lists)),
            [_length(read(place)) for place in self._loose],
            [type(read(place)) for place in (*self._inputs, *self._state.unread)],
            [content_of(item) for item in self._bytes],
            list(map(read, self._state.environment)),
        )


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def read(place: Place) -> Any:
    """What is in a place now; `MISSING` where the place itself is gone."""
    try:
        return place.get()
    except GONE:
        return MISSING


def _length(content: Any) -> Any:
    return size_of(content) if isinstance(content, tuple) else type(content)


def _key(key: Any) -> Any:
    return key if isinstance(key, (str, int)) else Same(key)


def _keys_and_values(item: Mapping[Any, Any]) -> list[Any]:
    return [*item, *item.values()]
