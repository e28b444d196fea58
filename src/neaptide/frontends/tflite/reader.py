"""A `.tflite` file to `TfliteModel`. The file is mapped, not read: weights stay on the disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from neaptide.errors import UnreadableFile, UnsupportedModel
from neaptide.files.reading import map_bytes, place_of
from neaptide.frontends.tflite.flat import Flat, FlatBufferError, Table
from neaptide.frontends.tflite.model import OFFSETS, Subgraph, TfliteModel, TfliteOperator, TfliteTensor
from neaptide.frontends.tflite.operators import CALLED, CUSTOM, DTYPES, OPERATORS
from neaptide.ir.values import DTYPE_BYTES

IDENTIFIER: Final = b"TFL3"
_MOST_BYTES: Final = 1 << 40  # of one tensor: far above what any device has
_MOST_OPERATORS: Final = 20_000  # some seconds
_DEEPEST: Final = 100  # subgraphs that run each other
_WITH_BODIES: Final = frozenset(
    f"STABLEHLO_{name}"
    for name in ("WHILE", "CASE", "REDUCE", "COMPOSITE", "SORT", "SCATTER", "REDUCE_WINDOW")
)
"""Operators that run subgraphs which their second kind of options names."""


def read_tflite(path: str | Path) -> TfliteModel:
    """The model of a file. O(tables); the data of weights is not looked at.

    Raises:
        UnreadableFile: the file is not there, is no `.tflite` file, or breaks the form.
        UnsupportedModel: it holds something that cannot be planned, such as strings or dynamic shapes.
    """
    data = map_bytes(path)
    try:
        return decode_tflite(data, name=Path(path).name)
    except (UnreadableFile, UnsupportedModel) as error:
        raise type(error)(
            error.what, where=error.where or place_of(path), why=error.why, next_step=error.next_step
        ) from error


def decode_tflite(data: bytes | memoryview, *, name: str = "") -> TfliteModel:
    """The model in the bytes of a file; raises as `read_tflite` does."""
    if len(data) < 8 or bytes(data[4:8]) != IDENTIFIER:
        raise UnreadableFile(
            f"{name or 'the data'} is no TensorFlow Lite file",
            why=f"bytes 4 to 8 are not {IDENTIFIER.decode()}",
            next_step="give a .tflite file as the converter wrote it",
        )
    with saying_damage(name):
        return _Reading(Flat(data), name).run()


@contextmanager
def saying_damage(name: str) -> Iterator[None]:
    """What is wrong with the bytes of a file is told with its name."""
    try:
        yield
    except FlatBufferError as error:
        raise UnreadableFile(
            f"{name or 'the data'} is a damaged TensorFlow Lite file",
            why=str(error),
            next_step="fetch or convert the file again",
        ) from error


class _Reading:
    def __init__(self, flat: Flat, name: str) -> None:
        self.flat, self.name = flat, name
        root = flat.root()
        self.graphs = root.tables(2)
        self.check_count()
        self.codes = [_code(table) for table in root.tables(1)]
        self.buffers = root.tables(4)
        self.has_data = [_has_data(table) for table in self.buffers]
        self.metadata = root.tables(6)

    def check_count(self) -> None:
        """Refuse, before anything long begins, a model that is too large."""
        count = sum(table.vector(3, 4)[1] for table in self.graphs)
        if count > _MOST_OPERATORS:
            raise self.refused(
                f"has {count} operators",
                f"models of at most {_MOST_OPERATORS} are planned",
                "split the model, or plan the part that needs most memory",
            )

    def run(self) -> TfliteModel:
        if not self.graphs:
            raise FlatBufferError("it has no subgraph")
        subgraphs = tuple(self.subgraph(table, index) for index, table in enumerate(self.graphs))
        count = sum(len(graph.tensors) for graph in subgraphs)
        model = TfliteModel(self.name, subgraphs, self.flat.data, self.offsets(count))
        self.check_calls(model)
        return model

    def refused(self, what: str, why: str, next_step: str) -> UnsupportedModel:
        return UnsupportedModel(f"{self.name or 'the model'} {what}", why=why, next_step=next_step)

    def subgraph(self, table: Table, index: int) -> Subgraph:
        tensors = tuple(self.tensor(one, at) for at, one in enumerate(table.tables(0)))
        first, _ = table.vector(3, 4)
        operators = tuple(self.operator(one, at) for at, one in enumerate(table.tables(3)))
        made = Subgraph(table.text(4), tensors, operators, table.ints(1), table.ints(2), first)
        _check_subgraph(made, index)
        return made

    def tensor(self, table: Table, index: int) -> TfliteTensor:
        name, shape = table.text(3), table.ints(0)
        # Whatever the signature of the shape leaves open, the interpreter of devices takes the shape.
        if any(extent < 0 for extent in shape):
            raise self.refused(
                f"has a shape that is not known before it runs: tensor {index} ({name}) is {list(shape)}",
                "memory can be planned for known sizes only",
                "convert the model with a fixed batch and fixed sizes",
            )
        number = table.scalar(1, "b")
        if (dtype := DTYPES.get(number)) is None:
            raise self.refused(
                f"has a tensor of type {number}: tensor {index} ({name})",
                "strings, variants and types of newer schemas have no size that the file tells",
                "leave those operators outside of the model",
            )
        buffer, nbytes = table.scalar(2, "I"), math.prod(shape) * DTYPE_BYTES[dtype]
        if buffer >= max(len(self.has_data), 1):
            raise FlatBufferError(f"tensor {index} is in buffer {buffer}, and there are {len(self.has_data)}")
        if nbytes > _MOST_BYTES:
            raise self.refused(
                f"has a tensor of {nbytes} bytes: tensor {index} ({name}), {list(shape)} of {dtype}",
                "no device has that much",
                "check the shapes of the model",
            )
        is_constant = buffer < len(self.has_data) and self.has_data[buffer]
        is_outside = bool(table.scalar(10, "I"))  # in a file beside this one
        return TfliteTensor(name, dtype, shape, nbytes, is_constant or is_outside, bool(table.scalar(5, "?")))

    def operator(self, table: Table, index: int) -> TfliteOperator:
        code = table.scalar(0, "I")
        if code >= len(self.codes):
            raise FlatBufferError(f"operator {index} has the code {code}, and there are {len(self.codes)}")
        name, version = self.codes[code]
        if name in _WITH_BODIES:
            raise self.refused(
                f"holds {name}", "the subgraphs that it runs are not read", "convert to plain operators"
            )
        called: tuple[int, ...] = ()
        if (count := CALLED.get(name, 0)) and (options := table.table(4)) is not None:
            called = tuple(options.scalar(slot, "i") for slot in range(count))
        return TfliteOperator(name, version, table.ints(1), table.ints(2), called)

    def offsets(self, count: int) -> tuple[int, ...] | None:
        """Offsets in the arena that the file has already, one for each tensor of all subgraphs."""
        found = None
        for table in self.metadata:
            number = table.scalar(1, "I")
            if number >= len(self.buffers):
                raise FlatBufferError(
                    f"metadata {table.text(0)!r} are in buffer {number}, and there are {len(self.buffers)}"
                )
            if table.text(0) == OFFSETS:
                first, nbytes = self.buffers[number].vector(0, 1)
                said = self.flat.number(first + 8, "i") if nbytes >= 12 else -1
                if said != count or nbytes < 12 + 4 * count:
                    raise FlatBufferError(
                        f"its metadata {OFFSETS} have {max(nbytes // 4 - 3, 0)} offsets, and say that they have {said}; "
                        f"there are {count} tensors"
                    )
                found = tuple(self.flat.number(first + 12 + 4 * index, "i") for index in range(count))
                if wrong := next((offset for offset in found if not -1 <= offset < _MOST_BYTES), None):
                    raise FlatBufferError(f"its metadata {OFFSETS} place a tensor at {wrong}")
        return found

    def check_calls(self, model: TfliteModel) -> None:
        """Subgraphs exist, do not run themselves, and are not nested too deeply."""
        calls = [
            {called for operator in graph.operators for called in operator.called}
            for graph in model.subgraphs
        ]
        depth, layer = 0, {0}
        while layer:
            if any(not 0 <= index < len(calls) for index in layer):
                raise FlatBufferError(f"an operator runs subgraph {max(layer)}, and there are {len(calls)}")
            if depth > _DEEPEST:
                raise self.refused(
                    f"has subgraphs that run each other more than {_DEEPEST} deep",
                    "or one that runs itself",
                    "convert the model without nested control flow",
                )
            layer, depth = set().union(*(calls[index] for index in layer)), depth + 1


def _code(table: Table) -> tuple[str, int]:
    """Name and version of an operator. Codes above 127 stand in the newer of two fields."""
    code = max(table.scalar(0, "b"), table.scalar(3, "i"))
    name = OPERATORS[code] if 0 <= code < len(OPERATORS) else f"OPERATOR_{max(code, 0)}"
    if code == CUSTOM:
        name = OPERATORS[CUSTOM]
    return name, max(table.scalar(2, "i", 1), 1)


def _has_data(table: Table) -> bool:
    """Whether a buffer has bytes: inside, or after the tables of a file above 2 GiB."""
    _, count = table.vector(0, 1)
    if count:
        return True
    offset, nbytes = table.scalar(1, "Q"), table.scalar(2, "Q")
    if offset > 1 and nbytes:
        table.flat.inside(offset, nbytes)
        return True
    return False


def _check_subgraph(graph: Subgraph, index: int) -> None:
    """Tensors exist, are made once, and before they are read."""
    count = len(graph.tensors)

    def check(tensors: Iterable[int], what: str, lowest: int = 0) -> None:
        for tensor in tensors:
            if not lowest <= tensor < count:
                raise FlatBufferError(
                    f"{what} of subgraph {index} names tensor {tensor}, and there are {count}"
                )

    check(graph.inputs, "an input")
    check(graph.outputs, "an output")
    there = {at for at, tensor in enumerate(graph.tensors) if tensor.is_constant or tensor.is_variable}
    there.update(graph.inputs)
    for at, operator in enumerate(graph.operators):
        what = f"operator {at} ({operator.name})"
        check(operator.inputs, what, -1)
        check(operator.outputs, what)
        missing = next((tensor for tensor in operator.operands if tensor not in there), None)
        if missing is not None and graph.tensors[missing].nbytes:
            raise FlatBufferError(
                f"{what} of subgraph {index} reads tensor {missing} before anything makes it"
            )
        made = next((tensor for tensor in operator.outputs if tensor in there), None)
        if made is not None:
            raise FlatBufferError(f"{what} of subgraph {index} makes tensor {made}, which is there already")
        there.update(operator.outputs)
    missing = next((tensor for tensor in graph.outputs if tensor not in there), None)
    if missing is not None:
        raise FlatBufferError(f"output tensor {missing} of subgraph {index} is made by nothing")
