"""What a `.tflite` file holds: its subgraphs as plain data, and where the file keeps what the writer changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

OFFSETS: Final = "OfflineMemoryAllocation"
"""The metadata that hold offsets: a version, a number of subgraphs, a count, and as many offsets, 32 bits each."""


@dataclass(frozen=True, slots=True)
class TfliteTensor:
    """A tensor of a subgraph.

    Attributes:
        nbytes: of its elements; types below a byte take one byte each.
        is_constant: it has data in the file: a weight.
        is_variable: it keeps its data from call to call.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    is_constant: bool
    is_variable: bool


@dataclass(frozen=True, slots=True)
class TfliteOperator:
    """An operator: tensors by index, -1 for an optional input that is absent.

    Attributes:
        name: of the builtin operator such as `CONV_2D`, or `CUSTOM`.
        called: indices of the subgraphs that it runs.
    """

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    called: tuple[int, ...] = ()

    @property
    def operands(self) -> tuple[int, ...]:
        """Inputs that are there, once each."""
        return tuple(dict.fromkeys(tensor for tensor in self.inputs if tensor >= 0))


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Operators in the order in which the interpreter runs them.

    Attributes:
        operators_at: where the vector of the operators' offsets begins in the file.
    """

    name: str
    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators_at: int


@dataclass(frozen=True, slots=True)
class TfliteModel:
    """A file: `subgraphs[0]` is what a call runs.

    Attributes:
        offsets: of the tensors in the arena, as its metadata say; None without such metadata.
    """

    name: str
    subgraphs: tuple[Subgraph, ...]
    data: bytes | memoryview
    offsets: tuple[int, ...] | None = None

    @property
    def main(self) -> Subgraph:
        return self.subgraphs[0]


def is_placed(tensor: TfliteTensor) -> bool:
    """Whether the interpreter gives a tensor a place among those that share memory."""
    return not tensor.is_constant and not tensor.is_variable and tensor.nbytes > 0


def placed(subgraph: Subgraph, tensors: Iterable[int]) -> list[int]:
    """Those of some tensors that share memory."""
    return [tensor for tensor in tensors if is_placed(subgraph.tensors[tensor])]
