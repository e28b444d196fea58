"""Calls for rows of axes, as in `axis_samples`, of operations that few programs have."""

import torch
from axis_samples import real, whole


def _matrices():
    aten = torch.ops.aten
    x = real(7, 5, 3, 3) + 3 * torch.eye(3, dtype=torch.float64)
    square = x @ x.mT
    lower = aten.linalg_cholesky_ex(square)[0]
    for name in (
        "linalg_cholesky_ex",
        "linalg_inv_ex",
        "_linalg_eigh",
        "_linalg_slogdet",
        "linalg_matrix_exp",
    ):
        yield f"{name}.default", (square,)
    yield "linalg_qr.default", (real(7, 4, 3),)
    yield "_linalg_svd.default", (real(7, 4, 3),)
    yield "cholesky_solve.default", (real(7, 5, 3, 2), lower)
    yield "linalg_solve_triangular.default", (lower, real(7, 5, 3, 2)), {"upper": False}
    yield "_linalg_solve_ex.default", (x, real(7, 5, 3, 2))
    yield "_linalg_solve_ex.default", (x, real(7, 5, 3))
    factors, pivots, _ = aten.linalg_lu_factor_ex(x)
    yield "linalg_lu_solve.default", (factors, pivots, real(7, 5, 3, 2))


def _transforms():
    x = real(7, 5, 6, 4)
    both = torch.complex(x, real(7, 5, 6, 4))
    for dims in ([2, 3], [1], [3]):
        yield "_fft_r2c.default", (x, dims, 0, True)
        yield "_fft_c2c.default", (both, dims, 1, False)
    yield "_fft_c2r.default", (both, [2, 3], 2, 6)
    yield "_fft_c2r.default", (both, [3], 0, 7)


def _distances():
    for x, y in ((real(2, 7, 3), real(2, 5, 3)), (real(7, 3), real(5, 3))):
        for power in (2.0, 1.0):
            known = torch.ops.aten._cdist_forward(x, y, power, 2)
            yield "_cdist_forward.default", (x, y, power, 2)
            yield "_cdist_backward.default", (real(*known.shape), x, y, power, known)
    x = real(2, 7, 3)
    known = torch.ops.aten._cdist_forward(x, x, 2.0, 2)
    yield "_cdist_forward.default", (x, x, 2.0, 2)
    yield "_cdist_backward.default", (real(*known.shape), x, x, 2.0, known)


def _weights():
    for dim, sizes in ((0, (7, 1, 1)), (2, (1, 1, 5))):
        v, g = real(7, 3, 5), real(*sizes)
        made, norms = torch.ops.aten._weight_norm_interface(v, g, dim)
        yield "_weight_norm_interface.default", (v, g, dim)
        yield "_weight_norm_interface_backward.default", (real(*made.shape), v, g, norms, dim)
    yield "bernoulli.default", (real(7, 5),)
    yield "normal.Tensor_Tensor", (real(7, 5), real(7, 5))
    yield "vdot.default", (real(7), real(7))


def _diagonals():
    yield "glu_backward.default", (real(7, 5, 2), real(7, 5, 4), -1)
    x = real(7, 5, 4, 3)
    for dims in ((0, 1), (1, -1), (3, 2)):
        made = torch.ops.aten.diagonal(x, 1, *dims)
        yield "diagonal.default", (x, 1, *dims)
        yield "diagonal_backward.default", (real(*made.shape), [7, 5, 4, 3], 1, *dims)
    yield "diagonal.default", (x,)
    yield "diag_embed.default", (real(7, 5, 3),)
    yield "diag_embed.default", (real(7, 5, 3), 1, 0, 2)
    yield "unfold_backward.default", (real(7, 4, 2, 3), [7, 5, 2], 1, 3, 1)
    yield "unfold_backward.default", (real(7, 5, 2, 3), [7, 5, 4], -1, 3, 1)


def _lookups():
    yield "index_add_.default", (real(7, 5, 3), 1, whole(5, 4), real(7, 4, 3))
    distinct = torch.tensor([3, 0, 4])
    for accumulate in (False, True):
        yield "index_put_.default", (real(7, 5, 3), [None, distinct], real(7, 3, 3), accumulate)
        yield "index_put_.default", (real(7, 5, 3), [distinct, distinct], real(3, 3), accumulate)
    yield "scatter_.value", (real(7, 5, 3), 1, whole(5, 7, 2, 3), 0.25)
    for how in ("sum", "amax"):
        yield "scatter_reduce.two", (real(7, 5, 3), 1, whole(5, 7, 2, 3), real(7, 2, 3), how)
    yield "bucketize.Tensor", (real(7, 5), torch.tensor([0.3, 0.5, 0.6], dtype=torch.float64))
    yield "searchsorted.Tensor", (real(3).sort().values, real(7, 5))
    yield "searchsorted.Tensor", (real(7, 3).sort(-1).values, real(7, 5))
    yield "kthvalue.default", (real(7, 5, 3), 2, 1)
    yield "kthvalue.default", (real(7, 5, 3), 2, -1, True)


def _pictures():
    x = real(7, 5, 12, 8)
    yield "pixel_unshuffle.default", (x, 2)
    yield "col2im.default", (real(7, 12, 15), [4, 6], [2, 2], [1, 1], [0, 0], [1, 1])
    yield (
        "grid_sampler_2d_backward.default",
        (real(7, 5, 4, 3), x, real(7, 4, 3, 2), 0, 0, False, [True, True]),
    )
    yield "affine_grid_generator.default", (real(7, 2, 3), [7, 3, 5, 4], False)
    yield "reflection_pad1d_backward.default", (real(7, 5, 7), real(7, 5, 4), [1, 2])
    out, indices = torch.ops.aten.max_pool2d_with_indices(x, [2, 2])
    yield "max_unpool2d.default", (out, indices, [12, 8])


def rare_samples():
    """(name without its namespace, positional arguments, keyword arguments)."""
    for family in (_matrices, _transforms, _distances, _weights, _diagonals, _lookups, _pictures):
        for name, args, *kwargs in family():
            yield name, args, kwargs[0] if kwargs else {}
