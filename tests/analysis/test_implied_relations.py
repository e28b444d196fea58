"""Relations that operations imply: they hold for the shapes of real calls, and tell the dims of results."""

from dataclasses import dataclass, field
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.implied_relations import with_implied_relations
from neaptide.errors import SymbolicError
from neaptide.ir.builder import GraphBuilder, ValueId
from neaptide.ir.registry import AxisRow, OpRegistry, OpSpec
from neaptide.ops import registry
from neaptide.ops.axes_forms import einsum
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr
from symbolic_graphs import listing_1


@dataclass
class Own:
    """Builds calls of which every dim of every value is a symbol of its own, with the numbers of one shape."""

    low: int = 2
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    shape: dict[str, int] = field(default_factory=dict)

    def dims(self, numbers: tuple[int, ...]) -> tuple[SizeExpr, ...]:
        names = [f"d{len(self.shape) + k}" for k in range(len(numbers))]
        self.shape.update(zip(names, numbers, strict=True))
        return tuple(self.builder.dim(name, self.low) for name in names)

    def input(self, *numbers: int) -> ValueId:
        return self.builder.input("x", self.dims(numbers))

    def call(self, op: str, *args: object, made: list[tuple[int, ...]]) -> tuple[ValueId, ...]:
        outputs = [f"y: f32[{', '.join(f'{{{d}}}' for d in self.dims(numbers))}]" for numbers in made]
        return self.builder.node(f"aten.{op}", *args, outputs=outputs)

    def of(self, value: ValueId, dim: int) -> SizeExpr:
        return self.builder.values[value].shape[dim]

    def store(self) -> SizeRelations:
        graph = with_implied_relations(self.builder.finish(), registry())
        for relation in graph.relations:
            assert relation.left.evaluate(self.shape) == relation.right.evaluate(self.shape), str(relation)
        return SizeRelations(graph.dims, graph.relations)


sizes = st.integers(2, 7)


@given(sizes, sizes, sizes, sizes)
def test_a_chain_of_calls_ties_its_dims_together(rows, inner, columns, more):
    own = Own()
    a, b, c = own.input(rows, inner), own.input(inner, columns), own.input(more, columns)
    (product,) = own.call("mm.default", a, b, made=[(rows, columns)])
    (joined,) = own.call("cat.default", [product, c], 0, made=[(rows + more, columns)])
    (flat,) = own.call("view.default", joined, [-1], made=[((rows + more) * columns,)])
    (twice,) = own.call("add.Tensor", flat, flat, made=[((rows + more) * columns,)])
    own.builder.output(twice)
    store = own.store()
    inputs = {str(own.of(a, 0)): rows, str(own.of(a, 1)): inner, str(own.of(b, 1)): columns}
    assert store.binding({**inputs, str(own.of(c, 0)): more}) == own.shape
    assert store.is_equal(own.of(twice, 0), own.of(joined, 0) * own.of(c, 1))
    assert store.is_less(own.of(c, 0), own.of(joined, 0))


@given(st.integers(2, 30), st.integers(2, 5))
def test_the_parts_of_a_chunk_are_floor_divisions(length, count):
    part = -(-length // count)
    parts = [part] * (length // part) + ([length % part] if length % part else [])
    own = Own(low=0)
    x = own.input(length, 3)
    made = own.call("chunk.default", x, count, 0, made=[(size, 3) for size in parts])
    own.builder.output(*made)
    store = own.store()
    total = SizeExpr.const(0)
    for value in made:
        total = total + own.of(value, 0)
    assert store.is_equal(total, own.of(x, 0))
    if len(parts) > 1:
        assert store.is_equal(own.of(made[0], 0), (own.of(x, 0) + (count - 1)) // count)


def test_a_view_in_rows_says_what_divides_the_dim():
    own = Own()
    x = own.input(24)
    b = own.builder
    rows = b.dim("R", 1)
    own.shape["R"] = 6
    (y,) = b.node("aten.view.default", x, [-1, 4], outputs=["y: f32[{R}, 4]"])
    b.output(y)
    store = own.store()
    length = own.of(x, 0)
    assert store.is_equal(length % 4, SizeExpr.const(0))
    assert store.is_equal(length // 2, 2 * rows)


def test_what_may_be_1_may_be_broadcast():
    for low, is_known in ((1, False), (2, True)):
        own = Own(low=low)
        a, c = own.input(5), own.input(5)
        (y,) = own.call("add.Tensor", a, c, made=[(5,)])
        own.builder.output(y)
        assert (own.store().is_equal(own.of(a, 0), own.of(c, 0)) is True) is is_known


def test_what_is_known_already_is_not_said_again():
    graph = listing_1(copies=True)
    rows = OpRegistry(
        [
            OpSpec("toy.reshape", axes=AxisRow(regroups=True)),
            OpSpec("toy.dot", axes=einsum("mk,kn->mn")),
            *(OpSpec(f"toy.{name}") for name in ("broadcast", "reduce")),
        ]
    )
    assert with_implied_relations(graph, rows) == graph
    derived = with_implied_relations(listing_1(copies=True, related=False), rows)
    assert derived == graph
    program = SizeRelations(derived.dims, derived.relations).program()
    assert "  @S0 = Mul @C12, @S1\n" in program


def test_calls_that_no_shape_fits_are_an_error():
    own = Own()
    x = own.input(12)
    own.builder.node("aten.view.default", x, [5, 2], outputs=["y: f32[5, 2]"])
    own.builder.node("aten.view.default", x, [3, 4], outputs=["z: f32[3, 4]"])
    with pytest.raises(SymbolicError, match="no shape"):
        with_implied_relations(own.builder.finish(), registry())


def test_numbers_of_elements_are_divided_by_what_they_share():
    own = Own()
    x = own.input(2, 3, 64)
    b = own.builder
    b.dim("N", 1)
    own.shape["N"] = prod((2, 3))
    (y,) = b.node("aten.view.default", x, [-1, 64], outputs=["y: f32[{N}, 64]"])
    b.relation(own.of(x, 2), 64)
    b.output(y)
    store = own.store()
    assert store.is_equal(SizeExpr.dim("N"), own.of(x, 0) * own.of(x, 1))
