"""A planned `.tflite` file is the file with its operators in another order and offsets in front, and nothing else."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from frontends.tflite.small_tflite import chain
from neaptide.errors import UnreadableFile, UnsupportedModel
from neaptide.frontends.tflite.flat import Flat
from neaptide.frontends.tflite.reader import decode_tflite
from neaptide.frontends.tflite.to_graph import tflite_graph
from neaptide.lower.tflite.plan import arena_buffers, plan_tflm
from neaptide.lower.tflite.rewrite import rewritten
from neaptide_corpus.tflite_graphs import irregular_network


def test_only_the_order_of_operators_and_the_front_are_new():
    data = irregular_network(0).to_bytes()
    model = decode_tflite(data)
    plan = plan_tflm(tflite_graph(model))
    assert plan.offsets is not None
    made = rewritten(model, plan.order, plan.offsets)
    again = decode_tflite(made)
    assert again.offsets == plan.offsets
    assert again.main.operators == tuple(model.main.operators[index] for index in plan.order)
    assert again.main.tensors == model.main.tensors
    first, count = model.main.operators_at, len(plan.order)
    body = made[len(made) - len(data) :]
    assert (body[:first], body[first + 4 * count :]) == (data[:first], data[first + 4 * count :])
    assert (len(made) - len(data)) % 64 == 0  # alignments in the file stay


def test_offsets_take_the_place_of_those_that_were_there_and_other_metadata_stay():
    file = irregular_network(0)
    file.metadata = {
        "OfflineMemoryAllocation": struct.pack(
            f"<3i{len(file.tensors)}i", 1, 1, len(file.tensors), *[-1] * len(file.tensors)
        ),
        "min_runtime_version": b"1.5.0\0",
    }
    model = decode_tflite(file.to_bytes())
    offsets = tuple(range(0, 16 * len(file.tensors), 16))
    made = rewritten(model, range(len(file.operators)), offsets)
    names = [table.text(0) for table in Flat(made).root().tables(6)]
    assert names == ["min_runtime_version", "OfflineMemoryAllocation"]
    assert decode_tflite(made).offsets == offsets
    assert (
        decode_tflite(rewritten(decode_tflite(made), range(len(file.operators)), offsets)).offsets == offsets
    )


def test_weights_after_the_tables_of_a_large_file_are_found_again():
    file = chain(1)
    file.weight("weight", np.ones(2, np.float32))
    data = bytearray(file.to_bytes())
    field = Flat(bytes(data)).root().at_slot(4)
    data += bytes(-len(data) % 8)
    start = len(data)
    struct.pack_into("<I", data, field, start - field)
    # Two buffers: an empty one, and one that lies after all tables, with its position and size.
    empty, outside, weights = start + 12 + 12, start + 12 + 28, start + 12 + 28 + 20
    data += struct.pack("<III", 2, empty - start - 4, outside - start - 8)
    data += struct.pack("<6H", 10, 20, 0, 4, 12, 0)
    data += struct.pack("<i3I", 12, 0, 0, 0) + struct.pack("<iQQ", outside - start - 12, weights, 8)
    data += np.array([1, 2], np.float32).tobytes()
    model = decode_tflite(bytes(data))
    assert [tensor.is_constant for tensor in model.main.tensors] == [False, False, True]
    made = rewritten(model, range(1), [0] * len(model.main.tensors))
    found = Flat(made).root().tables(4)[1]
    position = found.scalar(1, "Q")
    assert np.frombuffer(made[position : position + found.scalar(2, "Q")], np.float32).tolist() == [1, 2]


def test_a_file_of_a_newer_schema_or_with_damaged_parts_is_refused():
    file = chain(1)
    file.metadata = {"min_runtime_version": b"1.5.0"}
    data = bytearray(file.to_bytes())
    model = decode_tflite(bytes(data))
    root = struct.unpack_from("<I", data)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    # The list of buffers with metadata, which only the writer follows.
    struct.pack_into("<H", data, vtable + 4 + 2 * 5, 4)
    struct.pack_into("<I", data, root + 4, 1 << 30)
    with pytest.raises(UnreadableFile, match="damaged"):
        rewritten(replace(model, data=bytes(data)), range(1), [0, 16])
    newer = bytearray(model.data)
    newer += bytes(-len(newer) % 4) + struct.pack("<13H", 26, 48, *([0] * 10), 4) + bytes(2)
    root = len(newer)
    newer += struct.pack("<i", 28) + bytes(44)
    struct.pack_into("<I", newer, 0, root)
    with pytest.raises(UnsupportedModel, match="newer schema"):
        rewritten(replace(model, data=bytes(newer)), range(1), [0, 16])


def test_offsets_are_a_layout_of_what_lives_together():
    source = tflite_graph(decode_tflite(irregular_network(1).to_bytes()))
    plan = plan_tflm(source)
    problem = arena_buffers(source, source.problem(), plan.order)
    offsets = plan.offsets
    assert offsets is not None
    at = {str(s): o for s, o in zip(source.storage_of, offsets, strict=True) if s is not None and o >= 0}
    buffers = [(b.start, b.end, at[b.name], at[b.name] + b.nbytes) for b in problem.buffers]
    for index, (start, end, low, high) in enumerate(buffers):
        assert low % 16 == 0
        for other_start, other_end, other_low, other_high in buffers[:index]:
            if start < other_end and other_start < end:
                assert high <= other_low or other_high <= low
