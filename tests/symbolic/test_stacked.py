"""A stack of sizes has the numbers of its expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import SymbolicError
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.stacked import StackedSizes
from symbolic.size_expressions import expressions


@given(st.lists(expressions, max_size=6), st.integers(0, 50), st.integers(0, 50))
def test_the_numbers_are_those_of_the_expressions(sizes, n, m):
    binding = {"n": n, "m": m}
    assert StackedSizes(sizes).at(binding).tolist() == [size.evaluate(binding) for size in sizes]


def test_a_dim_without_a_value_is_refused():
    with pytest.raises(SymbolicError, match="no value for n"):
        StackedSizes([SizeExpr.dim("n")]).at({})
