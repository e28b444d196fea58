"""How a node runs in parts of which each is known by its elements, and what it reads for some elements of a result.

Loops have parts of one form (`transform.fission`). Here parts are nodes of their own, so that each may have another length,
other padding at the edges, and the bias in the first one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.analysis.axes.lines import Lines
from neaptide.errors import RewriteError
from neaptide.ir.axes import Merge, Need, OpAxis, Window
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node
from neaptide.ir.registry import Call, OpRegistry
from neaptide.ops.onnx.windows import windows_of

Interval = tuple[int, int]
"""Elements of a dim from the first to before the second."""


class AxisFinder:
    """Axes along which the nodes of a graph may be cut. What the table says of a node is asked once."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph, self.registry, self.lines = graph, registry, Lines(graph, registry, 1)
        self._axes: dict[int, tuple[OpAxis, ...]] = {}

    def axes(self, node: Node) -> tuple[OpAxis, ...]:
        """The axes of a node that may be cut: those of known length, where it has no effects."""
        if node.id not in self._axes:
            found = self.lines.axes_of(node) if node.effects.is_pure and not node.regions else ()
            self._axes[node.id] = tuple(
                axis for axis in found if _is_cuttable(axis) and self._is_known(node, axis)
            )
        return self._axes[node.id]

    def _is_known(self, node: Node, axis: OpAxis) -> bool:
        places = [(node.inputs[slot], dim) for slot, dim in axis.operands.items()]
        places += [(node.outputs[k], dim) for k, dim in axis.results.items() if not isinstance(dim, Merge)]
        return all(self.graph.values[value].shape[dim].is_constant for value, dim in places)

    def find(self, node: Node, carried: Mapping[int, int]) -> OpAxis | None:
        """The axis that operands carry in the dims given by slot; None where there is none."""
        row = self.lines.row(node)
        if row is None or not carried:
            return None
        if row.regroups:
            return self.lines.through_view(node, carried[0]) if set(carried) == {0} else None
        fits = (axis for axis in self.axes(node) if carried.items() <= axis.operands.items())
        return next(fits, None)


def _is_cuttable(axis: OpAxis) -> bool:
    merges = {how for how in axis.results.values() if isinstance(how, Merge)}
    is_plain = not axis.whole and (axis.window is not None or not (axis.private or axis.own))
    return is_plain and merges <= {Merge.SUM} and {*axis.needs} <= {Need.HALO, Need.ADDEND}


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


def reading(graph: Graph, node: Node, axis: OpAxis, wanted: Interval) -> Reading:
    """What a node reads along an axis for some elements of its first result, which carries it.

    Raises:
        RewriteError: some elements read nothing but padding.
    """
    window, dim = sliding(axis), axis.results[0]
    slot = next(iter(axis.operands)) if window is None else window.operands[0]
    assert not isinstance(dim, Merge)
    given, made = extent(graph, node.inputs[slot], axis.operands[slot]), extent(graph, node.outputs[0], dim)
    begin, end = wanted
    if window is not None:
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


def sliding(axis: OpAxis) -> Window | None:
    """The window through which an operand is read; None where each element is read by itself, or enlarged."""
    return None if axis.window is None or axis.window.inverse else axis.window


def extent(graph: Graph, value: int, dim: int) -> int:
    """Elements of a dim of a value."""
    return graph.values[value].shape[dim].constant_value()


def part_attributes(
    graph: Graph, node: Node, axis: OpAxis, read: Reading | None
) -> tuple[tuple[str, Arg], ...]:
    """The attributes of a node that makes a part: padding as it is at that place, as many groups as there are channels."""
    kwargs = dict(node.kwargs)
    if read is not None and "group" in axis.sizes:
        kwargs["group"] = read.made[1] - read.made[0]
    if read is not None and (window := sliding(axis)) is not None:
        (slot,) = window.operands
        place = axis.operands[slot] - 2
        forms = windows_of(Call(graph, node))
        assert forms is not None
        before = [form.before for form in forms]
        after = [form.after for form in forms]
        before[place], after[place] = read.before, read.after
        kwargs["pads"] = (*before, *after)
        kwargs.pop("auto_pad", None)
    return tuple(sorted(kwargs.items()))


def operand_elements(axis: OpAxis, slot: int, read: Reading) -> Interval:
    """The elements that a node reads of an operand: windows read one, the others are read like the result."""
    window = sliding(axis)
    return read.elements if window is None or slot in window.operands else read.made


def bytes_of_values(graph: Graph) -> tuple[int, ...]:
    """Bytes of each value; none of one whose size is symbolic. Ask `Graph.remembered` for it."""
    sizes = (value.nbytes for value in graph.values)
    return tuple(size.constant_value() if size.is_constant else 0 for size in sizes)
