"""`.tflite` files that are damaged, hostile or not supported: one sentence of an error of ours, soon."""

from __future__ import annotations

import random
import struct
import time
from contextlib import suppress

import numpy as np
import pytest

from frontends.tflite.small_tflite import chain, nested
from neaptide.errors import NeaptideError, UnreadableFile, UnsupportedModel
from neaptide.frontends.tflite.reader import decode_tflite, read_tflite
from neaptide.frontends.tflite.to_graph import tflite_graph
from neaptide.lower.tflite.plan import plan_tflm
from neaptide.lower.tflite.rewrite import rewritten
from neaptide_corpus.tflite_graphs import irregular_network
from neaptide_corpus.tflite_writer import TfliteFile
from support.together import together

SECONDS = 5


def planned(data: bytes) -> None:
    """Everything that is done with a file."""
    model = decode_tflite(data, name="model.tflite")
    source = tflite_graph(model)
    plan = plan_tflm(source)
    if plan.offsets is not None:
        decode_tflite(rewritten(model, plan.order, plan.offsets))


def offsets(count: int, said: int, first: int = -1) -> dict[str, bytes]:
    return {"OfflineMemoryAllocation": struct.pack(f"<3i{count}i", 1, 1, said, *[first] * count)}


def with_metadata(metadata: dict[str, bytes]) -> TfliteFile:
    file = chain(3)
    file.metadata = metadata
    return file


def of_one(**said: object) -> TfliteFile:
    """A RELU whose operand is as it is said."""
    file = TfliteFile()
    given = {"name": "x", "shape": (1, 4), **said}
    one, made = file.tensor(**given), file.tensor("y", (1, 4))
    file.operator("RELU", [one], [made])
    file.inputs, file.outputs = [one], [made]
    return file


def read_too_early() -> TfliteFile:
    file = chain(3)
    file.operators.reverse()
    return file


def made_twice() -> TfliteFile:
    file = chain(2)
    file.operators.append(file.operators[0])
    return file


def unknown_tensor() -> TfliteFile:
    file = chain(1)
    file.operator("RELU", [99], [1])
    return file


def calling_itself() -> TfliteFile:
    file = nested(1)
    file.further[0].operators.clear()
    file.further[0].operator("IF", [0, 0, 1], [2], (1, 1))
    return file


@together(
    ("file", "words"),
    [
        (of_one(dtype="string"), "strings"),
        (of_one(shape=(1, -1)), "not known before it runs"),
        (of_one(shape=(1 << 30, 1 << 30)), "no device has that much"),
        (chain(3, (1 << 15, 1 << 15)), "counts offsets below"),
        (read_too_early(), "before anything makes it"),
        (made_twice(), "there already"),
        (unknown_tensor(), "names tensor 99"),
        (calling_itself(), "runs itself"),
        (nested(1000), "100 deep"),
        (with_metadata(offsets(4, 5)), "there are 4 tensors"),
        (with_metadata(offsets(3, 4)), "have 3 offsets"),
        (with_metadata(offsets(4, 4, -7)), "place a tensor at -7"),
        (with_metadata({"OfflineMemoryAllocation": b"\1"}), "have 0 offsets"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_planned_is_said_in_one_sentence(file, words):
    with pytest.raises((UnreadableFile, UnsupportedModel)) as error:
        planned(file.to_bytes())
    assert words in str(error.value)


def test_a_vector_that_is_named_again_and_again_is_read_in_bounded_time():
    # 1,024 subgraphs are one table, whose 4,096 tensors are one table.
    data = bytearray(chain(1).to_bytes())
    root = struct.unpack_from("<I", data)[0]
    table = root - struct.unpack_from("<i", data, root)[0]
    field = root + struct.unpack_from("<H", data, table + 4 + 2 * 2)[0]
    start = len(data)
    struct.pack_into("<I", data, field, start - field)
    graph = start + 4 + 4 * 1024
    data += struct.pack("<I", 1024) + b"".join(
        struct.pack("<I", graph + 8 - (start + 4 + 4 * k)) for k in range(1024)
    )
    data += struct.pack("<4H", 6, 8, 4, 0)
    data += struct.pack("<iI", 8, 4)
    tensor = len(data) + 4 + 4 * 4096
    data += struct.pack("<I", 4096) + b"".join(
        struct.pack("<I", tensor + 8 - (len(data) + 4 + 4 * k)) for k in range(4096)
    )
    data += struct.pack("<4H", 4, 4, 0, 0) + struct.pack("<i", 8)
    before = time.process_time()
    with pytest.raises(UnreadableFile, match="more elements"):
        decode_tflite(bytes(data))
    assert time.process_time() - before < SECONDS


def test_a_hundred_thousand_operators_are_refused_before_they_are_read(monkeypatch):
    monkeypatch.setattr("neaptide.frontends.tflite.reader._MOST_OPERATORS", 50)
    with pytest.raises(UnsupportedModel, match="has 60 operators"):
        decode_tflite(chain(60).to_bytes())


@together("length", range(0, 300, 9))
def test_a_file_that_is_cut_short_is_no_crash(length):
    with pytest.raises(NeaptideError):
        planned(chain(2).to_bytes()[:length])


def test_flipped_bytes_are_no_crash():
    draw, data = random.Random(0), chain(4).to_bytes()
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(draw.choice((1, 2, 6))):
            at = draw.randrange(len(damaged) - 4)
            if draw.random() < 0.5:
                damaged[at] = draw.randrange(256)
            else:
                number = draw.choice((0, 1, 0xFFFFFFFF, 1 << 31, len(data), draw.randrange(len(data))))
                struct.pack_into("<I", damaged, at, number)
        with suppress(NeaptideError):
            planned(bytes(damaged))


@pytest.mark.slow
def test_damaged_networks_are_no_crash():
    draw, data = random.Random(1), irregular_network(2).to_bytes()
    for _ in range(3000):
        damaged = bytearray(data)
        for at in draw.sample(range(len(data)), 8):
            damaged[at] = draw.randrange(256)
        with suppress(NeaptideError):
            planned(bytes(damaged))


@together(
    ("content", "words"),
    [(b"", "no TensorFlow Lite file"), (b"PK\3\4" * 9, "no TensorFlow Lite file"), (None, "cannot be read")],
)
def test_what_is_no_such_file_is_named_with_its_path(tmp_path, content, words):
    path = tmp_path / "model.tflite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=words) as error:
        read_tflite(path)
    assert str(path) in str(error.value)


def test_weights_of_a_file_stay_on_the_disk(tmp_path):
    file = of_one()
    file.weight("large", np.zeros((1 << 20,), np.float32))
    path = tmp_path / "model.tflite"
    path.write_bytes(file.to_bytes())
    assert isinstance(read_tflite(path).data, memoryview)
