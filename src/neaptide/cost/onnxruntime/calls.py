"""Calls of ONNX operators as plain data: what the memory of a kernel depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.analysis.folded import AT_EACH_RUN, folded_values
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.values import DTYPE_BYTES, PACKED

_STANDARD: Final = "onnx"

Numbers: TypeAlias = Mapping[str, NDArray[Any]]
"""By name of a graph's value, the numbers of small weights: shapes, axes, limits, scales."""

_LISTS: Final = {
    "value_int": "int64",
    "value_ints": "int64",
    "value_float": "float32",
    "value_floats": "float32",
}

MOST_NUMBERS: Final = 64
"""Elements of a weight whose numbers are part of a call: more are no shape and no scale."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand or a result.

    Attributes:
        weight: known before the model runs, so that a kernel may prepare it.
        numbers: of a small weight, in a row; None where they are not known or do not matter.
    """

    dtype: str
    shape: tuple[int, ...]
    weight: bool = False
    numbers: tuple[int | float | bool, ...] | None = None

    @property
    def nbytes(self) -> int:
        return -(-prod(self.shape) * DTYPE_BYTES[self.dtype] // PACKED.get(self.dtype, 1))


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One operator with its attributes, operands and results, by position; None for what is left out."""

    kind: str
    version: int
    domain: str
    attributes: tuple[tuple[str, Any], ...]
    operands: tuple[Tensor | None, ...]
    results: tuple[Tensor | None, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.operands, *self.results) if tensor is not None)

    def overwritable(self) -> tuple[int, ...]:
        """Positions of operands on whose bytes the first result could lie: same shape, elements as wide, no weight."""
        first = self.results[0] if self.results else None
        if first is None or not first.shape:
            return ()
        return tuple(
            place
            for place, operand in enumerate(self.operands)
            if operand is not None
            and not operand.weight
            and operand.shape == first.shape
            and operand.nbytes == first.nbytes
        )

    def text(self) -> str:
        """All of it, as a key and for another process."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def calls_of(
    graph: Graph, numbers: Numbers, binding: Mapping[str, int] | None = None
) -> dict[int, KernelCall]:
    """The calls of a graph by node, without those that make weights, have regions or are kept as their file has them."""
    folded = folded_values(graph)
    numbers = {**numbers, **_constants(graph)}
    made = {}
    for node in graph.nodes:
        if not folded.issuperset(node.outputs) and not node.regions:
            call = _call(graph, node, (folded, numbers), binding)
            if call is not None:
                made[node.id] = call
    return made


def _call(
    graph: Graph, node: Node, known: tuple[frozenset[int], Numbers], binding: Mapping[str, int] | None
) -> KernelCall | None:
    operator = _operator(node.op)
    attributes = tuple(pair for pair in node.kwargs if pair[0] != AT_EACH_RUN)
    if operator is None or not all(_is_plain(value) for _, value in attributes):
        return None
    folded, numbers = known

    def tensor(value: int) -> Tensor:
        shape = tuple(extent.evaluate(binding) for extent in graph.values[value].shape)
        dtype, is_weight = graph.values[value].dtype, value in folded
        is_small = is_weight and prod(shape) <= MOST_NUMBERS
        array = numbers.get(graph.values[value].name) if is_small else None
        return Tensor(dtype, shape, is_weight, None if array is None else _row(array))

    def at(position: Arg, values: Sequence[int]) -> Tensor | None:
        return tensor(values[position.slot]) if isinstance(position, Ref) else None

    results = tuple(map(Ref, range(len(node.outputs)))) if node.results is None else node.results
    assert isinstance(results, tuple)
    domain, kind, version = operator
    return KernelCall(
        kind,
        version,
        domain,
        attributes,
        tuple(at(arg, node.inputs) for arg in node.args),
        tuple(at(place, node.outputs) for place in results),
    )


def _constants(graph: Graph) -> dict[str, NDArray[Any]]:
    """Lists of numbers that passes have put into a graph."""
    found = {}
    for node in graph.nodes:
        for key, value in node.kwargs:
            if key in _LISTS and not node.inputs and (_operator(node.op) or ("", "", 0))[1] == "Constant":
                found[graph.values[node.outputs[0]].name] = np.asarray(value, _LISTS[key])
    return found


def _operator(op: str) -> tuple[str, str, int] | None:
    """Domain, operator and version of a node's operation; None where it is none of ONNX."""
    space, _, rest = op.partition(".")
    kind, _, version = rest.partition(".")
    return (
        ("" if space == _STANDARD else space.replace("_", "."), kind, int(version))
        if version.isdigit()
        else None
    )


def _is_plain(value: Arg) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, int | float | str)


def _row(array: NDArray[Any]) -> tuple[int | float | bool, ...]:
    values = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    return tuple(values.reshape(-1).tolist())
