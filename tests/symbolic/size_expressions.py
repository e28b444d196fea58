"""Random sizes over two dims, `n` and `m`."""

from __future__ import annotations

from hypothesis import strategies as st

from neaptide.symbolic.size_expr import SizeExpr, maximum

leaves = st.sampled_from([SizeExpr.dim("n"), SizeExpr.dim("m")]) | st.integers(-4, 9).map(SizeExpr.const)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, inner).map(lambda p: maximum(*p)),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: p[0] % p[1]),
    ),
    max_leaves=8,
)
