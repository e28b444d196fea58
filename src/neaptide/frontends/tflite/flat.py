"""FlatBuffers read with care: every offset is compared with the size of the file before it is followed.

A table is a position with a vtable of 16-bit offsets to its fields; vectors, strings and tables are reached by unsigned
offsets that point forward (flatbuffers.dev, "Internals"). A hostile file may name one vector a million times, so that what is
read is counted too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Scalar: TypeAlias = Literal["b", "B", "?", "h", "H", "i", "I", "q", "Q", "f"]
_MOST_ITEMS: Final = 3_000_000
"""Elements of vectors and tables that are read of one file: some seconds. Models of 20,000 operators have fewer."""
_OF_BYTE: Final = 4
"""Elements for each byte of the file: more are there only where the same bytes are read many times."""
_TABLE: Final = 16  # elements that a table counts for
_CHARACTERS: Final = 64  # of a string that count for one


class FlatBufferError(ValueError):
    """Bytes that are no FlatBuffer of the schema. Whoever reads them knows their file."""


_FORMS: Final[Mapping[str, struct.Struct]] = {form: struct.Struct(f"<{form}") for form in "bB?hHiIqQf"}


@dataclass(slots=True)
class Flat:
    """The bytes of a file, and how much of it may still be read."""

    data: bytes | memoryview
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = min(_MOST_ITEMS, _OF_BYTE * len(self.data))

    def root(self) -> Table:
        """The table that the file begins with."""
        return Table.at(self, self.follow(0))

    def number(self, position: int, form: Scalar) -> int:
        """A little-endian number."""
        known = _FORMS[form]
        self.inside(position, known.size)
        return int(known.unpack_from(self.data, position)[0])

    def follow(self, position: int) -> int:
        """Where the unsigned offset at a position points to."""
        target = position + self.number(position, "I")
        if target == position:
            raise FlatBufferError(f"the offset at byte {position} is 0")
        self.inside(target, 4)
        return target

    def inside(self, position: int, count: int) -> None:
        """Makes sure that bytes are inside of the file."""
        if position < 0 or position + count > len(self.data):
            raise FlatBufferError(
                f"bytes {position} to {position + count} are used, and the file has {len(self.data)}"
            )

    def spend(self, count: int) -> None:
        """Counts what is read."""
        self.left -= count
        if self.left < 0:
            raise FlatBufferError(
                "its tables and vectors have more elements than a model has, or name the same bytes often"
            )


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its position, and by slot the offset of a field from there; 0 of one that is absent."""

    flat: Flat
    position: int
    offsets: tuple[int, ...]

    @staticmethod
    def at(flat: Flat, position: int) -> Table:
        """The table at a position."""
        flat.spend(_TABLE)
        vtable = position - flat.number(position, "i")
        nbytes = flat.number(vtable, "H")
        if nbytes < 4 or nbytes % 2:
            raise FlatBufferError(f"the vtable at byte {vtable} has a length of {nbytes}")
        flat.inside(vtable, nbytes)
        own, *offsets = struct.unpack_from(f"<{nbytes // 2 - 1}H", flat.data, vtable + 2)
        flat.inside(position, own)
        return Table(flat, position, tuple(offsets))

    def at_slot(self, slot: int) -> int:
        """The position of a field; 0 where it is absent."""
        offset = self.offsets[slot] if slot < len(self.offsets) else 0
        return self.position + offset if offset else 0

    def scalar(self, slot: int, form: Scalar, default: int = 0) -> int:
        """A number; the default of the schema where it is absent."""
        position = self.at_slot(slot)
        return self.flat.number(position, form) if position else default

    def table(self, slot: int) -> Table | None:
        """A table that the field points to; None where it is absent."""
        position = self.at_slot(slot)
        return Table.at(self.flat, self.flat.follow(position)) if position else None

    def vector(self, slot: int, width: int) -> tuple[int, int]:
        """The position of the first element of a vector, and how many there are; none where it is absent."""
        position = self.at_slot(slot)
        if not position:
            return 0, 0
        start = self.flat.follow(position)
        count = self.flat.number(start, "I")
        self.flat.inside(start + 4, count * width)
        return start + 4, count

    def tables(self, slot: int) -> list[Table]:
        """The tables of a vector."""
        first, count = self.vector(slot, 4)
        return [Table.at(self.flat, self.flat.follow(first + 4 * index)) for index in range(count)]

    def ints(self, slot: int) -> tuple[int, ...]:
        """The 32-bit integers of a vector."""
        first, count = self.vector(slot, 4)
        self.flat.spend(count)
        return struct.unpack_from(f"<{count}i", self.flat.data, first)

    def text(self, slot: int) -> str:
        """A string."""
        first, count = self.vector(slot, 1)
        self.flat.spend(count // _CHARACTERS)
        return bytes(self.flat.data[first : first + count]).decode("utf-8", "replace")
