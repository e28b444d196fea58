"""Facts that are objects: equal only to the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """Equal only to the same object."""

    item: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.item is self.item

    def __hash__(self) -> int:
        return id(self.item)


def without_identity(fact: Any) -> Any:
    """A fact in which objects are told apart only by what their code is called."""
    if isinstance(fact, Same):
        item = fact.item
        return getattr(item, "co_qualname", None) or getattr(item, "__qualname__", type(item).__qualname__)
    if type(fact) is tuple:
        return tuple(map(without_identity, fact))
    return fact
