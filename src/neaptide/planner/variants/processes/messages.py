"""What goes between a search and its workers: pickled objects behind their length, in either direction.

Both ends are processes of this program, and nobody else writes to the pipes between them. A worker reads from one thread while
another one loads everything, so nothing is imported here that both would load.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from neaptide.planner.plan_graph import GraphPlan

_LENGTH: Final = struct.Struct("<Q")
READY: Final = b""
"""What a worker says first, once everything is loaded."""


@dataclass(frozen=True)
class Planned:
    """What a worker found: a plan, or why there is none; and what it would have warned of."""

    plan: GraphPlan | None
    told: tuple[str, ...] = ()
    failure: str = ""


def packed(message: Any) -> bytes:
    """A message as bytes. O(size): 90 ms for a graph of 4,600 nodes."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpacked(block: bytes) -> Any:
    """The message of some bytes that `packed` made."""
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
