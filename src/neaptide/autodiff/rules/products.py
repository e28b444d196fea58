"""Derivatives of MatMul, Gemm and Einsum.

Where an operand is a matrix, Gemm transposes it for nothing, and sums over all rows of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import Tensor


def gemm(a: Tensor, b: Tensor, *, trans_a: int = 0, trans_b: int = 0, alpha: float = 1.0) -> Tensor:
    """The product of two matrices, each possibly transposed."""
    return a.apply("Gemm", b, transA=trans_a, transB=trans_b, alpha=alpha)


def _gemm(c: Call) -> list[Tensor | None]:
    trans_a, trans_b = c.attribute("transA", 0), c.attribute("transB", 0)
    alpha, beta = c.attribute("alpha", 1.0), c.attribute("beta", 1.0)
    if trans_a:
        da = gemm(c.b, c.g, trans_a=trans_b, trans_b=1, alpha=alpha)
    else:
        da = gemm(c.g, c.b, trans_b=1 - trans_b, alpha=alpha)
    if trans_b:
        db = gemm(c.g, c.a, trans_a=1, trans_b=trans_a, alpha=alpha)
    else:
        db = gemm(c.a, c.g, trans_a=1 - trans_a, alpha=alpha)
    bias = c.optional(2)
    if bias is None:
        return [da, db]
    scaled = c.g.apply("Identity") if beta == 1 else c.g * beta
    return [da, db, c.reduced(scaled, bias)]


def _matmul(c: Call) -> list[Tensor | None]:
    a, b, g = c.a, c.b, c.g
    left, right = len(a.dims), len(b.dims)
    if right == 2 and left >= 2:
        inner, columns = b.shape
        rows, across = a.reshape([-1, inner]), g.reshape([-1, columns])
        return [gemm(across, b, trans_b=1).reshape_as(a), gemm(rows, across, trans_a=1)]
    one = c.emitter.ints
    shape: list[int | str] = [*c.y.dims]
    row, column = left == 1, right == 1
    a_dims, b_dims = list(a.dims), list(b.dims)
    if row:
        a, a_dims = a.apply("Unsqueeze", one([0])), [1, *a_dims]
        g, shape = g.apply("Unsqueeze", one([-1 if column else -2])), [*shape[:-1], 1, *shape[-1:]]
    if column:
        b, b_dims = b.apply("Unsqueeze", one([1])), [*b_dims, 1]
        g = g.apply("Unsqueeze", one([-1]))
    batch = shape[: max(len(a_dims), len(b_dims)) - 2]
    da, db = g.apply("MatMul", _swapped(b, len(b_dims))), _swapped(a, len(a_dims)).apply("MatMul", g)
    return [
        _undone(c, da, [*batch, *a_dims[-2:]], a_dims).reshape_as(c.a),
        _undone(c, db, [*batch, *b_dims[-2:]], b_dims).reshape_as(c.b),
    ]


def _swapped(tensor: Tensor, rank: int) -> Tensor:
    return tensor.apply("Transpose", perm=[*range(rank - 2), rank - 1, rank - 2])


def _undone(c: Call, adjoint: Tensor, have: list[int | str], need: list[int | str]) -> Tensor:
    """The sum over batch axes along which an operand was broadcast; the caller restores the rank."""
    added = len(have) - len(need)
    axes = [i for i in range(added) if have[i] != 1]
    for axis, (old, new) in enumerate(zip(have[added:], need, strict=True), added):
        if old != new:
            if new != 1:
                raise c.refusal("whether a batch axis is broadcast is not known", "give inputs fixed sizes")
            axes.append(axis)
    return adjoint.sum(axes)


def _einsum(c: Call) -> list[Tensor | None]:
    """The adjoint of a term is an Einsum of the result's adjoint and the other operands."""
    equation = c.attribute("equation").replace(" ", "")
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if "->" not in equation or "." in equation or any(len(set(t)) < len(t) for t in (*terms, right)):
        raise c.refusal(f"the equation {equation!r} has an ellipsis, a repeated index or no result")
    found: list[Tensor | None] = []
    for index, term in enumerate(terms):
        others = [t for i, t in enumerate(terms) if i != index]
        if not set(term) <= set("".join((right, *others))):
            raise c.refusal(f"the equation {equation!r} sums an index of one operand alone")
        operands = [c.input(i) for i in range(len(terms)) if i != index]
        found.append(c.g.apply("Einsum", *operands, equation=f"{','.join((right, *others))}->{term}"))
    return found


RULES: Final[Mapping[str, Rule]] = {"Gemm": _gemm, "MatMul": _matmul, "Einsum": _einsum}
