"""A region runs in parts, one after another, each as nodes of its own: what the parts make is joined or added up.

The unrolled form of fission (MAGIS, Chen et al., ASPLOS 2024): what a file can say without a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neaptide.errors import RewriteError
from neaptide.ir.axes import Merge
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import Trait
from neaptide.ops.dialect import Inserted
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.passes.drafting import Drafting, Shape, constant_shape, drafted
from neaptide.transform.passes.lines import (
    Interval,
    Line,
    LineFinder,
    Reading,
    extent,
    part_attributes,
    reading,
)
from neaptide.transform.passes.region import Region


def needs_of_part(graph: Graph, region: Region, part: int, parts: int) -> dict[int, Interval]:
    """By value of a region, or handed to it in parts, the elements that one of so many parts makes or reads.

    Raises:
        RewriteError: an axis has fewer elements than there are parts.
    """
    needs: dict[int, Interval] = {}

    def need(value: int, elements: Interval) -> None:
        begin, end = needs.get(value, elements)
        needs[value] = min(begin, elements[0]), max(end, elements[1])

    if not region.is_sum:
        need(region.result, _share(extent(graph, region.result, region.dims[region.result]), part, parts))
    for number in reversed(region.nodes):
        node, line = graph.nodes[number], region.lines[number]
        asked = [needs[made] for made in node.outputs if made in needs]
        if line.is_sum:
            for slot, dim in line.operands.items():
                need(node.inputs[slot], _share(extent(graph, node.inputs[slot], dim), part, parts))
        elif asked:
            wanted = min(begin for begin, _ in asked), max(end for _, end in asked)
            read = reading(graph, node, line, wanted)
            needs.update(dict.fromkeys(node.outputs, read.made))
            for slot in line.operands:
                need(node.inputs[slot], operand_elements(line, slot, read))
    return needs


def operand_elements(line: Line, slot: int, read: Reading) -> Interval:
    """The elements that a node reads of an operand: windows read one, the others are read like the result."""
    window = None if line.axis is None else line.axis.window
    is_like_result = window is not None and not window.inverse and slot not in window.operands
    return read.made if is_like_result else read.elements


def _share(length: int, part: int, parts: int) -> Interval:
    if length < parts:
        raise RewriteError(f"an axis of {length} cannot be split into {parts} parts")
    return length * part // parts, length * (part + 1) // parts


class PartWriter:
    """Writes nodes that make a part each, before an anchor."""

    def __init__(self, drafting: Drafting, finder: LineFinder, anchor: int) -> None:
        self.drafting, self.finder, self.anchor = drafting, finder, anchor
        self.graph = drafting.graph

    def write(
        self,
        node: Node,
        line: Line,
        wanted: Interval,
        made: Mapping[int, tuple[int, Interval]],
        *,
        is_first: bool,
    ) -> dict[int, tuple[int, Interval]]:
        """Insert a node that makes a part of each result, or a term of it; by result, that value, and its elements.

        Args:
            wanted: elements of the results; of a sum, of the operands that it adds up.
            made: by operand of which parts were made, the value of this one, and its elements.
            is_first: other parts leave out what would be added in each.
        """
        read = None if line.is_sum else reading(self.graph, node, line, wanted)
        elements = wanted if read is None else read.made
        left_out = set() if is_first or line.axis is None else set(line.axis.addends)
        operands: list[int | None] = []
        for arg in node.args:
            if not isinstance(arg, Ref) or arg.slot in left_out:
                operands.append(None)
                continue
            value = node.inputs[arg.slot]
            if arg.slot in line.operands:
                there = wanted if read is None else operand_elements(line, arg.slot, read)
                value = self._piece(value, line.operands[arg.slot], there, made.get(value))
            operands.append(value)
        shapes = [self._shape(made, line.results[slot], elements) for slot, made in enumerate(node.outputs)]
        kwargs = part_attributes(self.graph, node, line, read, None if read is None else elements)
        self._with_shape(node, operands, shapes[0])
        values = self._insert(Inserted(node.op, kwargs), node, operands, shapes)
        return {result: (value, elements) for result, value in zip(node.outputs, values, strict=True)}

    def _shape(self, made: int, how: int | Merge, elements: Interval) -> Shape:
        """Of a part of a result, or of a term of it."""
        shape: Shape = self.graph.values[made].shape
        if isinstance(how, Merge):
            return shape
        return (*shape[:how], SizeExpr.const(elements[1] - elements[0]), *shape[how + 1 :])

    def _insert(
        self, made: Inserted, node: Node, operands: Sequence[int | None], shapes: Sequence[Shape]
    ) -> tuple[int, ...]:
        spec = self.finder.registry.find(node.op)
        first = operands[0]
        is_view = spec is not None and spec.is_a(Trait.VIEW) and first is not None
        values: list[int] = []
        for result, shape in zip((self.graph.values[value] for value in node.outputs), shapes, strict=True):
            name = f"{result.name}_part"
            if is_view and first is not None:
                values.append(self.drafting.view(shape, name, of=first))
            else:
                values.append(self.drafting.fresh(shape, result.dtype, name, like=node))
        self.drafting.edit.insert_before(self.anchor, drafted(made, operands, values, node, view=is_view))
        return tuple(values)

    def _with_shape(self, node: Node, operands: list[int | None], shape: Shape) -> None:
        """Have operands that are the shape of the result be that of the part."""
        row = self.finder.row(node)
        for position in () if row is None else row.shapes:
            sizes = constant_shape(shape)
            if position < len(operands) and sizes is not None:
                operands[position] = self.drafting.numbers(self.anchor, sizes)

    def _piece(self, value: int, dim: int, wanted: Interval, made: tuple[int, Interval] | None) -> int:
        if made is None:
            return self.drafting.cut(self.anchor, value, dim, *wanted)
        part, (begin, end) = made
        if not begin <= wanted[0] <= wanted[1] <= end:
            raise RewriteError(f"a part of %{self.graph.values[value].name} lacks elements that are read")
        return self.drafting.cut(self.anchor, part, dim, wanted[0] - begin, wanted[1] - begin)


def _result(drafting: Drafting, region: Region, made: tuple[int, Interval], part: int, parts: int) -> int:
    """A part of the result, without elements that the next part makes too."""
    value, (begin, _) = made
    if region.is_sum:
        return value
    dim = region.dims[region.result]
    first, last = _share(extent(drafting.graph, region.result, dim), part, parts)
    return drafting.cut(region.nodes[-1], value, dim, first - begin, last - begin)


def unroll(drafting: Drafting, finder: LineFinder, region: Region, parts: int) -> None:
    """Replace a region by so many parts of it.

    Raises:
        RewriteError: it has fewer elements along the axis, or a part of it would read nothing.
    """
    graph, last = drafting.graph, region.nodes[-1]
    writer = PartWriter(drafting, finder, last)
    results: list[int] = []
    for part in range(parts):
        needs = needs_of_part(graph, region, part, parts)
        made: dict[int, tuple[int, Interval]] = {}
        for number in region.nodes:
            node, line = graph.nodes[number], region.lines[number]
            value = node.outputs[0]
            if line.is_sum:
                slot = next(iter(line.operands))
                wanted = _share(extent(graph, node.inputs[slot], line.operands[slot]), part, parts)
            elif value in needs:
                wanted = needs[value]
            else:
                continue
            made.update(writer.write(node, line, wanted, made, is_first=part == 0))
        results.append(_result(drafting, region, made[region.result], part, parts))
        if region.is_sum and 0 < part < parts - 1:
            shape = drafting.shape(region.result)
            total = drafting.insert(last, drafting.dialect.operator("Add"), results, shape, "sum")
            results = [total]
    if region.is_sum:
        drafting.replace(last, drafting.dialect.operator("Add"), results)
    else:
        drafting.replace(last, drafting.dialect.join(region.dims[region.result]), results)
    for number in reversed(region.nodes[:-1]):
        drafting.edit.remove(number)
