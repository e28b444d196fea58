"""How a node runs in parts of which each is known by its elements, and what it reads for some elements of a result.

Loops have parts of one form (`transform.fission`). Here parts are nodes of their own, so that each may have another length,
other padding at the edges, and the bias in the first one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.analysis.axes.lines import regrouped
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Merge, Need, OpAxis
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node
from neaptide.ir.registry import AxisRow, Call, OpRegistry
from neaptide.ops.onnx.windows import window_forms
from neaptide.symbolic.size_expr import SizeExpr

Interval = tuple[int, int]
"""Elements of a dim from the first to before the second."""


@dataclass(frozen=True, slots=True)
class Line:
    """One axis through a node: the dim of each operand, by slot, that carries it, and of each result, or how parts merge."""

    operands: Mapping[int, int]
    results: Mapping[int, int | Merge]
    axis: OpAxis | None

    @property
    def is_sum(self) -> bool:
        """Whether parts make terms of a sum."""
        return all(how is Merge.SUM for how in self.results.values())


class LineFinder:
    """Lines of the nodes of a graph. What the table says of a node is asked once."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph, self.registry = graph, registry
        self._axes: dict[int, tuple[OpAxis, ...]] = {}

    def row(self, node: Node) -> AxisRow | None:
        """The row of axes of a node."""
        spec = self.registry.find(node.op)
        return None if spec is None else spec.axes

    def axes(self, node: Node) -> tuple[OpAxis, ...]:
        """The axes of a node that may be cut; none where it has effects, or a size that is symbolic."""
        if node.id not in self._axes:
            row = self.row(node)
            values = (self.graph.values[value] for value in (*node.inputs, *node.outputs))
            is_plain = (
                node.effects.is_pure
                and not node.regions
                and all(extent.is_constant for value in values for extent in value.shape)
            )
            found = (
                tuple(row.axes(Call(self.graph, node))) if is_plain and row is not None and row.axes else ()
            )
            self._axes[node.id] = tuple(axis for axis in found if _is_cuttable(axis))
        return self._axes[node.id]

    def find(self, node: Node, carried: Mapping[int, int]) -> Line | None:
        """The line in which operands carry an axis in the dims given by slot; None where there is none."""
        row = self.row(node)
        if row is None or not carried:
            return None
        if row.regroups:
            return self._regrouped(node, carried)
        for axis in self.axes(node):
            if all(axis.operands.get(slot) == dim for slot, dim in carried.items()):
                return Line(axis.operands, axis.results, axis)
        return None

    def _regrouped(self, node: Node, carried: Mapping[int, int]) -> Line | None:
        given, made = self.graph.values[node.inputs[0]], self.graph.values[node.outputs[0]]
        if set(carried) != {0} or not all(extent.is_constant for extent in (*given.shape, *made.shape)):
            return None
        length = given.shape[carried[0]].constant_value()
        at = regrouped(given, Along(carried[0]), length, made)
        return None if at is None or at.outer != 1 else Line(dict(carried), {0: at.dim}, None)


def _is_cuttable(axis: OpAxis) -> bool:
    merges = {how for how in axis.results.values() if isinstance(how, Merge)}
    is_plain = not axis.whole and not axis.private and not axis.own and axis.window is None
    has_window = axis.window is not None and not axis.whole
    return (is_plain or has_window) and merges <= {Merge.SUM} and {*axis.needs} <= {Need.HALO, Need.ADDEND}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a node reads of a dim of an operand for some elements of its result.

    Attributes:
        elements: that are there.
        before: elements of padding in front of them; `after`: behind.
        made: the elements of the result that come of it, at least those asked for.
    """

    elements: Interval
    made: Interval
    before: int = 0
    after: int = 0


def reading(graph: Graph, node: Node, line: Line, wanted: Interval) -> Reading:
    """What a node reads along a line for some elements of its first result, which carries the axis.

    Raises:
        RewriteError: some elements read nothing but padding.
    """
    slot = next(iter(line.operands))
    if line.axis is not None and line.axis.window is not None:
        slot = line.axis.window.operands[0] if not line.axis.window.inverse else slot
    given = extent(graph, node.inputs[slot], line.operands[slot])
    dim = line.results[0]
    assert not isinstance(dim, Merge)
    made = extent(graph, node.outputs[0], dim)
    window = None if line.axis is None else line.axis.window
    begin, end = wanted
    if window is not None and not window.inverse:
        first = begin * window.stride - window.before
        last = (end - 1) * window.stride - window.before + window.dilation * (window.kernel - 1) + 1
        there = max(0, first), min(given, last)
        if there[0] >= there[1]:
            raise RewriteError(f"a part of {node.op} would read nothing but padding")
        return Reading(there, wanted, max(0, -first), max(0, last - given))
    if given == made:
        return Reading(wanted, wanted)
    if made % given == 0:
        times = made // given
        there = begin // times, -(-end // times)
        return Reading(there, (there[0] * times, there[1] * times))
    if given % made == 0:
        times = given // made
        return Reading((begin * times, end * times), wanted)
    raise RewriteError(f"an axis of {given} elements becomes one of {made} in {node.op}")


def extent(graph: Graph, value: int, dim: int) -> int:
    """Elements of a dim of a value."""
    return graph.values[value].shape[dim].constant_value()


def part_attributes(
    graph: Graph, node: Node, line: Line, read: Reading | None, made: Interval | None
) -> tuple[tuple[str, Arg], ...]:
    """The attributes of a node that makes a part: padding as it is at that place, as many groups as there are channels."""
    kwargs = dict(node.kwargs)
    axis = line.axis
    if axis is None:
        return node.kwargs
    if "group" in axis.sizes and made is not None:
        kwargs["group"] = made[1] - made[0]
    if axis.window is not None and not axis.window.inverse and read is not None:
        (slot,) = axis.window.operands
        place = line.operands[slot] - 2
        forms = window_forms(Call(graph, node), _kernel(graph, node))
        assert forms is not None
        before = [form.before for form in forms]
        after = [form.after for form in forms]
        before[place], after[place] = read.before, read.after
        kwargs["pads"] = (*before, *after)
        kwargs.pop("auto_pad", None)
    return tuple(sorted(kwargs.items()))


def _kernel(graph: Graph, node: Node) -> tuple[SizeExpr, ...]:
    said = node.kwarg("kernel_shape")
    if isinstance(said, tuple):
        return tuple(
            SizeExpr.const(k) if isinstance(k, int) else k for k in said if isinstance(k, int | SizeExpr)
        )
    weight = 3 if ".QLinearConv." in node.op else 1
    filters = Call(graph, node).value(weight)
    assert filters is not None
    return filters.shape[2:]
