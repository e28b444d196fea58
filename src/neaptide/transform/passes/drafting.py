"""An edit of a graph in which all that is new lies row-major, and is inserted in the words of the graph's dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from neaptide.analysis.folded import folded_values
from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Kind, contiguous_strides
from neaptide.ops.dialect import Dialect, Inserted, dialect_of
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.rewrite import Rule
from neaptide.transform.rules.node_rule import Pattern, node_rule

Shape = tuple[SizeExpr, ...]

_NUMBERS: Final = "int64"


def is_weight(graph: Graph, value: int) -> bool:
    """Whether a value is a weight, or made of weights alone."""
    return value in folded_values(graph)


def constant_shape(shape: Shape) -> tuple[int, ...] | None:
    """A shape as numbers; None where it is symbolic."""
    return (
        tuple(extent.constant_value() for extent in shape)
        if all(extent.is_constant for extent in shape)
        else None
    )


def sized(*extents: int | SizeExpr) -> Shape:
    """A shape of numbers."""
    return tuple(SizeExpr.const(e) if isinstance(e, int) else e for e in extents)


@dataclass(slots=True)
class Drafting:
    """Changes to a graph; nodes are inserted before an anchor, in the order of the calls."""

    graph: Graph
    edit: GraphEdit
    dialect: Dialect = field(init=False)
    _made: dict[int, tuple[str, Shape]] = field(init=False, default_factory=dict)
    _cuts: dict[tuple[int, int, int, int], int] = field(init=False, default_factory=dict)
    _moved: dict[int, int] = field(init=False, default_factory=dict)  # by node, where it is now

    def __post_init__(self) -> None:
        self.dialect = dialect_of(self.graph)

    def shape(self, value: int) -> Shape:
        """The shape of an old or a new value."""
        return self._made[value][1] if value in self._made else self.graph.values[value].shape

    def dtype(self, value: int) -> str:
        """The element type of an old or a new value."""
        return self._made[value][0] if value in self._made else self.graph.values[value].dtype

    def fresh(self, shape: Shape, dtype: str, name: str, *, like: Node) -> int:
        """A new row-major value on bytes of its own, where the results of a node are."""
        storage = self.graph.values[like.outputs[0]].storage
        device = "cpu" if storage is None else self.graph.storages[storage].device
        value = self.edit.fresh(name, dtype, shape, device=device, kind=Kind.ACTIVATION)
        self._made[value] = dtype, shape
        return value

    def view(self, shape: Shape, name: str, *, of: int) -> int:
        """A new row-major value that shows the elements of another under another shape."""
        value = self.edit.alias(
            name, self.dtype(of), shape, contiguous_strides(shape), SizeExpr.const(0), of=of
        )
        self._made[value] = self.dtype(of), shape
        return value

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
        like = self.graph.nodes[anchor]
        given = [value for value in operands if value is not None]
        kind = dtype if dtype is not None else self.dtype(given[0])
        result = self.fresh(shape, kind, name, like=like)
        self.put(anchor, made, operands, (result,))
        return result

    def put(
        self, anchor: int, made: Inserted, operands: Sequence[int | None], results: Sequence[int]
    ) -> None:
        """Insert an operation before a node; its results are new values."""
        self._bring(anchor, operands)
        lists = [self.numbers(anchor, values) for values in made.lists]
        like = self.graph.nodes[anchor]
        self.edit.insert_before(anchor, drafted(made, (*operands, *lists), results, like))

    def replace(
        self, node: int, made: Inserted, operands: Sequence[int | None], results: Sequence[int] | None = None
    ) -> None:
        """Put another operation in the place of a node, with the same results, or with those of nodes that go too."""
        self._bring(node, operands)
        lists = [self.numbers(node, values) for values in made.lists]
        like = self.graph.nodes[node]
        given = like.outputs if results is None else results
        self.edit.replace_node(node, drafted(made, (*operands, *lists), given, like))

    def _bring(self, anchor: int, operands: Sequence[int | None]) -> None:
        """Have nodes that make weights before a node that needs them now; anything else that it needs is there."""
        for value in operands:
            if value is None or value >= len(self.graph.values):
                continue
            maker = self.graph.producer(value)
            if maker is not None and self._moved.get(maker, maker) > anchor and is_weight(self.graph, value):
                self._bring(anchor, self.graph.nodes[maker].inputs)
                self.edit.move_before(maker, anchor)
                self._moved[maker] = anchor

    def numbers(self, anchor: int, values: tuple[int, ...]) -> int:
        """A tensor of whole numbers, made before a node."""
        made = self.dialect.numbers(values)
        return self.insert(anchor, made, (), sized(len(values)), "numbers", _NUMBERS)

    def cut(self, anchor: int, value: int, dim: int, begin: int, end: int) -> int:
        """Elements from `begin` to before `end` of a dim; the value itself where these are all. What was cut is cut once."""
        shape = self.shape(value)
        if (begin, end) == (0, shape[dim].constant_value()):
            return value
        key = (value, dim, begin, end)
        if key not in self._cuts:
            part = (*shape[:dim], SizeExpr.const(end - begin), *shape[dim + 1 :])
            made = self.dialect.cut(dim, begin, end)
            self._cuts[key] = self.insert(anchor, made, (value,), part, "cut")
        return self._cuts[key]


def drafted(
    made: Inserted, operands: Sequence[int | None], results: Sequence[int], like: Node, *, view: bool = False
) -> NodeDraft:
    """An operation as a node of the same place in the user's program as another; a view reads nothing."""
    given = list(operands)
    while given and given[-1] is None:
        given.pop()
    inputs = tuple(dict.fromkeys(value for value in given if value is not None))
    args: tuple[Arg, ...] = tuple(None if value is None else Ref(inputs.index(value)) for value in given)
    reads = () if view else None
    return NodeDraft(
        made.op, inputs, tuple(results), args, tuple(sorted(made.kwargs)), reads=reads, source=like.source
    )


def pass_rule(
    name: str,
    summary: str,
    pattern: Callable[[Graph, OpRegistry], Pattern],
    change: Callable[[Drafting, Node, Any], None],
    cannot: tuple[str, str],
    *,
    keeps_bits: bool = True,
) -> Rule:
    """A rule of one pattern, as `node_rule`, each of its places apart, whose changes are drafts of the graph's dialect."""

    def changed(edit: GraphEdit, graph: Graph, node: Node, place: Any) -> None:
        change(Drafting(graph, edit), node, place)

    return node_rule(name, summary, pattern, changed, cannot, keeps_bits=keeps_bits, apart=True)
