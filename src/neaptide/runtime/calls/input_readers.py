"""How an input of a captured program is read at a call: from the user's objects, or among the call's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neaptide.frontends.state.step_state import StepState, TensorSlot

Reader = Callable[[list[Any]], Any]
"""Takes the leaves of a call's arguments and gives the input."""


def input_reader(key: tuple[Any, ...], state: StepState, slots: dict[str, TensorSlot]) -> Reader:
    """The reader of one input."""
    kind = key[0]
    if kind == "tensor":
        return _TensorReader(slots[key[1]])
    if kind == "gradient":
        slot = slots[key[1]]
        return lambda _leaves: slot.current().grad
    if kind == "state":
        _, label, name, entry = key
        optimizer, slot = state.optimizers[label], slots[name]
        return lambda _leaves: optimizer.state[slot.current()][entry]
    if kind == "rate":
        _, label, index, entry, item = key
        optimizer = state.optimizers[label]
        if item is None:
            return lambda _leaves: optimizer.param_groups[index][entry]
        return lambda _leaves: optimizer.param_groups[index][entry][item]
    if kind in {"scalar", "object", "unread"}:
        known = {"scalar": state.scalars, "object": state.objects, "unread": state.unread}[kind]
        place = next(place for place in known if place.name == key[1])
        return lambda _leaves: place.get()
    position = key[1]
    return lambda leaves: leaves[position]


class _TensorReader:
    """The tensor that is in a place now."""

    __slots__ = ("_slot",)

    def __init__(self, slot: TensorSlot) -> None:
        self._slot = slot

    def __call__(self, _leaves: list[Any]) -> Any:
        return self._slot.current()
