"""A `.tflite` file with its operators in another order and with offsets in its metadata; all other bytes are as they were.

Offsets in a FlatBuffer point forward and are relative, so that a file can be moved as a whole. A new root is put in front: the
model's table, its vectors of buffers and of metadata, and the offsets. The file follows; only the vector of operators in it is
permuted. Positions from the start of the file, which weights of files above 2 GiB have, are moved.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from neaptide.errors import UnsupportedModel
from neaptide.frontends.tflite.flat import Flat, FlatBufferError, Table
from neaptide.frontends.tflite.model import OFFSETS, TfliteModel
from neaptide.frontends.tflite.reader import IDENTIFIER, saying_damage
from neaptide.ops.tflite import ALIGNMENT

_SLOTS: Final = 10  # of the model's table in the schema: a number, then offsets
_BUFFERS, _METADATA = 4, 6
_FIXED: Final = 256  # bytes in front of a file, beside four for each buffer, offset and entry of the metadata
_UNIT: Final = 64  # the file is moved by a multiple: every alignment in it stays
_VERSION: Final = 1  # of the form of the metadata


def rewritten(model: TfliteModel, order: Sequence[int], offsets: Sequence[int]) -> bytes:
    """The bytes of the file with operators in an order, and an offset for each tensor.

    Raises:
        UnreadableFile: what is read of the file only to be written again is damaged.
        UnsupportedModel: the model's table has fields of a newer schema.
    """
    with saying_damage(model.name):
        return _rewritten(model, order, offsets)


def _rewritten(model: TfliteModel, order: Sequence[int], offsets: Sequence[int]) -> bytes:
    flat = Flat(model.data)
    root = flat.root()
    if any(root.at_slot(slot) for slot in range(_SLOTS, len(root.offsets))):
        raise UnsupportedModel(
            f"{model.name or 'the model'} is written in a newer schema",
            why=f"its first table has more than {_SLOTS} fields",
            next_step="use a newer neaptide",
        )
    body = bytearray(model.data)
    _permute(flat, body, model.main.operators_at, order)
    front = _Front(flat, root, offsets)
    _move_positions(root, body, front.size)
    return front.written() + bytes(body)


def _permute(flat: Flat, body: bytearray, first: int, order: Sequence[int]) -> None:
    """Puts the offsets of operators in order: each is relative to where it stands."""
    end = first + 4 * len(order)
    for place, index in enumerate(order):
        target = flat.follow(first + 4 * index)
        if target < end:
            raise FlatBufferError(f"operator {index} lies inside of the list of operators")
        struct.pack_into("<I", body, first + 4 * place, target - (first + 4 * place))


def _move_positions(root: Table, body: bytearray, shift: int) -> None:
    """Moves positions from the start of the file: of the data of buffers, and of the options of custom operators."""
    operators = [operator for graph in root.tables(2) for operator in graph.tables(3)]
    fields = {table.at_slot(1) for table in root.tables(_BUFFERS)} | {table.at_slot(9) for table in operators}
    for position in fields - {0}:
        if (old := root.flat.number(position, "Q")) > 1:
            struct.pack_into("<Q", body, position, old + shift)


class _Front:
    """What is put in front of a file."""

    def __init__(self, flat: Flat, root: Table, offsets: Sequence[int]) -> None:
        self.root, self.offsets = root, offsets
        self.buffers = _targets(flat, root, _BUFFERS)
        self.metadata = [
            target for target in _targets(flat, root, _METADATA) if Table.at(flat, target).text(0) != OFFSETS
        ]
        count = len(offsets) + len(self.buffers) + len(self.metadata)
        self.size = -(-(_FIXED + 4 * count) // _UNIT) * _UNIT
        self.made = bytearray()

    def written(self) -> bytes:
        """The bytes."""
        made = self.made
        made += struct.pack("<I4s", 0, IDENTIFIER)
        made += struct.pack("<12H", 4 + 2 * _SLOTS, 4 + 4 * _SLOTS, *(4 + 4 * k for k in range(_SLOTS)))
        self.here(0)
        table = len(made)
        made += struct.pack("<iI", 4 + 2 * _SLOTS, self.root.scalar(0, "I"))
        for slot in range(1, _SLOTS):
            position = self.root.at_slot(slot)
            if not position and slot not in {_BUFFERS, _METADATA}:
                struct.pack_into("<H", made, table - 2 * (_SLOTS - slot), 0)  # it is absent
            self.target(self.root.flat.follow(position) if position else None)
        self.here(table + 4 + 4 * _METADATA)
        entry = self.targets(self.metadata)
        self.here(table + 4 + 4 * _BUFFERS)
        last = self.targets(self.buffers)

        made += struct.pack("<4H", 8, 12, 4, 8)
        self.here(entry)
        made += struct.pack("<iII", 8, 8, len(self.buffers))
        name = OFFSETS.encode()
        made += struct.pack("<I", len(name)) + name + b"\0"
        made += bytes(-(len(made) + 6) % 4)
        made += struct.pack("<3H", 6, 8, 4)
        self.here(last)
        made += struct.pack("<iI", 6, 0)
        data_at = len(made) - 4
        made += bytes(-(len(made) + 4) % ALIGNMENT)
        self.here(data_at)
        count = len(self.offsets)
        made += struct.pack(f"<I3i{count}i", 12 + 4 * count, _VERSION, 1, count, *self.offsets)
        assert len(made) <= self.size
        return bytes(made) + bytes(self.size - len(made))

    def target(self, position: int | None) -> None:
        """An offset to a place in the file that follows; 0 for none."""
        self.made += struct.pack("<I", 0 if position is None else position + self.size - len(self.made))

    def targets(self, positions: Sequence[int]) -> int:
        """A vector of offsets to places in the file, and a last one that is written later: where it stands."""
        self.made += struct.pack("<I", len(positions) + 1)
        for position in positions:
            self.target(position)
        self.made += bytes(4)
        return len(self.made) - 4

    def here(self, position: int) -> None:
        """Lets the offset at a position point to what comes next."""
        struct.pack_into("<I", self.made, position, len(self.made) - position)


def _targets(flat: Flat, table: Table, slot: int) -> list[int]:
    """Where the tables of a vector are."""
    first, count = table.vector(slot, 4)
    return [flat.follow(first + 4 * index) for index in range(count)]
