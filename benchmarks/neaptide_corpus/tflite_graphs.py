"""Random irregular networks as `.tflite` files, int8 or float32, with their operators in creation order.

Three families: *free* networks take any map that is there; *wired* ones are random graphs of which every node adds up what it
reads (Xie et al., arXiv 1904.01569); *cells* join pairs of operations on earlier states (Zoph et al., arXiv 1707.07012).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from neaptide_corpus.tflite_writer import TfliteFile

_SAME: Final = 0
_RELU: Final = 1
_MOST_JOINED: Final = 10  # operands of a join that the interpreter takes
_SCALE: Final = 0.05  # of all int8 activations: joins and pools want one


@dataclass(frozen=True, slots=True)
class _Map:
    """A feature map that is there: its tensor, and rows, columns and channels."""

    tensor: int
    size: int
    channels: int


def irregular_network(seed: int, *, dtype: str | None = None) -> TfliteFile:
    """A network of about 15 to 90 operators on one image, whose last layer is dense.

    The family is the seed's remainder by three; without a dtype every other three are int8, the others float32.
    """
    draw = np.random.default_rng(seed)
    families = (_FreeNetwork, _WiredNetwork, _CellNetwork)
    return families[seed % 3](draw, dtype or ("float32", "int8")[seed // 3 % 2]).run()


class _Network(ABC):
    def __init__(self, draw: np.random.Generator, dtype: str) -> None:
        self.draw, self.dtype = draw, dtype
        self.file = TfliteFile()
        self.unread: list[_Map] = []
        self.maps: list[_Map] = []

    def run(self) -> TfliteFile:
        size, channels = int(self.draw.choice([16, 24, 32])), int(self.draw.choice([4, 8]))
        first = self.map("image", size, channels)
        self.file.inputs = [first.tensor]
        self.body(self.convolution(first, int(self.draw.choice([8, 16])), 3))
        self.file.outputs = [self.head()]
        return self.file

    @abstractmethod
    def body(self, one: _Map) -> None:
        """What lies between the first convolution and the head."""

    def map(self, name: str, size: int, channels: int) -> _Map:
        number = len(self.file.tensors)
        tensor = self.activation(f"{name}{number}", (1, size, size, channels))
        made = _Map(tensor, size, channels)
        self.maps.append(made)
        self.unread.append(made)
        return made

    def activation(self, name: str, shape: tuple[int, ...]) -> int:
        return self.file.tensor(name, shape, self.dtype, scales=(_SCALE,) if self.dtype == "int8" else ())

    def read(self, *maps: _Map) -> None:
        self.unread = [one for one in self.unread if one not in maps]

    def weights(self, name: str, shape: tuple[int, ...], axis: int) -> list[int]:
        """Indices of a filter and its bias."""
        count = shape[axis]
        fan_in = int(np.prod(shape)) // count
        if self.dtype == "float32":
            values: np.ndarray[Any, Any] = self.draw.normal(0, fan_in**-0.5, shape).astype(np.float32)
            bias = self.draw.normal(0, 0.1, count).astype(np.float32)
            return [self.file.weight(f"{name}_w", values), self.file.weight(f"{name}_b", bias)]
        values = self.draw.integers(-127, 128, shape).astype(np.int8)
        scales = tuple(float(s) for s in self.draw.uniform(0.8, 1.2, count) * fan_in**-0.5 / 73)
        bias = self.draw.integers(-2000, 2000, count).astype(np.int32)
        return [
            self.file.weight(f"{name}_w", values, scales=scales, axis=axis),
            self.file.weight(f"{name}_b", bias, scales=tuple(_SCALE * scale for scale in scales)),
        ]

    def convolution(self, one: _Map, channels: int, kernel: int, stride: int = 1) -> _Map:
        size = -(-one.size // stride)
        made = self.map("conv", size, channels)
        weights = self.weights(f"conv{made.tensor}", (channels, kernel, kernel, one.channels), 0)
        options = (_SAME, stride, stride, _RELU, 1, 1)
        self.file.operator("CONV_2D", [one.tensor, *weights], [made.tensor], options)
        self.read(one)
        return made

    def depthwise(self, one: _Map) -> _Map:
        made = self.map("depthwise", one.size, one.channels)
        weights = self.weights(f"depthwise{made.tensor}", (1, 3, 3, one.channels), 3)
        options = (_SAME, 1, 1, 1, _RELU, 1, 1)
        self.file.operator("DEPTHWISE_CONV_2D", [one.tensor, *weights], [made.tensor], options)
        self.read(one)
        return made

    def pool(self, one: _Map, stride: int = 1) -> _Map:
        made = self.map("pool", -(-one.size // stride), one.channels)
        name = str(self.draw.choice(["AVERAGE_POOL_2D", "MAX_POOL_2D"]))
        self.file.operator(name, [one.tensor], [made.tensor], (_SAME, stride, stride, 3, 3, 0))
        self.read(one)
        return made

    def relu(self, one: _Map) -> _Map:
        made = self.map("relu", one.size, one.channels)
        self.file.operator("RELU", [one.tensor], [made.tensor])
        self.read(one)
        return made

    def add(self, one: _Map, two: _Map) -> _Map:
        made = self.map("sum", one.size, one.channels)
        self.file.operator("ADD", [one.tensor, two.tensor], [made.tensor], (_RELU,))
        self.read(one, two)
        return made

    def join(self, *maps: _Map) -> _Map:
        made = self.map("join", maps[0].size, sum(one.channels for one in maps))
        self.file.operator("CONCATENATION", [one.tensor for one in maps], [made.tensor], (3, 0))
        self.read(*maps)
        return made

    def head(self) -> int:
        """The dense layer on the averages of all maps that nobody has read."""
        flat = []
        for one in list(self.unread):
            pooled = self.activation(f"mean{one.tensor}", (1, 1, 1, one.channels))
            self.file.operator("AVERAGE_POOL_2D", [one.tensor], [pooled], (1, 1, 1, one.size, one.size, 0))
            row = self.activation(f"row{one.tensor}", (1, one.channels))
            shape = self.file.weight(f"shape{one.tensor}", np.array([1, one.channels], np.int32))
            self.file.operator("RESHAPE", [pooled, shape], [row])
            flat.append((row, one.channels))
        while len(flat) > 1:
            some, flat = flat[:_MOST_JOINED], flat[_MOST_JOINED:]
            channels = sum(width for _, width in some)
            joined = self.activation(f"features{channels}", (1, channels))
            self.file.operator("CONCATENATION", [row for row, _ in some], [joined], (1, 0))
            flat.append((joined, channels))
        joined, channels = flat[0]
        made = self.activation("scores", (1, 10))
        weights = self.weights("dense", (10, channels), 0)
        self.file.operator("FULLY_CONNECTED", [joined, *weights], [made], (0, 0))
        return made


class _FreeNetwork(_Network):
    """Each operator takes maps at random among the last ones."""

    def body(self, one: _Map) -> None:
        self.step(one, [one])
        for _ in range(int(self.draw.integers(9, 27))):
            recent = self.maps[-8:]
            self.step(recent[int(self.draw.integers(len(recent)))], recent)

    def step(self, one: _Map, recent: list[_Map]) -> None:
        kind = str(self.draw.choice(["conv", "conv", "depthwise", "pool", "add", "join", "relu"]))
        alike = [two for two in recent if two is not one and two.size == one.size]
        if kind == "add":
            alike = [two for two in alike if two.channels == one.channels]
        if kind in {"add", "join"} and alike:
            two = alike[int(self.draw.integers(len(alike)))]
            (self.add if kind == "add" else self.join)(one, two)
        elif kind == "depthwise":
            self.depthwise(one)
        elif kind == "pool":
            self.pool(one, 2 if one.size > 8 and self.draw.random() < 0.5 else 1)
        elif kind == "relu":
            self.relu(one)
        else:
            stride = 2 if one.size > 8 and self.draw.random() < 0.15 else 1
            self.convolution(
                one, int(self.draw.choice([8, 8, 16, 24])), int(self.draw.choice([1, 3])), stride
            )


class _WiredNetwork(_Network):
    """A random graph: a node adds up what it reads, then a depthwise and a pointwise convolution follow."""

    def body(self, one: _Map) -> None:
        count = int(self.draw.integers(8, 17))
        nodes: list[_Map] = []
        is_read = [False] * count
        for index in range(count):
            given = [other for other in range(index) if self.draw.random() < 3 / count]
            for other in given:
                is_read[other] = True
            total = nodes[given[0]] if given else one
            for other in given[1:]:
                total = self.add(total, nodes[other])
            nodes.append(self.convolution(self.depthwise(total), one.channels, 1))
        ends = [nodes[index] for index in range(count) if not is_read[index]]
        total = ends[0]
        for end in ends[1:]:
            total = self.add(total, end)


class _CellNetwork(_Network):
    """Cells on the last two states: five sums of two operations each, and a join of what nobody has read."""

    def body(self, one: _Map) -> None:
        before, last, channels = one, one, one.channels
        for _ in range(int(self.draw.integers(2, 4))):
            before, last = last, self.cell(before, last, channels)
            if last.size > 8 and self.draw.random() < 0.5:
                before, last = self.pool(before, 2), self.pool(last, 2)
                channels += 8

    def cell(self, before: _Map, last: _Map, channels: int) -> _Map:
        states = [self.convolution(before, channels, 1), self.convolution(last, channels, 1)]
        read: set[int] = set()
        for _ in range(5):
            pair = [int(index) for index in self.draw.choice(len(states), 2, replace=False)]
            read.update(pair)
            states.append(self.add(*(self.operation(states[index], channels) for index in pair)))
        return self.join(*(state for index, state in enumerate(states) if index not in read))

    def operation(self, one: _Map, channels: int) -> _Map:
        kind = str(self.draw.choice(["separable", "separable", "pool", "same"]))
        if kind == "separable":
            return self.convolution(self.depthwise(one), channels, 1)
        return self.pool(one) if kind == "pool" else one
