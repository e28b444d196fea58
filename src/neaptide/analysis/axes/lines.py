"""The one way in which a node runs in parts, given where some of its operands or results carry the axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from neaptide.ir.axes import Along, Merge, Need, OpAxis
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, refs
from neaptide.ir.registry import AxisRow, Call, OpRegistry
from neaptide.ir.values import Value

_NO_AXIS = OpAxis({}, {})


@dataclass(frozen=True, slots=True)
class Line:
    """How a node runs in parts: where the axis lies in operands and results, or how results are merged."""

    operands: Mapping[int, Along]
    results: Mapping[int, Along | Merge]
    axis: OpAxis = _NO_AXIS


_Key = tuple[int, tuple[tuple[int, Along], ...], tuple[tuple[int, Along], ...], tuple[tuple[int, Along], ...]]


class Lines:
    """The lines of a graph's nodes along an axis of some length. What was found once is known from then on."""

    def __init__(self, graph: Graph, registry: OpRegistry, length: int) -> None:
        self.graph = graph
        self.registry = registry
        self.length = length
        self._axes: dict[int, tuple[OpAxis, ...]] = {}
        self._shape_only: dict[int, frozenset[int]] = {}
        self._found: dict[_Key, Line | None] = {}

    def row(self, node: Node) -> AxisRow | None:
        """The row of axes of a node's operation."""
        spec = self.registry.find(node.op)
        return None if spec is None else spec.axes

    def shape_only(self, node: Node) -> frozenset[int]:
        """Slots of operands of which only the shape matters."""
        found = self._shape_only.get(node.id)
        if found is None:
            found = self._shape_only[node.id] = self._read_for_shape(node)
        return found

    def _read_for_shape(self, node: Node) -> frozenset[int]:
        spec = self.registry.find(node.op)
        if spec is None or not spec.shape_only:
            return frozenset()
        call = Call(self.graph, node)
        return frozenset(
            ref.slot
            for where in spec.shape_only
            for ref in refs(call.arg(where) if isinstance(where, int) else node.kwarg(where))
        )

    def find(
        self,
        node: Node,
        required: Mapping[int, Along],
        optional: Mapping[int, Along],
        results: Mapping[int, Along],
    ) -> Line | None:
        """The line in which operands and results lie as given; None where there is none. O(axes of the operation).

        `optional` are operands of which only the shape matters; they need not be part of the line.
        """
        key = (node.id, tuple(required.items()), tuple(optional.items()), tuple(results.items()))
        if key not in self._found:
            self._found[key] = self._find(node, required, optional, results)
        return self._found[key]

    def _find(
        self,
        node: Node,
        required: Mapping[int, Along],
        optional: Mapping[int, Along],
        results: Mapping[int, Along],
    ) -> Line | None:
        row = self.row(node)
        if row is None:
            return None
        if row.regroups:
            return self._regrouped(node, {**optional, **required}, results)
        for axis in self.axes_of(node):
            line = self._along(node, axis, required, optional, results)
            if line is not None:
                return line
        return None

    def is_linear(self, node: Node, terms: frozenset[int]) -> bool:
        """Whether the results are terms of a sum when the operands in these slots are."""
        row = self.row(node)
        if row is None:
            return False
        values = self.graph.values
        cast = any(
            values[node.inputs[s]].dtype[0] in "fbc"
            for s in terms
            if not _whole_number(values[node.inputs[s]])
        )
        if cast and any(_whole_number(values[v]) for v in node.outputs):
            return False
        used = [ref.slot for arg in node.args for ref in refs(arg)]
        used += [ref.slot for _, arg in node.kwargs for ref in refs(arg)]
        for group in row.linear:
            if any(position >= len(node.args) for position in group):
                continue
            here = [tuple(refs(node.args[position])) for position in group]
            slots = {ref.slot for found in here for ref in found}
            if all(here) and slots == terms and sum(used.count(s) for s in slots) == sum(map(len, here)):
                return True
        return False

    def axes_of(self, node: Node) -> tuple[OpAxis, ...]:
        """What the row of a node says, axis by axis; nothing for views, which have a rule."""
        found = self._axes.get(node.id)
        if found is None:
            row = self.row(node)
            found = () if row is None or row.axes is None else tuple(row.axes(Call(self.graph, node)))
            self._axes[node.id] = found
        return found

    def through_view(self, node: Node, dim: int) -> OpAxis | None:
        """What a row would say of a dim of a view that regroups elements; None where they lie in no single dim behind it."""
        given, made = self.graph.values[node.inputs[0]], self.graph.values[node.outputs[0]]
        if not given.shape[dim].is_constant:
            return None
        at = regrouped(given, Along(dim), given.shape[dim].constant_value(), made)
        return None if at is None or at.outer != 1 else OpAxis({0: dim}, {0: at.dim})

    def _along(
        self,
        node: Node,
        axis: OpAxis,
        required: Mapping[int, Along],
        optional: Mapping[int, Along],
        results: Mapping[int, Along],
    ) -> Line | None:
        if any(axis.operands.get(slot) != along.dim for slot, along in required.items()):
            return None
        if any(axis.results.get(k) != along.dim for k, along in results.items()):
            return None
        tied = {s: a for s, a in optional.items() if axis.operands.get(s) == a.dim}
        if not required and not results and not tied:
            return None
        outers = {along.outer for along in (*required.values(), *results.values(), *tied.values())}
        if len(outers) != 1:
            return None
        (outer,) = outers
        if outer > 1 and Need.HALO in axis.needs:
            return None
        values = self.graph.values
        operands = {slot: Along(dim, outer) for slot, dim in axis.operands.items()}
        made = {k: how if isinstance(how, Merge) else Along(how, outer) for k, how in axis.results.items()}
        extents = [
            *(_extent(values[node.inputs[s]], along) for s, along in operands.items()),
            *(_extent(values[node.outputs[k]], how) for k, how in made.items() if isinstance(how, Along)),
        ]
        if any(extent is None or extent % (outer * self.length) for extent in extents):
            return None
        if axis.window is None and len(set(extents)) > 1:
            return None
        return Line(operands, made, axis)

    def _regrouped(self, node: Node, seen: Mapping[int, Along], results: Mapping[int, Along]) -> Line | None:
        given, made = self.graph.values[node.inputs[0]], self.graph.values[node.outputs[0]]
        if set(seen) - {0} or set(results) - {0}:
            return None
        before = seen.get(0) or regrouped(made, results[0], self.length, given)
        if before is None:
            return None
        after = regrouped(given, before, self.length, made)
        if after is None or results.get(0, after) != after:
            return None
        return Line({0: before}, {0: after})


def regrouped(given: Value, along: Along, length: int, made: Value) -> Along | None:
    """Where an axis lies when the same elements, in row-major order, have another shape; None where in no single dim.

    Element `i` in row-major order has the place `i // inside % length` along the axis.
    """
    old, new = _extents(given), _extents(made)
    if old is None or new is None:
        return None
    after = prod(old[along.dim + 1 :])
    if old[along.dim] % (along.outer * length):
        return None
    inside = after * (old[along.dim] // (along.outer * length))
    right = prod(new)
    for dim, extent in enumerate(new):
        whole, right = right, right // extent if extent else 0
        if right and inside % right == 0 and whole % (inside * length) == 0 and extent > 1:
            return Along(dim, whole // (inside * length))
    return None


def _whole_number(value: Value) -> bool:
    return value.dtype == "bool" or value.dtype.startswith(("int", "uint"))


def _extent(value: Value, along: Along) -> int | None:
    if along.dim >= len(value.shape):
        return None
    extent = value.shape[along.dim]
    return extent.constant_value() if extent.is_constant else None


def _extents(value: Value) -> list[int] | None:
    if not all(extent.is_constant for extent in value.shape):
        return None
    return [extent.constant_value() for extent in value.shape]
