"""ATen Fourier transforms, linear algebra and distances."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops import formulas
from neaptide.ops.table import declare

_FFT = """
    _fft_c2c.default,out _fft_c2r.default,out _fft_r2c.default,out
"""
_FACTORISATIONS = """
    linalg_inv_ex.default,inverse=inverse+info linalg_inv.default,out linalg_cholesky_ex.default,L=L+info
    linalg_cholesky.default,out linalg_lu_factor_ex.default,out=LU+pivots+info linalg_lu.default,out=P+L+U
    linalg_qr.default,out=Q+R _linalg_svd.default,U=U+S+Vh
    _linalg_eigh.default,eigenvalues=eigenvalues+eigenvectors
    linalg_eig.default,out=eigenvalues+eigenvectors _linalg_det.default,result=result+LU+pivots
    _linalg_slogdet.default,sign=sign+logabsdet+LU+pivots
    _linalg_solve_ex.default,result=result+LU+pivots+info linalg_solve_triangular.default,out
    linalg_lu_solve.default,out triangular_solve.default,X=X+M cholesky.default,out
    cholesky_inverse.default,out cholesky_solve.default,out linalg_householder_product.default,out
    linalg_ldl_factor_ex.default,out=LD+pivots+info
    linalg_pinv.default,atol_rtol_float,atol_rtol_float_out,atol_rtol_tensor,atol_rtol_tensor_out,out,out_rcond_tensor=out,rcond_tensor
    linalg_cross.default,out lu_unpack.default,out=P+L+U
"""
# The degree of the Taylor polynomial follows from the norm (Bader, Blanes, Casas 2019).
_EXPONENTIALS = """
    linalg_matrix_exp.default,out
"""
_DISTANCE = """
    _cdist_forward.default,out _euclidean_dist.default,out _pdist_forward.default,out
"""
_DISTANCE_BACKWARD = """
    _cdist_backward.default,out
"""


def rows() -> Iterator[OpSpec]:
    """Dense linear algebra and transforms."""
    yield from declare(_FFT, flops=formulas.fft)
    yield from declare(_FACTORISATIONS, flops=formulas.cubic)
    yield from declare(_EXPONENTIALS, Trait.DATA_SIZED, flops=formulas.cubic)
    yield from declare(_DISTANCE, Trait.CONTRACTION, flops=formulas.distances)
    yield from declare(_DISTANCE_BACKWARD, Trait.CONTRACTION, flops=formulas.distances_backward)
