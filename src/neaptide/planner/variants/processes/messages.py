"""What goes between a search and its workers: pickled objects behind their length, in either direction.

Both ends are processes of this program, and nobody else writes to the pipes between them. Graphs have tens of thousands
of small objects: with a table of how these are taken apart, a graph of 4,600 nodes takes 40 ms to write and 35 to read,
else 90 and 105.
"""

from __future__ import annotations

import gc
import io
import pickle
import struct
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any, Final

from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Access, Effects, Loop, MergeMap, Named, Node, Ref, SliceMap, Source
from neaptide.ir.values import Storage, Value
from neaptide.planner.plan_graph import GraphPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH: Final = struct.Struct("<Q")
READY: Final = b""
"""What a worker says first, once everything is loaded."""


@dataclass(frozen=True)
class Planned:
    """What a worker found.

    Attributes:
        plan: of the variant; None where planning failed.
        told: what it would have warned of.
        failure: why there is no plan.
    """

    plan: GraphPlan | None
    told: tuple[str, ...] = ()
    failure: str = ""


def packed(message: Any) -> bytes:
    """A message as bytes. O(size)."""
    block = io.BytesIO()
    pickler = pickle.Pickler(block, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _TAKEN_APART
    with _uncollected():
        pickler.dump(message)
    return block.getvalue()


def unpacked(block: bytes) -> Any:
    """The message of some bytes that `packed` made. O(size)."""
    with _uncollected():
        return pickle.loads(block)  # noqa: S301 - from the other end of our own pipe


def write(stream: IO[bytes], block: bytes) -> None:
    """Write one message.

    Raises:
        OSError: nobody reads it.
    """
    stream.write(_LENGTH.pack(len(block)))
    stream.write(block)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """The next message; None where the other end is gone."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    block = stream.read(length)
    return block if len(block) == length else None


def _fields_of(cls: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    """Takes an object apart into what it is made of; what it works out from that is not among it."""
    names = [made.name for made in fields(cls) if made.init]
    get = attrgetter(*names)
    return (lambda one: (cls, (get(one),))) if len(names) == 1 else (lambda one: (cls, get(one)))


_TAKEN_APART: Final[dict[type, Any]] = {
    cls: _fields_of(cls)
    for cls in (
        Access,
        Effects,
        Graph,
        Loop,
        MergeMap,
        Named,
        Node,
        Ref,
        Segment,
        SliceMap,
        Source,
        Storage,
        Value,
    )
}


@contextmanager
def _uncollected() -> Iterator[None]:
    """No collection of garbage meanwhile: none is made, and each looks at all that was read so far."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
