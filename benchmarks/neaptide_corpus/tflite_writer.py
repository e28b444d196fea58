"""Writes small `.tflite` files: tensors, buffers and operators, over the builder of the package `flatbuffers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

CODES: Final[Mapping[str, int]] = {
    "ADD": 0,
    "AVERAGE_POOL_2D": 1,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 4,
    "FULLY_CONNECTED": 9,
    "LOGISTIC": 14,
    "MAX_POOL_2D": 17,
    "MUL": 18,
    "RELU": 19,
    "RELU6": 21,
    "RESHAPE": 22,
    "SVDF": 27,
    "TANH": 28,
    "CUSTOM": 32,
    "MEAN": 40,
    "SUB": 41,
    "PRELU": 54,
    "MAXIMUM": 55,
    "MINIMUM": 57,
    "TRANSPOSE_CONV": 67,
    "SUM": 74,
    "REDUCE_MAX": 82,
    "SQUEEZE": 43,
    "EXPAND_DIMS": 70,
    "LEAKY_RELU": 98,
    "LESS": 58,
    "HARD_SWISH": 117,
    "IF": 118,
    "WHILE": 119,
    "CALL_ONCE": 129,
}
_TYPES: Final[Mapping[str, int]] = {
    "float32": 0,
    "int32": 2,
    "uint8": 3,
    "int64": 4,
    "string": 5,
    "bool": 6,
    "int8": 9,
}
_OPTIONS: Final[Mapping[str, tuple[int, str]]] = {
    # The member of the union, and the scalars of its table by slot: i int32, b int8.
    "CONV_2D": (1, "biibii"),
    "DEPTHWISE_CONV_2D": (2, "biiibii"),
    "AVERAGE_POOL_2D": (5, "biiiib"),
    "MAX_POOL_2D": (5, "biiiib"),
    "SVDF": (6, "ib"),
    "FULLY_CONNECTED": (8, "bb"),
    "CONCATENATION": (10, "ib"),
    "ADD": (11, "b"),
    "MUL": (21, "b"),
    "SUB": (28, "b"),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX"), (27, "b")),
    "TRANSPOSE_CONV": (49, "biib"),
    "IF": (92, "ii"),
    "WHILE": (93, "ii"),
    "CALL_ONCE": (103, "i"),
}


@dataclass(frozen=True, slots=True)
class WrittenTensor:
    """A tensor of the file: a weight if it has data."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray[Any, Any] | None = None
    scales: tuple[float, ...] = ()
    axis: int = 0
    zero_point: int = 0
    variable: bool = False


@dataclass(frozen=True, slots=True)
class WrittenOperator:
    """An operator of the file; `options` are the scalars of its table, in order of their slots."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: tuple[int, ...] = ()


@dataclass(slots=True)
class TfliteFile:
    """What a file of one subgraph holds; operators run in list order.

    >>> file = TfliteFile()
    >>> x = file.tensor("x", (1, 4))
    >>> y = file.tensor("y", (1, 4))
    >>> file.operator("RELU", [x], [y])
    >>> file.inputs, file.outputs = [x], [y]
    >>> file.to_bytes()[4:8]
    b'TFL3'
    """

    tensors: list[WrittenTensor] = field(default_factory=list)
    operators: list[WrittenOperator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    metadata: dict[str, bytes] = field(default_factory=dict)
    further: list[TfliteFile] = field(
        default_factory=list
    )  # subgraphs after the first, with buffers of theirs

    def tensor(self, name: str, shape: Sequence[int], dtype: str = "float32", **said: Any) -> int:
        """A new tensor; its index. `said` are further fields of `WrittenTensor`."""
        self.tensors.append(WrittenTensor(name, tuple(shape), dtype, **said))
        return len(self.tensors) - 1

    def weight(self, name: str, data: np.ndarray[Any, Any], **said: Any) -> int:
        """A new tensor with data; its index."""
        return self.tensor(name, data.shape, str(data.dtype), data=data, **said)

    def operator(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: Sequence[int] = ()
    ) -> None:
        """Appends an operator."""
        self.operators.append(WrittenOperator(name, tuple(inputs), tuple(outputs), tuple(options)))

    def to_bytes(self) -> bytes:
        """The file."""
        return _Writing(self).run()


class _Writing:
    def __init__(self, file: TfliteFile) -> None:
        import flatbuffers

        self.file = file
        self.builder: Any = flatbuffers.Builder(1 << 16)
        graphs = (file, *file.further)
        self.codes = list(dict.fromkeys(op.name for graph in graphs for op in graph.operators))
        self.buffers: list[bytes] = [b""]  # the first is empty by convention

    def run(self) -> bytes:
        graphs = [self.subgraph(graph) for graph in (self.file, *self.file.further)]
        metadata = [self.metadata(name, data) for name, data in self.file.metadata.items()]
        buffers = [self.buffer(data) for data in self.buffers]
        codes = [self.code(name) for name in self.codes]
        slots = {
            1: self.vector(codes),
            2: self.vector(graphs),
            4: self.vector(buffers),
            **({6: self.vector(metadata)} if metadata else {}),
        }
        model = self.table(10, offsets=slots, numbers={0: ("Uint32", 3)})
        self.builder.Finish(model, b"TFL3")
        return bytes(self.builder.Output())

    def table(
        self, size: int, *, offsets: Mapping[int, int], numbers: Mapping[int, tuple[str, int]] | None = None
    ) -> int:
        self.builder.StartObject(size)
        for slot, offset in offsets.items():
            self.builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        for slot, (kind, number) in (numbers or {}).items():
            getattr(self.builder, f"Prepend{kind}Slot")(slot, number, 0)
        made: int = self.builder.EndObject()
        return made

    def vector(self, offsets: Sequence[int]) -> int:
        return self._vector(offsets, 4, self.builder.PrependUOffsetTRelative)

    def numbers(self, numbers: Sequence[float], kind: str, width: int) -> int:
        return self._vector(numbers, width, getattr(self.builder, f"Prepend{kind}"))

    def _vector(self, items: Sequence[Any], width: int, prepend: Callable[[Any], None]) -> int:
        self.builder.StartVector(width, len(items), width)
        for item in reversed(items):
            prepend(item)
        made: int = self.builder.EndVector()
        return made

    def subgraph(self, graph: TfliteFile) -> int:
        tensors = self.vector([self.tensor(tensor) for tensor in graph.tensors])
        operators = self.vector([self.operator(operator) for operator in graph.operators])
        inputs, outputs = (self.numbers(which, "Int32", 4) for which in (graph.inputs, graph.outputs))
        return self.table(6, offsets={0: tensors, 1: inputs, 2: outputs, 3: operators})

    def tensor(self, tensor: WrittenTensor) -> int:
        number = 0
        if tensor.data is not None:
            number = len(self.buffers)
            self.buffers.append(tensor.data.tobytes())
        name, shape = self.builder.CreateString(tensor.name), self.numbers(tensor.shape, "Int32", 4)
        slots = {0: shape, 3: name}
        if tensor.scales:
            scale = self.numbers(tensor.scales, "Float32", 4)
            zero = self.numbers([tensor.zero_point] * len(tensor.scales), "Int64", 8)
            slots[4] = self.table(7, offsets={2: scale, 3: zero}, numbers={6: ("Int32", tensor.axis)})
        kind = ("Int8", _TYPES[tensor.dtype])
        flags = {1: kind, 2: ("Uint32", number), 5: ("Bool", int(tensor.variable))}
        return self.table(11, offsets=slots, numbers=flags)

    def operator(self, operator: WrittenOperator) -> int:
        inputs, outputs = (self.numbers(which, "Int32", 4) for which in (operator.inputs, operator.outputs))
        slots, numbers = {1: inputs, 2: outputs}, {0: ("Uint32", self.codes.index(operator.name))}
        if operator.options:
            member, kinds = _OPTIONS[operator.name]
            scalars = {
                slot: ("Int32" if kind == "i" else "Int8", number)
                for slot, (kind, number) in enumerate(zip(kinds, operator.options, strict=False))
            }
            slots[4] = self.table(len(kinds), offsets={}, numbers=scalars)
            numbers[3] = ("Uint8", member)
        return self.table(14, offsets=slots, numbers=numbers)

    def code(self, name: str) -> int:
        code = CODES[name]
        custom = {1: self.builder.CreateString("Something")} if name == "CUSTOM" else {}
        numbers = {0: ("Int8", min(code, 127)), 2: ("Int32", 1), 3: ("Int32", code)}
        return self.table(4, offsets=custom, numbers=numbers)

    def metadata(self, name: str, data: bytes) -> int:
        self.buffers.append(data)
        number = len(self.buffers) - 1
        return self.table(2, offsets={0: self.builder.CreateString(name)}, numbers={1: ("Uint32", number)})

    def buffer(self, data: bytes) -> int:
        if not data:
            return self.table(3, offsets={})
        self.builder.StartVector(1, len(data), 16)
        self.builder.head -= len(data)
        self.builder.Bytes[self.builder.head : self.builder.head + len(data)] = data
        return self.table(3, offsets={0: self.builder.EndVector()})
