"""SizeExpr: ring laws, canonical form, evaluation, text."""

import copy
import pickle
import subprocess
import sys

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import SymbolicError
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.size_expr import SizeExpr, floordiv, maximum, modulo
from support.drawn import DIMS, bindings, size_exprs
from support.together import together

B, T = SizeExpr.dim("B"), SizeExpr.dim("T")
POLYNOMIALS = st.recursive(
    st.one_of(st.sampled_from(DIMS).map(SizeExpr.dim), st.integers(-9, 9).map(SizeExpr.const)),
    lambda parts: st.one_of(
        st.builds(lambda a, b: a + b, parts, parts), st.builds(lambda a, b: a * b, parts, parts)
    ),
    max_leaves=8,
)


def test_text_is_sorted_by_degree_then_name():
    assert str(12 * (T // 2) + 4 * B * T) == "4*B*T + 12*floordiv(T, 2)"
    assert str(3 - B * T + T * T) == "-B*T + T**2 + 3"
    assert str(SizeExpr.const(-4)) == "-4"


def test_constants_fold_and_are_shared():
    assert SizeExpr.const(3) + 4 == SizeExpr.const(7)
    assert (SizeExpr.const(-7) // 2).constant_value() == -4
    assert (SizeExpr.const(-7) % 3).constant_value() == 2
    assert SizeExpr.const(1000) is SizeExpr.const(1000)
    assert (B - B).constant_value() == 0
    assert (B - B).is_constant


def test_an_expression_never_equals_a_plain_int():
    assert SizeExpr.const(3) != 3


@together(
    ("expr", "text"),
    [
        ((4 * B * T + 3 * T) // T, "4*B + 3"),
        ((6 * T + 7) // 4, "T + floordiv(T + 1, 2) + 1"),
        ((2 * T) // 4, "floordiv(T, 2)"),
        ((2 * T + 1) // 4, "floordiv(T, 2)"),
        (T // -2, "-T + floordiv(T, 2)"),
        ((6 * B + 7) % 4, "2*mod(B + 1, 2) + 1"),
        ((8 * B) % 4, "0"),
        (T % -3, "-mod(2*T, 3)"),
        ((B + T) // (B + T), "1"),
        (maximum(B, B + 1), "B + 1"),
        (maximum(T, B), "max(B, T)"),
        (maximum(maximum(T, B), T), "max(B, T)"),
    ],
)
def test_opaque_terms_are_simplified(expr, text):
    assert str(expr) == text


@given(size_exprs(), size_exprs(), size_exprs())
def test_ring_laws(a, b, c):
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == SizeExpr.const(0)
    assert a + 0 == a == a * 1
    assert a.__neg__().__neg__() == a


@given(size_exprs(), size_exprs(), bindings())
def test_evaluation_is_a_homomorphism(a, b, numbers):
    x, y = a.evaluate(numbers), b.evaluate(numbers)
    assert (a + b).evaluate(numbers) == x + y
    assert (a - b).evaluate(numbers) == x - y
    assert (a * b).evaluate(numbers) == x * y
    assert maximum(a, b).evaluate(numbers) == max(x, y)
    divisor = maximum(b, 1)
    assert floordiv(a, divisor).evaluate(numbers) == x // max(y, 1)
    assert modulo(a, divisor).evaluate(numbers) == x % max(y, 1)


@given(size_exprs(), st.integers(-12, 12).filter(bool), bindings())
def test_constant_divisors_of_any_sign(a, divisor, numbers):
    x = a.evaluate(numbers)
    assert (a // divisor).evaluate(numbers) == x // divisor
    assert (a % divisor).evaluate(numbers) == x % divisor


@given(size_exprs())
def test_text_round_trips(a):
    again = parse_size_expr(str(a))
    assert again == a
    assert hash(again) == hash(a)
    assert pickle.loads(pickle.dumps(a)) == a
    assert copy.deepcopy(a) is a


@given(size_exprs(), size_exprs(), bindings())
def test_substitution_commutes_with_evaluation(a, b, numbers):
    inner = b.evaluate(numbers)
    assert a.substitute({"B": b}).evaluate(numbers) == a.evaluate({**numbers, "B": inner})


@given(POLYNOMIALS, POLYNOMIALS)
def test_polynomials_agree_with_sympy(a, b):
    names = sympy.symbols(DIMS)
    scope = dict(zip(DIMS, names, strict=True))
    ours = sympy.sympify(str(a * b - a), locals=scope)
    theirs = sympy.expand(sympy.sympify(str(a), locals=scope) * sympy.sympify(str(b), locals=scope))
    assert sympy.expand(ours - theirs + sympy.sympify(str(a), locals=scope)) == 0
    assert (a == b) == (sympy.expand(sympy.sympify(f"({a}) - ({b})", locals=scope)) == 0)


def test_missing_dimensions_are_named():
    with pytest.raises(SymbolicError, match="no value for S0, T"):
        (B * T + SizeExpr.dim("S0")).evaluate({"B": 1})
    with pytest.raises(SymbolicError, match="depends on B"):
        B.constant_value()


def test_division_by_zero_is_an_error():
    with pytest.raises(SymbolicError, match="zero"):
        B // 0
    with pytest.raises(SymbolicError, match="zero"):
        (B // T).evaluate({"B": 1, "T": 0})


def test_dims_look_inside_opaque_terms():
    assert maximum(B // 2, T % 3).dims() == {"B", "T"}


@together(
    ("text", "column"),
    [
        *(
            ("B + )", 5),
            ("1 + floordiv(B)", 5),
            ("B ? T", 3),
            ("B T", 3),
            ("B**-1", 4),
            ("B**65", 4),
            ("", 1),
        ),
        *(("4*", 1), ("f(B, T)", 1), ("B if T else 1", 1), ("-" * 9999 + "B", 1), ("True + 1.5", 9)),
    ],
)
def test_malformed_text_names_the_column(text, column):
    with pytest.raises(SymbolicError, match=f"column {column}"):
        parse_size_expr(text)


def test_parser_reads_more_than_is_printed():
    assert parse_size_expr("(B + 1)*(B - 1) // 1 - -T**2 % 5") == B * B - 1 - (-(T * T)) % 5
    assert parse_size_expr("B + " * 900 + "B") == 901 * B
    with pytest.raises(SymbolicError, match="nested"):
        parse_size_expr("(" * 5000)


@together("name", ["", "1a", "a-b", "floordiv", "max", "é", "in"])
def test_bad_dimension_names_are_refused(name):
    with pytest.raises(SymbolicError, match="cannot name"):
        SizeExpr.dim(name)


def test_text_does_not_depend_on_the_hash_seed():
    code = (
        "from neaptide.symbolic.parsing import parse_size_expr as p; print(p('(B+T+S0)*(T+Q*B)//7 % (S0+B)'))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
