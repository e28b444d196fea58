"""What a trace assumed of sizes becomes ranges, relations and conditions, none weaker than what was assumed."""

from __future__ import annotations

import random
from itertools import product

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod

from neaptide.frontends.dims.dynamic_dims import DynamicDim
from neaptide.frontends.dims.traced_dims import Assumption, Settling
from support.together import together

A, B = sympy.symbols("s0 s1", positive=True, integer=True)
HIGH = 12


def settle(formulas, example, low=1, high=HIGH):
    dims = [DynamicDim(name, low, high, example[name], ((0, axis),)) for axis, name in enumerate(("a", "b"))]
    assumed = [Assumption(formula, f"line {at}") for at, formula in enumerate(formulas)]
    return Settling(dims, {"s0": "a", "s1": "b"}, {"a": A, "b": B}, example).facts(assumed)


def holds(facts, binding):
    numbers = [facts.asked[name].evaluate(binding) for name in ("a", "b")]
    return (
        numbers == [binding["a"], binding["b"]]
        and all(binding[dim.name] in dim for dim in facts.dims)
        and all(r.left.evaluate(binding) == r.right.evaluate(binding) for r in facts.relations)
        and all(condition.holds(binding) for condition in facts.conditions)
    )


def random_formula(draw):
    sides = [A, B, A * B, A + 2 * B, FloorDiv(A, 2), Mod(B, 3), sympy.Integer(draw.randint(1, 9))]
    kinds = [sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge, sympy.Ne, sympy.Eq]
    formula = draw.choice(kinds)(*draw.sample(sides, 2), evaluate=False)
    if draw.random() < 0.2:
        return sympy.Or(formula, random_formula(draw), evaluate=False)
    return formula


@together("seed", range(40))
def test_every_shape_that_is_let_in_meets_all_assumptions(seed):
    draw = random.Random(seed)
    example = {"a": draw.randint(2, HIGH), "b": draw.randint(2, HIGH)}
    at_example = {A: example["a"], B: example["b"]}
    formulas = [random_formula(draw) for _ in range(3)]
    formulas = [f if bool(f.xreplace(at_example)) else sympy.Not(f) for f in formulas]
    facts = settle(formulas, example)
    assert holds(facts, example)
    for a, b in product(range(1, HIGH + 1), repeat=2):
        if holds(facts, {"a": a, "b": b}):
            assert all(bool(formula.xreplace({A: a, B: b})) for formula in formulas)


@together(
    ("formula", "low", "high"),
    [
        (A < 7, 1, 6),
        (A > 2, 3, HIGH),
        (sympy.Ne(A, 9), 1, 8),
        (A * A < 50, 1, 7),
        (sympy.Ne(A, 40), 1, HIGH),
        (3 * A + 1 <= 4 * HIGH, 1, HIGH),
    ],
)
def test_a_range_is_narrowed_as_little_as_can_be(formula, low, high):
    facts = settle([formula], {"a": 5, "b": 5})
    assert [(dim.low, dim.high) for dim in facts.dims] == [(low, high), (1, HIGH)]
    assert bool(facts.notes) == ((low, high) != (1, HIGH))


def test_a_range_without_end_is_narrowed_too():
    dims = [DynamicDim("a", 1, None, 5, ((0, 0),))]
    facts = Settling(dims, {"s0": "a"}, {"a": A}, {"a": 5}).facts([Assumption(A <= 1000, "line")])
    assert [(dim.low, dim.high) for dim in facts.dims] == [(1, 1000)]
    facts = Settling(dims, {"s0": "a"}, {"a": A}, {"a": 5}).facts([Assumption(A >= 3, "line")])
    assert [(dim.low, dim.high) for dim in facts.dims] == [(3, None)]


def test_what_no_size_can_say_fixes_the_dims():
    facts = settle([sympy.sqrt(A) < 3], {"a": 5, "b": 5})
    assert [dim.name for dim in facts.dims] == ["b"]
    assert facts.asked["a"].constant_value() == 5
    assert "line 0" in facts.notes[0]


def test_what_is_equal_to_another_dim_keeps_both_ranges():
    dims = [DynamicDim("a", 2, 9, 6, ((0, 0),)), DynamicDim("b", 1, 3, 3, ((0, 1),))]
    facts = Settling(dims, {"s0": "a", "s1": "b"}, {"a": 2 * B, "b": B}, {"a": 6, "b": 3}).facts([])
    assert [(dim.name, dim.low, dim.high) for dim in facts.dims] == [("b", 1, 3)]
    assert str(facts.asked["a"]) == "2*b"
    assert str(facts.meaning["s0"]) == "2*b"
