"""The store of ranges and relations: what it claims is true at every shape, and what must be proved is."""

from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from neaptide.errors import SymbolicError
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr, maximum
from support.drawn import size_exprs
from support.together import together

B, T, N, S0, S1 = map(SizeExpr.dim, ("B", "T", "N", "S0", "S1"))
ZERO = SizeExpr.const(0)
POSITIVE = [Dim("B", 1), Dim("T", 1), Dim("S1", 1)]
TRUE_OF = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}
RELATIONS = [
    Relation(S0, 3 * T),
    Relation(S0, B * T),
    Relation(S0, T + B - 1),
    Relation(T % 2, SizeExpr.const(1)),
    Relation(T, 2 * (T // 2)),
    Relation((T + B) % 3, SizeExpr.const(2)),
    Relation(2 * T, 3 * B),
    Relation(3 * T + 2 * B, SizeExpr.const(12)),
    Relation(B * T, S0 * S0),
    Relation(S0 // 2, T),
    Relation(maximum(B, T), S0),
    Relation(2 * S0 * B, 2 * T * B + 2 * B),
]


@st.composite
def declared_dims(draw, names=("B", "T", "S0")):
    lows = {name: draw(st.integers(0, 3)) for name in names}
    return [Dim(name, low, low + draw(st.integers(0, 5))) for name, low in lows.items()]


def shapes(dims, relations):
    """All shapes that the ranges and relations allow."""
    for sizes in product(*(range(dim.low, dim.high + 1) for dim in dims)):
        shape = {dim.name: size for dim, size in zip(dims, sizes, strict=True)}
        if all(r.left.evaluate(shape) == r.right.evaluate(shape) for r in relations):
            yield shape


@given(
    declared_dims(),
    st.lists(st.sampled_from(RELATIONS), max_size=3, unique=True),
    st.lists(st.tuples(size_exprs(("B", "T", "S0")), size_exprs(("B", "T", "S0"))), min_size=3, max_size=3),
    st.booleans(),
)
def test_what_is_claimed_is_true_at_every_shape(dims, relations, pairs, is_open):
    allowed = list(shapes(dims, relations))
    assume(allowed)
    declared = [Dim(dim.name, dim.low) for dim in dims] if is_open else dims
    store = SizeRelations(declared, relations)
    for a, b in pairs:
        numbers = [(a.evaluate(shape), b.evaluate(shape)) for shape in allowed]
        order = store.compare(a, b)
        assert order is None or all(TRUE_OF[order](*pair) for pair in numbers)
        assert all(x in store.bound(a) for x, _ in numbers)
        assert [store.expression(store.known(a)).evaluate(shape) for shape in allowed] == [
            x for x, _ in numbers
        ]


@given(declared_dims(), st.lists(st.sampled_from(RELATIONS), max_size=3, unique=True))
def test_samples_are_shapes_and_known_sizes_have_their_numbers(dims, relations):
    allowed = list(shapes(dims, relations))
    assume(allowed)
    store = SizeRelations(dims, relations)
    a, b = 4 * B * T + S0, T * (S0 // 2)
    known, samples = store.known(a) * 3 - store.known(b), store.samples()
    assert all(shape in allowed for shape in samples)
    expected = tuple(3 * a.evaluate(shape) - b.evaluate(shape) for shape in samples)
    assert known.samples == expected == (store.known(3 * a - b)).samples
    assert known == store.known(3 * a - b)


@given(declared_dims(), st.lists(st.sampled_from(RELATIONS), max_size=3, unique=True))
def test_a_refusal_means_that_there_is_no_shape(dims, relations):
    try:
        SizeRelations(dims, relations)
    except SymbolicError:
        assert not list(shapes(dims, relations))


@together(
    ("a", "b", "order"),
    [
        (T, 2 * T, "<"),
        (B * T, B, ">="),
        (2 * (T // 2), T, "<="),
        (maximum(B, T), T, ">="),
        (maximum(B, T), B + T, "<"),
        (T % 8, SizeExpr.const(8), "<"),
        (B, T, None),
        (B + T, T + B, "=="),
        (T * T, T, ">="),
        ((T + 7) // 8 * 8, T, ">="),
        (2 * B + 4 * T, 2 * B + 2 * T + 1, ">"),
    ],
)
def test_comparisons_that_must_be_proved(a, b, order):
    assert SizeRelations(POSITIVE).compare(a, b) == order


@together(
    ("relations", "a", "b", "order"),
    [
        ([Relation(S0, 12 * S1)], S0, 11 * S1, ">"),
        ([Relation(S0, 12 * S1), Relation(S1, B)], S0, 12 * B, "=="),
        ([Relation(S1, B), Relation(S0, 12 * S1)], S0, 12 * B, "=="),
        ([Relation(T, 4 * (T // 4))], 2 * (T // 2), T, "=="),
        ([Relation(T % 4, SizeExpr.const(3))], (T + 1) // 4 * 4, T + 1, "=="),
        ([Relation(2 * T, 3 * B)], B, T, "<"),
        ([Relation(2 * T, 3 * B)], T % 3, ZERO, "=="),
        ([Relation(4096 * B * T, 4096 * N)], 7 * N, 7 * B * T, "=="),
        ([Relation(S0 * B, T * N)], 2 * S0 * B, 2 * T * N, "=="),
        ([Relation(maximum(B, T), N)], N, T, ">="),
    ],
)
def test_relations_decide(relations, a, b, order):
    store = SizeRelations([*POSITIVE, Dim("S0", 1), Dim("N", 1)], relations)
    assert store.compare(a, b) == order


def test_the_range_of_a_dim_that_a_relation_takes_out_still_counts():
    store = SizeRelations([Dim("B", 1), Dim("T", 1), Dim("N", 1, 4096)], [Relation(N, B * T)])
    assert store.compare(12 * B * T, SizeExpr.const(12 * 4096)) == "<="
    assert store.compare(B, SizeExpr.const(4096)) == "<="
    store = SizeRelations([Dim("S1"), Dim("S0", 5, 30)], [Relation(S0, 12 * S1)])
    assert (store.bound(S1).low, store.bound(S1).high) == (1, 2)


def test_sizes_that_depend_on_the_shape_have_no_order():
    store = SizeRelations([Dim("B", 1, 64), Dim("T", 16, 4096)])
    assert store.compare(B * T, 1000 * B) is None


@together(
    "relations",
    [
        [Relation(S0, 12 * S1), Relation(S0, 12 * S1 + 1)],
        [Relation(2 * T, 2 * B + 1)],
        [Relation(S0, S0 + 1)],
        [Relation(T, SizeExpr.const(99))],
    ],
)
def test_relations_that_no_shape_keeps_are_an_error(relations):
    with pytest.raises(SymbolicError, match="no shape"):
        SizeRelations([Dim("B", 1, 8), Dim("T", 1, 8), Dim("S0", 1), Dim("S1", 1)], relations)


def test_a_binding_follows_from_enough_dims():
    store = SizeRelations(
        [Dim("S0", 12, 480), Dim("S1", 1), Dim("B", 1)], [Relation(S0, 12 * S1), Relation(S0, 2 * B)]
    )
    assert store.binding({"S1": 3}) == {"S0": 36, "S1": 3, "B": 18}
    assert store.binding({"B": 18}) == {"S0": 36, "S1": 3, "B": 18}
    with pytest.raises(SymbolicError, match="outside its range"):
        store.binding({"S1": 41})
    with pytest.raises(SymbolicError, match="no whole number for S1"):
        store.binding({"S0": 37})
    with pytest.raises(SymbolicError, match="break"):
        store.binding({"S0": 36, "S1": 4})
    with pytest.raises(SymbolicError, match="no value for B, T"):
        SizeRelations([Dim("B"), Dim("T")]).binding({})


def test_a_dim_that_nobody_declares_is_an_error():
    with pytest.raises(SymbolicError, match="dim T is not declared"):
        SizeRelations([Dim("B")]).compare(B, T)
