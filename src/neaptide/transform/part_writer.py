"""Writes nodes that make a part each of what a node makes: in the words of the graph's dialect, on parts of its operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.errors import RewriteError
from neaptide.ir.axes import Merge, OpAxis
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import Trait
from neaptide.ir.values import Value
from neaptide.ops.dialect import Inserted, operands_of
from neaptide.transform.drafting import Drafting, constant_shape, resized
from neaptide.transform.part_reading import (
    Interval,
    operand_elements,
    part_attributes,
    reading,
)


class PartWriter:
    """Writes nodes that make a part each, before an anchor."""

    def __init__(self, drafting: Drafting, anchor: int) -> None:
        self.drafting, self.anchor, self.graph = drafting, anchor, drafting.graph

    def write(
        self,
        node: Node,
        axis: OpAxis,
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
        read = None if axis.is_sum else reading(self.graph, node, axis, wanted)
        elements = wanted if read is None else read.made
        left_out = set() if is_first else set(axis.addends)
        operands: list[int | None] = []
        for arg in node.args[: len(operands_of(node))]:
            if not isinstance(arg, Ref) or arg.slot in left_out:
                operands.append(None)
                continue
            value = node.inputs[arg.slot]
            if arg.slot in axis.operands:
                there = wanted if read is None else operand_elements(axis, arg.slot, read)
                value = self._piece(value, axis.operands[arg.slot], there, made.get(value))
            operands.append(value)
        spec = self.drafting.registry.require(node.op)
        call = Inserted.again(node)
        call = replace(
            call, kwargs=part_attributes(self.graph, node, axis, read), is_view=spec.is_a(Trait.VIEW)
        )
        values = [self._part(value, axis.results[slot], elements) for slot, value in enumerate(node.outputs)]
        sizes = constant_shape(values[0].shape)
        for position in () if spec.axes is None else spec.axes.shapes:
            if position < len(operands) and sizes is not None:  # what the shape is
                operands[position] = self.drafting.numbers(self.anchor, sizes)
        results = self.drafting.insert_all(self.anchor, call, operands, values)
        return {value: (part, elements) for value, part in zip(node.outputs, results, strict=True)}

    def _part(self, value: int, how: int | Merge, elements: Interval) -> Value:
        """What a part of a result, or a term of it, is like."""
        whole = self.graph.values[value]
        size = elements[1] - elements[0]
        shape = whole.shape if isinstance(how, Merge) else resized(whole.shape, how, size)
        return replace(whole, name=f"{whole.name}_part", shape=shape)

    def _piece(self, value: int, dim: int, wanted: Interval, made: tuple[int, Interval] | None) -> int:
        if made is None:
            return self.drafting.cut(self.anchor, value, dim, *wanted)
        part, (begin, end) = made
        if not begin <= wanted[0] <= wanted[1] <= end:
            raise RewriteError(f"a part of %{self.graph.values[value].name} lacks elements that are read")
        return self.drafting.cut(self.anchor, part, dim, wanted[0] - begin, wanted[1] - begin)
