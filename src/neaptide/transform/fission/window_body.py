"""The graph of one trip of a region whose windows overlap.

A member takes of each operand what it reads, which may be less than others need of it. Before a window reads elements
that lie outside the value, they are overwritten by what stands for them, zero for a convolution: in place, as they hold
nothing that anybody needs. That is done in each trip, so that all are alike. In the middle of the axis it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from neaptide.errors import RewriteError
from neaptide.ir.effects import effects_of
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Arg, Effects, Node, Ref
from neaptide.ir.registry import Call, OpRegistry, Trait
from neaptide.ir.values import Value, contiguous_strides
from neaptide.ops.rewritten import FILL, ROWS, SLICE
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.body import Part, PartBody
from neaptide.transform.fission.intervals import Interval
from neaptide.transform.fission.region import Region
from neaptide.transform.fission.split import same_layout
from neaptide.transform.fission.window_operands import Beside, Outside, Rows
from neaptide.transform.fission.window_shapes import WindowShapes

_ZERO = SizeExpr.const(0)
_ONE = SizeExpr.const(1)


def window_body(
    graph: Graph, registry: OpRegistry, region: Region, shapes: WindowShapes
) -> tuple[Part, tuple[Beside, ...]]:
    """The members of a region in one trip, and what it is handed beside the operands. O(size of the region)."""
    body = _WindowBody(graph, registry, shapes)
    made = body.build(region)
    return made, tuple(body.beside)


@dataclass
class _WindowBody(PartBody):
    shapes: WindowShapes
    beside: dict[Beside, int] = field(default_factory=dict)  # values of the body

    def build(self, region: Region) -> Part:
        inputs = [self._handed(number) for number in region.inputs]
        for value, number in zip(region.inputs, inputs, strict=True):
            if self.shapes.is_sliced(value):
                self._copy_if_cut(value, number)
            elif value in self.shapes.split.axes:
                self._pick(value, number)
        for member in region.members:
            self._member(self.graph.nodes[member])
        outputs = tuple(self._result(value) for value in region.outputs)
        made = Graph(
            tuple(self.nodes),
            tuple(self.values),
            tuple(self.storages),
            (*inputs, *self.beside.values()),
            outputs,
            name="body",
        )
        return Part(_with_versions(made), tuple(range(len(outputs))))

    def _handed(self, number: int) -> int:
        """An operand of the region: whole where its parts overlap."""
        if number not in self.shapes.split.axes or self.shapes.is_sliced(number):
            return self._input(number)
        value = self.graph.values[number]
        assert value.storage is not None
        block = self.graph.storages[value.storage]
        self.storages.append(replace(block, id=len(self.storages), nbytes=block.nbytes, name=value.name))
        self.values.append(replace(value, id=len(self.values), storage=len(self.storages) - 1, version=0))
        return len(self.values) - 1

    def _pick(self, number: int, handed: int) -> None:
        """Take from an operand what a part reads; for what lies outside it, what lies nearest."""
        whole, dim = self.graph.values[number], self._dim(number)
        wanted = self.shapes.value(replace(whole, offset=_ZERO))
        if whole.strides[dim] == _ZERO and self._is_no_longer(wanted.shape[dim], whole.shape[dim]):
            # All elements along the axis are one: any of them are the part.
            self.number[number] = self._slice(handed, dim, _ZERO, wanted.shape[dim])
            return
        picked = replace(wanted, strides=contiguous_strides(wanted.shape))
        if not same_layout(wanted, picked):
            raise RewriteError(f"%{whole.name} is not contiguous, and parts of it overlap")
        interval, device = self.shapes.intervals.made[number], self._device(handed)
        rows = self._beside(Rows(interval, self.shapes.intervals.units, self.shapes.whole(number), device))
        made = self.fresh(f"part_of_{whole.name}", picked, device)
        self._append(ROWS, (handed, rows), made, (Ref(0), dim, Ref(1)))
        self.number[number] = made

    def _is_no_longer(self, part: SizeExpr, extent: SizeExpr) -> bool:
        """Whether a part has no more elements than the whole, the first and largest one too."""
        step = self.shapes.split.step_size.constant_value()
        most = part.evaluate(dict.fromkeys(part.dims(), step))
        return most <= extent.constant_value()

    def operands(self, node: Node) -> tuple[int, ...]:
        return tuple(self._operand(node, slot, value) for slot, value in enumerate(node.inputs))

    def _operand(self, node: Node, slot: int, value: int) -> int:
        """What stands for an operand of a member: what it reads, with its own filling outside."""
        number = self.number[value]
        read = self.shapes.intervals.read.get((node.id, slot))
        if read is None:
            return number
        spec = self.registry.require(node.op)
        made = self.shapes.intervals.made[value]
        if read != made:
            if any(access.storage == self.graph.values[value].storage for access in node.effects.writes):
                raise RewriteError(f"{node.op} overwrites a part of what others read")
            number = self._crop(number, self._dim(value), made, read)
            is_unread = slot in self.shapes.axes[node.id].unread
            if not (is_unread or spec.is_a(Trait.ELEMENTWISE) or spec.is_a(Trait.COPY)):
                whole = replace(self.graph.values[value], offset=_ZERO)
                number = self.copied(number, self.shapes.cut(whole, self.shapes.count(read)))
        window = self.shapes.axes[node.id].window
        if window is not None and not window.inverse and slot in window.operands:
            self._fill(node, number, value, read, window.fill)
        return number

    def _result(self, value: int) -> int:
        """The part's own elements of what leaves the region, or its term of a sum."""
        if value in self.shapes.split.sums:
            return self.number[value]
        made = self.shapes.intervals.made[value]
        return self._crop(self.number[value], self._dim(value), made, Interval(made.scale, 0, 0))

    def _crop(self, number: int, dim: int, made: Interval, read: Interval) -> int:
        """A view of what is read of what is made."""
        if made == read:
            return number
        return self._slice(number, dim, SizeExpr.const(made.before - read.before), self.shapes.count(read))

    def _fill(self, node: Node, number: int, value: int, read: Interval, fill: float) -> None:
        """Overwrite elements outside a value, of which a part has some at its ends."""
        extent, units = self.shapes.whole(value), self.shapes.intervals.units
        front, back = self.shapes.intervals.outside(read, extent)
        if not front and not back:
            return
        here = self.values[number]
        strides = zip(here.strides, here.shape, strict=True)
        if here.dtype[0] not in "fb" or any(s == _ZERO and n != _ONE for s, n in strides):
            raise RewriteError(
                f"{node.op} reads beyond the edge of %{here.name}, where nothing can be filled in",
                where=node.source.location or None,
            )
        dim = self._dim(value)
        held = Interval(read.scale, read.before, max(read.after, -read.before))
        mask = self._beside(Outside(held, units, extent, self._device(number), len(here.shape) - dim))
        if max(front, back) > self.shapes.fewest(read):
            self._fill_where(number, self._crop(mask, 0, held, read), fill)
            return
        count = self.shapes.count(read)
        for start, length in ((_ZERO, front), (count - back, back)):
            if length:
                ends = start, SizeExpr.const(length)
                self._fill_where(self._slice(number, dim, *ends), self._slice(mask, 0, *ends), fill)

    def _fill_where(self, number: int, mask: int, fill: float) -> None:
        here = self.values[number]
        made = replace(here, id=len(self.values), name=self.untaken(f"filled_{self._root(number)}"))
        self.values.append(made)
        self._append(FILL, (number, mask), made.id, (Ref(0), Ref(1), fill))

    def _slice(self, number: int, dim: int, start: SizeExpr, length: SizeExpr) -> int:
        """A view of some elements along a dim of a value of the body."""
        here = self.values[number]
        made = replace(
            here,
            id=len(self.values),
            name=self.untaken(f"rows_of_{self._root(number)}"),
            shape=(*here.shape[:dim], length, *here.shape[dim + 1 :]),
            offset=here.offset + start * here.strides[dim],
        )
        self.values.append(made)
        ends = tuple(size.constant_value() if size.is_constant else size for size in (start, start + length))
        self._append(SLICE, (number,), made.id, (Ref(0), dim, *ends, 1))
        return made.id

    def _append(self, op: str, inputs: tuple[int, ...], output: int, args: tuple[Arg, ...]) -> None:
        node = Node(len(self.nodes), op, inputs, (output,), args)
        found = effects_of(self.registry.require(op), Call(self, node))
        effects = Effects(
            tuple(Access(storage, 0) for storage in found.reads),
            tuple(Access(storage, 0) for storage in found.writes),
        )
        self.nodes.append(replace(node, effects=effects))

    def _beside(self, wanted: Beside) -> int:
        """A part of an operand of the loop that is none of the region's."""
        if wanted not in self.beside:
            shape = (self.shapes.count(wanted.interval), *[_ONE] * (wanted.rank - 1))
            like = Value(0, wanted.name, wanted.dtype, shape, contiguous_strides(shape))
            self.beside[wanted] = self.fresh(wanted.name, like, wanted.device)
        return self.beside[wanted]

    def _root(self, number: int) -> str:
        """The name of what a value of the body is a view of."""
        storage = self.values[number].storage
        assert storage is not None
        return self.storages[storage].name

    def _dim(self, value: int) -> int:
        return self.shapes.split.axes[value].dim

    def _device(self, number: int) -> str:
        storage = self.values[number].storage
        assert storage is not None
        return self.storages[storage].device


def _with_versions(graph: Graph) -> Graph:
    """The graph with the versions that follow from the order of its writes."""
    version = [0] * len(graph.storages)
    values = list(graph.values)
    nodes = []
    for node in graph.nodes:
        reads = tuple(Access(a.storage, version[a.storage]) for a in node.effects.reads)
        for access in node.effects.writes:
            version[access.storage] += 1
        writes = tuple(Access(a.storage, version[a.storage]) for a in node.effects.writes)
        nodes.append(replace(node, effects=replace(node.effects, reads=reads, writes=writes)))
        for number in node.outputs:
            storage = values[number].storage
            if storage is not None:
                values[number] = replace(values[number], version=version[storage])
    return replace(graph, nodes=tuple(nodes), values=tuple(values))
