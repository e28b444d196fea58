"""Axes of matrix decompositions, transforms and distances: what lies in front of a matrix is a batch of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from neaptide.ir.axes import Merge, OpAxis
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import Axed, all_but, numbers, op_axis, same_dims, slot

_FIRST = (0,)


def _batch_of_matrices(call: Call) -> Iterator[OpAxis]:
    """Dims in front of the last two of the first operand, which all others and all results begin with."""
    values = [*call.inputs(), *call.outputs()]
    lead = values[0].shape[:-2]
    if any(value.shape[: len(lead)] != lead for value in values):
        return
    for dim in range(len(lead)):
        everywhere = [(s, dim) for s in range(len(call.node.inputs))]
        yield from op_axis(call, everywhere, [(k, dim) for k in range(len(call.node.outputs))])


def _transformed(call: Call) -> Iterable[int]:
    """Dims that a Fourier transform is along: `(self, dim, ...)`."""
    rank = len(call.inputs()[0].shape)
    dims = numbers(call.arg(1))
    return range(rank) if dims is None else {dim % rank for dim in dims}


def _distances(call: Call) -> Iterator[OpAxis]:
    """`(x1 (..., p, m), x2 (..., r, m), p, compute_mode)` to the distances (..., p, r); x1 and x2 may be one value."""
    first, second = slot(call, 0), slot(call, 1)
    rank = len(call.output().shape)
    if not _same_batch(call):
        return
    for dim in range(rank - 2):
        yield from op_axis(call, [(first, dim), (second, dim)], [(0, dim)])
    if first != second:
        yield from op_axis(call, [(first, rank - 2)], [(0, rank - 2)])
        yield from op_axis(call, [(second, rank - 2)], [(0, rank - 1)])


def _distances_backward(call: Call) -> Iterator[OpAxis]:
    """`(grad (..., p, r), x1 (..., p, m), x2 (..., r, m), p, cdist (..., p, r))` to the gradient of x1."""
    grad, first, second, known = (slot(call, position) for position in (0, 1, 2, 4))
    rank = len(call.output().shape)
    if not _same_batch(call):
        return
    for dim in range(rank - 2):
        yield from op_axis(call, [(s, dim) for s in (grad, first, second, known)], [(0, dim)])
    rows, columns = rank - 2, rank - 1
    if first != second:
        yield from op_axis(call, [(grad, rows), (first, rows), (known, rows)], [(0, rows)])
        yield from op_axis(call, [(grad, columns), (second, rows), (known, columns)], [(0, Merge.SUM)])
    yield from op_axis(call, [(first, columns), (second, columns)], [(0, columns)])


def _same_batch(call: Call) -> bool:
    """Whether all operands have the dims of the result in front of the last two."""
    made = call.output().shape
    return all(len(v.shape) == len(made) and v.shape[:-2] == made[:-2] for v in call.inputs())


def _weight_norm(call: Call) -> Iterator[OpAxis]:
    """The dim that has a norm of its own for each element, in every operand and result."""
    yield from same_dims(call, range(len(call.node.inputs)), range(len(call.node.outputs)), ())


_TABLE = (
    Axed(
        """
        linalg_cholesky_ex.default cholesky_solve.default linalg_solve_triangular.default linalg_lu_solve.default
        _linalg_solve_ex.default linalg_inv_ex.default linalg_qr.default _linalg_svd.default _linalg_eigh.default
        _linalg_slogdet.default linalg_matrix_exp.default
        """,
        AxisRow(_batch_of_matrices),
    ),
    Axed("_fft_r2c.default _fft_c2r.default _fft_c2c.default", all_but(_transformed, _FIRST)),
    Axed("_cdist_forward.default", AxisRow(_distances)),
    Axed("_cdist_backward.default", AxisRow(_distances_backward, linear=(_FIRST,))),
    Axed(
        "_weight_norm_interface.default _weight_norm_interface_backward.default",
        AxisRow(_weight_norm),
    ),
)


def rows() -> Iterator[Axed]:
    """Linear algebra, Fourier transforms, distances and norms of weights."""
    yield from _TABLE
