"""An edit of a graph in which operations are inserted in the words of the graph's dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from neaptide.analysis.folded import folded_values
from neaptide.ir.edits.edit import GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value, contiguous_strides
from neaptide.ops.dialect import Dialect, Inserted, dialect_of
from neaptide.symbolic.size_expr import SizeExpr

Shape = tuple[SizeExpr, ...]

_NUMBERS = "int64"


def constant_shape(shape: Shape) -> tuple[int, ...] | None:
    """A shape as numbers; None where it is symbolic."""
    is_constant = all(extent.is_constant for extent in shape)
    return tuple(extent.constant_value() for extent in shape) if is_constant else None


def sized(*extents: int | SizeExpr) -> Shape:
    """A shape of numbers."""
    return tuple(SizeExpr.const(e) if isinstance(e, int) else e for e in extents)


def resized(shape: Shape, dim: int, extent: int | SizeExpr) -> Shape:
    """A shape with another extent of one dim."""
    return (*shape[:dim], *sized(extent), *shape[dim + 1 :])


@dataclass(slots=True)
class Drafting:
    """Changes to a graph. Nodes are inserted before an anchor, in the order of the calls; what has bytes of its own is row-major."""

    graph: Graph
    registry: OpRegistry
    edit: GraphEdit = field(init=False)
    dialect: Dialect = field(init=False)
    _cuts: dict[tuple[int, int, int, int], int] = field(init=False, default_factory=dict)
    _moved: dict[int, int] = field(init=False, default_factory=dict)  # by node, where it is now

    def __post_init__(self) -> None:
        self.edit, self.dialect = GraphEdit(self.graph), dialect_of(self.graph)

    def shape(self, value: int) -> Shape:
        """The shape of an old or a new value."""
        return self.edit.value(value).shape

    def dtype(self, value: int) -> str:
        """The element type of an old or a new value."""
        return self.edit.value(value).dtype

    def fresh(self, shape: Shape, dtype: str, name: str, *, like: Node) -> int:
        """A new row-major value on bytes of its own, where the results of a node are."""
        storage = self.graph.values[like.outputs[0]].storage
        device = "cpu" if storage is None else self.graph.storages[storage].device
        return self.edit.fresh(name, dtype, shape, device=device, kind=self.dialect.kind)

    def insert(
        self,
        anchor: int,
        made: Inserted,
        operands: Sequence[int | None],
        shape: Shape,
        name: str = "part",
        dtype: str | None = None,
    ) -> int:
        """Insert an operation with one result before a node; `dtype` is that of its first operand if not given."""
        given = next((value for value in operands if value is not None), -1)
        kind = self.dtype(given) if dtype is None else dtype
        return self.insert_all(anchor, made, operands, (Value(0, name, kind, shape),))[0]

    def insert_all(
        self, anchor: int, made: Inserted, operands: Sequence[int | None], like: Iterable[Value]
    ) -> tuple[int, ...]:
        """Insert an operation before a node; its results have names, dtypes and shapes of some values, and are row-major."""
        given = next((value for value in operands if value is not None), -1)
        results = []
        for value in like:
            if made.is_view or made.is_onto:
                strides, offset = contiguous_strides(value.shape), self.edit.value(given).offset
                number = self.edit.alias(value.name, value.dtype, value.shape, strides, offset, of=given)
            else:
                number = self.fresh(value.shape, value.dtype, value.name, like=self.graph.nodes[anchor])
            results.append(number)
        self.put(anchor, made, operands, results)
        return tuple(results)

    def put(
        self, anchor: int, made: Inserted, operands: Sequence[int | None], results: Sequence[int]
    ) -> None:
        """Insert an operation before a node; its results are new values."""
        self.edit.insert_before(anchor, self._draft(anchor, made, operands, results))

    def replace(
        self, node: int, made: Inserted, operands: Sequence[int | None], results: Sequence[int] | None = None
    ) -> None:
        """Put another operation in the place of a node, with the same results, or with those of nodes that go too."""
        given = self.graph.nodes[node].outputs if results is None else results
        draft = self._draft(node, made, operands, given)
        self.edit.replace_node(node, draft)
        if made.is_view or made.is_onto:
            self.edit.place_on(given[0], draft.inputs[0])

    def _draft(
        self, anchor: int, made: Inserted, operands: Sequence[int | None], results: Sequence[int]
    ) -> NodeDraft:
        self._bring(anchor, operands)
        lists = [self.numbers(anchor, values) for values in made.lists]
        return drafted(made, (*operands, *lists), results, self.graph.nodes[anchor])

    def _bring(self, anchor: int, operands: Sequence[int | None]) -> None:
        """Have nodes that make weights before a node that needs them now; anything else that it needs is there."""
        for value in operands:
            if value is None or value >= len(self.graph.values):
                continue
            maker = self.graph.producer(value)
            if (
                maker is not None
                and self._moved.get(maker, maker) > anchor
                and value in folded_values(self.graph)
            ):
                self._bring(anchor, self.graph.nodes[maker].inputs)
                self.edit.move_before(maker, anchor)
                self._moved[maker] = anchor

    def numbers(self, anchor: int, values: tuple[int, ...]) -> int:
        """A tensor of whole numbers, made before a node."""
        assert self.dialect.numbers is not None
        return self.insert(anchor, self.dialect.numbers(values), (), sized(len(values)), "numbers", _NUMBERS)

    def cut(self, anchor: int, value: int, dim: int, begin: int, end: int, name: str = "cut") -> int:
        """Elements from `begin` to before `end` of a dim; the value itself where these are all. What was copied is copied once."""
        given, made = self.edit.value(value), self.dialect.cut(dim, begin, end)
        if SizeExpr.const(end - begin) == given.shape[dim]:
            return value
        shape = resized(given.shape, dim, end - begin)
        if made.is_view:
            offset = given.offset + given.strides[dim] * begin
            return self._shown(anchor, made, value, shape, given.strides, offset, name)
        key = (value, dim, begin, end)
        if key not in self._cuts:
            self._cuts[key] = self.insert(anchor, made, (value,), shape, name)
        return self._cuts[key]

    def turned(self, anchor: int, value: int, order: Sequence[int], name: str = "turned") -> int:
        """A value with its dims in an order; the value itself where that is theirs."""
        given, made = self.edit.value(value), self.dialect.turn(tuple(order))
        if list(order) == sorted(order):
            return value
        shape, strides = (tuple(sizes[dim] for dim in order) for sizes in (given.shape, given.strides))
        if made.is_view:
            return self._shown(anchor, made, value, shape, strides, given.offset, name)
        return self.insert(anchor, made, (value,), shape, name)

    def _shown(
        self, anchor: int, made: Inserted, of: int, shape: Shape, strides: Shape, offset: SizeExpr, name: str
    ) -> int:
        result = self.edit.alias(name, self.dtype(of), shape, strides, offset, of=of)
        self.put(anchor, made, (of,), (result,))
        return result

    def merge(self, node: int, dim: int | None, count: int, parts: Iterable[int]) -> None:
        """Have results of so many parts, in turn, make the result of a node: joined along a dim, or added up.

        Two are added as soon as they are there.
        """
        found: list[int] = []
        for number, part in enumerate(parts):
            found.append(part)
            if dim is None and 0 < number < count - 1:
                shape = self.shape(self.graph.nodes[node].outputs[0])
                found = [self.insert(node, self.dialect.add, found, shape, "sum")]
        self.replace(node, self.dialect.add if dim is None else self.dialect.join(dim), found)


def drafted(made: Inserted, operands: Sequence[int | None], results: Sequence[int], like: Node) -> NodeDraft:
    """An operation as a node of the same place in the user's program as another; a view reads nothing."""
    given = list(operands)
    while given and given[-1] is None and not made.args:
        given.pop()
    inputs = tuple(dict.fromkeys(value for value in given if value is not None))
    refs: tuple[Arg, ...] = tuple(None if value is None else Ref(inputs.index(value)) for value in given)
    return NodeDraft(
        made.op,
        inputs,
        tuple(results),
        ((refs,) if made.is_listed else refs) + made.args,
        tuple(sorted(made.kwargs)),
        reads=() if made.is_view else None,
        writes=inputs[:1] if made.is_onto else (),
        source=like.source,
    )
