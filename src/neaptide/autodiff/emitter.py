"""Appends operators of the standard domain to an ONNX graph, with arithmetic on tensors."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from neaptide.autodiff.errors import GradientError

Operand: TypeAlias = "Tensor | float"
BOOL: Final = ir.DataType.BOOL
INT64: Final = ir.DataType.INT64


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value of the graph, with operators that append nodes."""

    emitter: Emitter
    value: ir.Value
    dtype: ir.DataType

    def apply(self, op: str, *inputs: Operand | None, dtype: ir.DataType | None = None, **attrs: Any) -> Self:
        """The result of an operator whose first input is this tensor; numbers become scalars of its data type."""
        operands = [self.like(x) if isinstance(x, int | float) else x for x in inputs]
        made = self.emitter.emit(op, self, *operands, dtype=dtype or self.dtype, **attrs)
        return type(self)(made.emitter, made.value, made.dtype)

    def like(self, number: float) -> Tensor:
        """A scalar of this tensor's data type."""
        return self.emitter.constant(np.asarray(number, dtype=self.dtype.numpy()))

    @property
    def dims(self) -> tuple[int | str, ...]:
        """Sizes by axis; a symbolic one is its name.

        Raises:
            GradientError: the rank is not known.
        """
        if self.value.shape is None:
            raise GradientError(
                f"the shape of {self.value.name!r} is not known",
                why="its derivative depends on it, and shape inference does not find it",
                next_step="fold the model's constants, or add the value to the model's value_info",
            )
        return tuple(d if isinstance(d, int) else str(d.value) for d in self.value.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes by axis.

        Raises:
            GradientError: one of them is symbolic.
        """
        sizes = tuple(d for d in self.dims if isinstance(d, int))
        if len(sizes) != len(self.dims):
            raise GradientError(
                f"the shape of {self.value.name!r} is symbolic: {self.dims}",
                why="this derivative needs sizes as numbers",
                next_step="give the model's inputs fixed sizes",
            )
        return sizes

    def __add__(self, other: Operand) -> Tensor:
        return self.apply("Add", other)

    def __sub__(self, other: Operand) -> Tensor:
        return self.apply("Sub", other)

    def __rsub__(self, other: float) -> Tensor:
        return self.like(other) - self

    def __mul__(self, other: Operand) -> Tensor:
        return self.apply("Mul", other)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.apply("Div", other)

    def __neg__(self) -> Tensor:
        return self.apply("Neg")

    def __gt__(self, other: Operand) -> Tensor:
        return self.apply("Greater", other, dtype=BOOL)

    def __lt__(self, other: Operand) -> Tensor:
        return self.apply("Less", other, dtype=BOOL)

    def equal(self, other: Operand) -> Tensor:
        """Where both are equal, as booleans."""
        return self.apply("Equal", other, dtype=BOOL)

    def where(self, one: Operand, other: Operand, like: Tensor | None = None) -> Tensor:
        """`one` where this mask is true, else `other`; numbers have the data type of `like` or of the other side."""
        kind = next(x for x in (like, one, other) if isinstance(x, Tensor))
        sides = (x if isinstance(x, Tensor) else kind.like(x) for x in (one, other))
        return self.emitter.emit("Where", self, *sides, dtype=kind.dtype)

    def cast(self, dtype: ir.DataType) -> Tensor:
        """This tensor in another data type."""
        return self if dtype == self.dtype else self.apply("Cast", dtype=dtype, to=int(dtype))

    def reshape(self, sizes: Sequence[int]) -> Tensor:
        """This tensor with other sizes."""
        return self.apply("Reshape", self.emitter.ints(sizes))

    def reshape_as(self, other: Tensor) -> Tensor:
        """This tensor with the sizes of another."""
        return self.apply("Reshape", self.emitter.shape_of(other))

    def expand_as(self, other: Tensor) -> Tensor:
        """This tensor, broadcast to the sizes of another."""
        return self.apply("Expand", self.emitter.shape_of(other))

    def permute(self, order: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Axes of a tensor with these sizes in another order; a view where only axes of one element move."""
        if list(order) == sorted(order):
            return self
        moved = [axis for axis in order if sizes[axis] != 1]
        if moved == sorted(moved):
            return self.reshape([sizes[axis] for axis in order])
        return self.apply("Transpose", perm=list(order))

    def reduce(self, op: str, axes: Sequence[int], *, keep: bool = True) -> Tensor:
        """A reduction over some axes, such as `ReduceSum`."""
        return self.apply(op, self.emitter.ints(axes), keepdims=int(keep)) if axes else self

    def sum(self, axes: Sequence[int], *, keep: bool = True) -> Tensor:
        """The sum over some axes."""
        return self.reduce("ReduceSum", axes, keep=keep)

    def mean(self, axes: Sequence[int]) -> Tensor:
        """The mean over some axes, which stay with size one."""
        return self.reduce("ReduceMean", axes)

    def slice(
        self, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int], axes: Sequence[int]
    ) -> Tensor:
        """A strided part of this tensor."""
        return self.apply("Slice", *(self.emitter.ints(x) for x in (starts, ends, axes, steps)))

    def pad(self, begins: Sequence[int], ends: Sequence[int]) -> Tensor:
        """This tensor within zeros; a negative number cuts."""
        return self.apply("Pad", self.emitter.ints((*begins, *ends))) if any((*begins, *ends)) else self


class Emitter:
    """Appends nodes to a graph, or puts them after or before a node of it."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._names = {v.name for v in graph.inputs} | set(graph.initializers)
        for node in graph.all_nodes():
            self._names.update((node.name, *(v.name for v in node.outputs)))
        self._numbers = itertools.count()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        self._after: ir.Node | None = None
        self._before: ir.Node | None = None
        self._made: list[ir.Node] = []

    def fresh_name(self, stem: str) -> str:
        """A name that no value of the graph has."""
        name = next(n for n in (f"{stem}.d{i}" for i in self._numbers) if n not in self._names)
        self._names.add(name)
        return name

    def tensor(self, value: ir.Value) -> Tensor:
        """A value of the graph as a tensor."""
        if value.dtype is None:
            raise GradientError(
                f"the data type of {value.name!r} is not known",
                next_step="add the value to the model's value_info",
            )
        return Tensor(self, value, value.dtype)

    def emit(self, op: str, *inputs: Tensor | None, dtype: ir.DataType, **attributes: Any) -> Tensor:
        """The first result of a new node."""
        values = [None if x is None else x.value for x in inputs]
        node = ir.Node("", op, values, ir.convenience.convert_attributes(attributes), num_outputs=1)
        node.name = node.outputs[0].name = self.fresh_name(op)
        if self._before is not None:
            self._graph.insert_before(self._before, node)
        elif self._after is not None:
            self._graph.insert_after(self._after, node)
            self._after = node
        else:
            self._graph.append(node)
        self._made.append(node)
        return Tensor(self, node.outputs[0], dtype)

    def constant(self, array: npt.NDArray[Any]) -> Tensor:
        """An initializer; equal ones that this emitter makes are one."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            held = ir.tensor(array)
            value = ir.Value(
                name=self.fresh_name("constant"),
                type=ir.TensorType(held.dtype),
                shape=ir.Shape(array.shape),
                const_value=held,
            )
            self._graph.register_initializer(value)
            self._constants[key] = Tensor(self, value, held.dtype)
        return self._constants[key]

    def ints(self, numbers: Sequence[int]) -> Tensor:
        """A vector of int64."""
        return self.constant(np.asarray(numbers, dtype=np.int64))

    def shape_of(self, tensor: Tensor) -> Tensor:
        """The sizes of a tensor: a constant where they are known."""
        if all(isinstance(d, int) for d in tensor.dims):
            return self.ints(tensor.shape)
        return self.emit("Shape", tensor, dtype=INT64)

    def zeros(self, tensor: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Zeros in the data type of a tensor, and in its shape where no sizes are given."""
        return tensor.like(0).apply("Expand", self.shape_of(tensor) if sizes is None else self.ints(sizes))

    @contextlib.contextmanager
    def placing(self, *, after: ir.Node | None = None, before: ir.Node | None = None) -> Iterator[None]:
        """Puts new nodes after (or before) a node, not at the end."""
        self._after, self._before = after, before
        try:
            yield
        finally:
            self._after = self._before = None

    def remove_unused(self) -> None:
        """Removes nodes and initializers of this emitter that no node and no output uses."""
        for node in reversed(self._made):
            if not any(v.uses() or v.is_graph_output() for v in node.outputs):
                self._graph.remove(node, safe=True)
        for tensor in self._constants.values():
            if not tensor.value.uses() and not tensor.value.is_graph_output():
                assert tensor.value.name is not None
                del self._graph.initializers[tensor.value.name]
