"""What it means to take a part: which values carry the axis, and what a part of each value and argument looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.rewrite import refused

_ZERO = SizeExpr.const(0)
_ONE = SizeExpr.const(1)
_INFERRED = SizeExpr.const(-1)


@dataclass(frozen=True, slots=True)
class Split:
    """How a region is run in parts.

    Attributes:
        length: of the axis; in the body of a loop whose last part is shorter, it may follow from the part.
        step: elements of the axis in a part, a number or a size that calls choose; the last part may be shorter.
        axes: by value that carries the axis, where; values without an entry are handed over, or made, whole.
        sums: values that the region makes as a part of a sum, and that leave it added up.
        sizes: by node whose row in the op table says how it runs in parts, positions of the arguments, beside the shape
            of its first result, that hold an extent of the axis; (position, place) for one number of a list.
    """

    length: SizeExpr
    step: SizeExpr
    axes: Mapping[int, Along]
    sums: frozenset[int] = frozenset()
    sizes: Mapping[int, tuple[int | str | tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def trip_count(self) -> SizeExpr:
        """Number of parts."""
        return (self.length + (self.step - 1)) // self.step


class PartShapes:
    """Shapes, strides and arguments of a region under a split."""

    def __init__(self, graph: Graph, registry: OpRegistry, split: Split) -> None:
        length, step = split.length, split.step
        if step.is_constant and (
            step.constant_value() < 1
            or (length.is_constant and step.constant_value() >= length.constant_value())
        ):
            raise RewriteError(f"parts of {step} do not split an axis of {length}")
        self.graph = graph
        self.registry = registry
        self.split = split
        self._store = SizeRelations(graph.dims, graph.relations) if graph.dims else None
        if step.is_constant and length % step == _ZERO:
            self.part = step
        else:
            self.part = SizeExpr.dim(_untaken(graph, step))

    def per_element(self, value: Value) -> SizeExpr:
        """Elements of a value's dim for one element of the axis."""
        along = self.split.axes[value.id]
        if not 0 <= along.dim < len(value.shape):
            raise RewriteError(f"%{value.name} has no dim {along.dim}")
        factor = value.shape[along.dim] // self.split.length
        is_cut = factor.is_constant and factor % along.outer != _ZERO
        if is_cut or factor * self.split.length != value.shape[along.dim]:
            raise RewriteError(
                f"dim {along.dim} of %{value.name} has {value.shape[along.dim]} elements, which are no"
                f" {along.outer} times an axis of {self.split.length}"
            )
        return factor

    def step(self, value: Value) -> SizeExpr:
        """Elements of a value from where one part begins to where the next one does."""
        return self.per_element(value) * self.split.step

    def is_sliced(self, number: int) -> bool:
        """Whether a value that carries the axis is handed to a loop in parts, as it lies."""
        return number in self.split.axes

    def extent(self, value: Value) -> SizeExpr:
        """Elements of a part of a value along the axis."""
        return self.per_element(value) * self.part

    def shape(self, value: Value) -> tuple[SizeExpr, ...]:
        """The shape of a part of a value."""
        if value.id not in self.split.axes:
            return value.shape
        dim = self.split.axes[value.id].dim
        return (*value.shape[:dim], self.extent(value), *value.shape[dim + 1 :])

    def value(self, value: Value) -> Value:
        """A part of a value, as the same operations would make it of parts of their operands."""
        return value if value.id not in self.split.axes else self.cut(value, self.extent(value))

    def cut(self, value: Value, extent: SizeExpr) -> Value:
        """Some elements of a value along the axis, as the same operations would make them."""
        dim = self.split.axes[value.id].dim
        shape = (*value.shape[:dim], extent, *value.shape[dim + 1 :])
        stride = value.strides[dim]
        if stride == _ZERO:
            return replace(value, shape=shape)
        whole, part = stride * value.shape[dim], stride * extent
        strides = tuple(
            old if k == dim or value.shape[k] == _ONE else self._scaled(value, old, whole, part)
            for k, old in enumerate(value.strides)
        )
        if self._less(value.offset, stride):
            return replace(value, shape=shape, strides=strides)
        rest = value.offset % whole
        if rest != _ZERO and not self._less(rest, stride):
            raise RewriteError(f"%{value.name} begins in the middle of the axis")
        return replace(value, shape=shape, strides=strides, offset=value.offset // whole * part + rest)

    def arguments(self, node: Node) -> tuple[Arg, ...]:
        """The arguments of a node when it runs on parts: a shape, or strides, are those of a part of its first result."""
        sizes = self.split.sizes.get(node.id, ())
        spec = self.registry.find(node.op)
        shapes = spec.axes.shapes if spec is not None and spec.axes is not None else ()

        def part(position: int, arg: Arg) -> Arg:
            places = {at[1] for at in sizes if isinstance(at, tuple) and at[0] == position}
            if places and isinstance(arg, tuple):
                return tuple(self._extents(node, item) if k in places else item for k, item in enumerate(arg))
            if position in sizes:
                return self._extents(node, arg)
            return self._shape(node, arg) if position in shapes else arg

        return tuple(part(position, arg) for position, arg in enumerate(node.args))

    def _scaled(self, value: Value, stride: SizeExpr, whole: SizeExpr, part: SizeExpr) -> SizeExpr:
        times = stride // whole
        if times * whole == stride:
            return times * part
        if times == _ZERO or whole // stride * stride == whole:  # it lies inside the axis
            return stride
        raise RewriteError(f"%{value.name} lies in its storage with gaps around the axis")

    def _less(self, a: SizeExpr, b: SizeExpr) -> bool:
        """Whether a size is proved to be less than another."""
        if a.is_constant and b.is_constant:
            return a.constant_value() < b.constant_value()
        return self._store is not None and self._store.compare(a, b) == "<"

    def _shape(self, node: Node, arg: Arg) -> Arg:
        """The shape of the first result as an argument, or its strides, for a part."""
        sizes = _sizes(arg)
        if sizes is not None:
            whole = self.graph.values[node.outputs[0]]
            part = self.value(whole)
            for old, new in ((whole.shape, part.shape), (whole.strides, part.strides)):
                if len(sizes) == len(old) and all(
                    a in (_INFERRED, o) for a, o in zip(sizes, old, strict=True)
                ):
                    return tuple(
                        plain_size(a if a == _INFERRED else n) for a, n in zip(sizes, new, strict=True)
                    )
        return arg

    def _extents(self, node: Node, arg: Arg) -> Arg:
        """An extent of the axis as an argument, or a list of one, for a part."""
        if isinstance(arg, tuple) and len(arg) == 1:
            return (self._extents(node, arg[0]),)
        size = _size(arg)
        part = None if size is None else self.extent_in_part(node, size)
        if part is None:
            raise refused(node, f"is given {arg}, and that is no extent of the axis")
        return plain_size(part)

    def extent_in_part(self, node: Node, extent: SizeExpr) -> SizeExpr | None:
        """What an extent of the axis, as an argument of a node, is in a part; None where it is none."""
        del node
        factor = extent // self.split.length
        return factor * self.part if factor * self.split.length == extent else None


def is_dense(value: Value) -> bool:
    """Whether the elements of a value fill their span without holes and overlaps, in any order of its dims."""
    left = [(extent, step) for extent, step in zip(value.shape, value.strides, strict=True) if extent != _ONE]
    expected = _ONE
    while left:
        found = next((item for item in left if item[1] == expected), None)
        if found is None:
            return False
        left.remove(found)
        expected = expected * found[0]
    return True


def same_layout(a: Value, b: Value) -> bool:
    """Whether two values of one shape have the same strides, where strides matter."""
    return all(x == y or extent == _ONE for x, y, extent in zip(a.strides, b.strides, a.shape, strict=True))


def _size(arg: Arg) -> SizeExpr | None:
    if isinstance(arg, bool) or not isinstance(arg, (int, SizeExpr)):
        return None
    return SizeExpr.const(arg) if isinstance(arg, int) else arg


def _sizes(arg: Arg) -> tuple[SizeExpr, ...] | None:
    """A list of sizes, not empty; None for any other argument."""
    if not isinstance(arg, tuple):
        return None
    sizes = tuple(size for item in arg if (size := _size(item)) is not None)
    return sizes if 0 < len(sizes) == len(arg) else None


def plain_size(size: SizeExpr) -> int | SizeExpr:
    """A size as an argument of a node."""
    return size.constant_value() if size.is_constant else size


def _untaken(graph: Graph, step: SizeExpr) -> str:
    taken = {dim for value in graph.values for extent in value.shape for dim in extent.dims()}
    taken |= {dim.name for dim in graph.dims} | step.dims()
    number, name = 1, "part"
    while name in taken:
        number += 1
        name = f"part_{number}"
    return name
