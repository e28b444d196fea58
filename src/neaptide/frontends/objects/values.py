"""Plain values and collections as facts: what guards compare, and how."""

from __future__ import annotations

import array
import enum
import math
import numbers
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from neaptide.frontends.objects.containers import entries_of, size_of

MAX_CONTAINER = 10_000  # a longer list is data, not configuration: no time at each call to compare it
MAX_CONTENT_BYTES = 1 << 20  # an array that is compared at each call: a tenth of a millisecond

_SCALARS = (bool, numbers.Number, str, bytes, type(None), torch.dtype, torch.device, torch.layout, enum.Enum)
_BYTES = (bytearray, memoryview)
_ONE_BY_ONE = (list, dict, tuple, str, bytes, range, type, torch.Tensor, torch.nn.Module)


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """A fact that is an object: equal only to the same one."""

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
    return tuple(map(without_identity, fact)) if type(fact) is tuple else fact


def is_scalar(item: Any) -> bool:
    """Whether something is a plain value that can be compared: a number, a string, a flag, a dtype."""
    if isinstance(item, _SCALARS):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(item, numpy.generic)


def is_plain(item: Any) -> bool:
    """Whether something is plain data: a plain value, or a tuple of them."""
    return is_scalar(item) or (isinstance(item, tuple) and all(map(is_plain, item)))


def is_same(before: Any, after: Any) -> bool:
    """Whether two contents of a place are one object, or equal plain data."""
    if before is after:
        return True
    return is_plain(before) and is_plain(after) and type(before) is type(after) and bool(before == after)


def exact(item: Any) -> Any:
    """A plain value so that equal means the same to arithmetic: 0.0 is not -0.0, and NaN is NaN."""
    kind: type = type(item)
    if kind is float and item and not math.isnan(item):
        return item
    return repr(item) if isinstance(item, numbers.Number) and kind not in (bool, int) else item


def fact_of(item: Any) -> Any:
    """What is compared of one entry: a plain value with its type, a tuple entry by entry, all else by identity."""
    if is_scalar(item):
        return (type(item), exact(item))
    return tuple(map(fact_of, entries_of(item))) if isinstance(item, tuple) else Same(item)


# -- collections that are compared as a whole: sets, arrays and bytes have no place for each of their entries ---------


def is_read_whole(item: Any) -> bool:
    """Whether something is a collection that holds its entries where no place can be named."""
    return not isinstance(item, _ONE_BY_ONE) and (
        holds_bytes(item) or isinstance(item, (Set, Mapping, Sequence))
    )


def holds_bytes(item: Any) -> bool:
    """Whether a collection holds numbers, not objects: entries have no identity that lasts."""
    return isinstance(item, (*_BYTES, array.array)) or is_array(item)


def is_too_large(item: Any) -> bool:
    """Whether comparing it at each call would cost more than the guards of a whole model."""
    if isinstance(item, memoryview) or is_array(item):
        return bool(item.nbytes > MAX_CONTENT_BYTES)
    if isinstance(item, (bytearray, array.array)):
        return len(item) * getattr(item, "itemsize", 1) > MAX_CONTENT_BYTES
    return size_of(item) > MAX_CONTAINER


def entries_in(item: Any) -> Iterator[Any]:
    """Entries that may be looked into: those of collections of objects."""
    if isinstance(item, Mapping):
        yield from item.values()
    elif is_array(item):
        yield from item.ravel().tolist() if item.dtype.hasobject else ()
    elif not holds_bytes(item):
        yield from entries_of(item)


def content_of(item: Any) -> Any:
    """All that a collection holds, in its order, as something to compare. O(size)."""
    if isinstance(item, _BYTES):
        return bytes(item)
    if isinstance(item, array.array):
        return item.typecode, item.tobytes()
    if is_array(item):
        if item.dtype.hasobject:
            return item.shape, tuple(map(fact_of, item.ravel().tolist()))
        return item.shape, item.strides, item.dtype.str, item.tobytes()
    if isinstance(item, Mapping):
        return tuple((fact_of(key), fact_of(content)) for key, content in item.items())
    return tuple(map(fact_of, entries_of(item)))


def is_array(item: Any) -> bool:
    """Whether something is an array of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(item, numpy.ndarray)
