"""Sizes as Python text evaluate to what the expression does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import LoweringError
from neaptide.lower.names import size_text
from neaptide.symbolic.size_expr import SizeExpr
from size_expressions import expressions


@given(expressions, st.integers(1, 50), st.integers(1, 50))
def test_text_evaluates_to_the_size(size, n, m):
    text = size_text(size, {"n": "first", "m": "second"})
    assert eval(text, {"first": n, "second": m}) == size.evaluate({"n": n, "m": m})


def test_zero_and_unknown_dimensions():
    n = SizeExpr.dim("n")
    assert size_text(n - n, {}) == "0"
    with pytest.raises(LoweringError, match="the size n is not a number"):
        size_text(n, {"m": "m"})
