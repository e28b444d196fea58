"""A region runs in parts, one after another, each as nodes of its own: what the parts make is joined or added up.

The unrolled form of fission (MAGIS, Chen et al., ASPLOS 2024): what a file can say without a loop.
"""

from __future__ import annotations

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.transform.drafting import Drafting
from neaptide.transform.part_reading import Interval, extent, operand_elements, reading
from neaptide.transform.part_writer import PartWriter
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
        node, axis = graph.nodes[number], region.axes[number]
        asked = [needs[made] for made in node.outputs if made in needs]
        if axis.is_sum:
            for slot, dim in axis.operands.items():
                share = _share(extent(graph, node.inputs[slot], dim), part, parts)
                need(node.inputs[slot], share)
                needs[node.outputs[0]] = share
        elif asked:
            wanted = min(begin for begin, _ in asked), max(end for _, end in asked)
            read = reading(graph, node, axis, wanted)
            needs.update(dict.fromkeys(node.outputs, read.made))
            for slot in axis.operands:
                need(node.inputs[slot], operand_elements(axis, slot, read))
    return needs


def _share(length: int, part: int, parts: int) -> Interval:
    if length < parts:
        raise RewriteError(f"an axis of {length} cannot be split into {parts} parts")
    return length * part // parts, length * (part + 1) // parts


def unroll(drafting: Drafting, region: Region, parts: int) -> None:
    """Replace a region by so many parts of it.

    Raises:
        RewriteError: it has fewer elements along the axis, or a part of it would read nothing.
    """
    graph, last = drafting.graph, region.nodes[-1]
    writer, dim = PartWriter(drafting, last), region.dims.get(region.result)

    def result(part: int) -> int:
        """Of a part, without elements that the next part makes too."""
        needs = needs_of_part(graph, region, part, parts)
        made: dict[int, tuple[int, Interval]] = {}
        for number, axis in region.axes.items():
            node = graph.nodes[number]
            if node.outputs[0] in needs:
                made.update(writer.write(node, axis, needs[node.outputs[0]], made, is_first=part == 0))
        value, (begin, _) = made[region.result]
        if dim is None:
            return value
        first, end = _share(extent(graph, region.result, dim), part, parts)
        return drafting.cut(last, value, dim, first - begin, end - begin)

    drafting.merge(last, dim, parts, map(result, range(parts)))
    for number in reversed(region.nodes[:-1]):
        drafting.edit.remove(number)
