"""Rows of the namespaces `prims` (PyTorch's primitive ops) and `mkldnn` (oneDNN with fused epilogues)."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait, no_bytes
from neaptide.ops import formulas
from neaptide.ops.table import declare
from neaptide.ops.traffic import output_traffic

_ARITHMETIC = """
    abs.default add.default bitwise_and.default bitwise_not.default bitwise_or.default bitwise_xor.default
    ceil.default conj_physical.default div.default eq.default floor.default fmax.default fmin.default
    fmod.default gcd.default ge.default gt.default isfinite.default le.default lt.default maximum.default
    minimum.default mul.default ne.default neg.default nextafter.default reciprocal.default
    remainder.default round.default shift_left.default shift_right_arithmetic.default sign.default
    signbit.default sqrt.default sub.default trunc.default where.default
"""
_TRANSCENDENTAL = """
    acos.default acosh.default asin.default asinh.default atan.default atan2.default atanh.default
    bessel_i0.default bessel_i0e.default bessel_i1.default bessel_i1e.default bessel_j0.default
    bessel_j1.default cbrt.default cos.default cosh.default digamma.default erf.default erf_inv.default
    erfc.default erfcx.default exp.default exp2.default expm1.default hypot.default igamma.default
    igammac.default lgamma.default log.default log10.default log1p.default log2.default ndtri.default
    pow.default rsqrt.default sin.default sinh.default spherical_bessel_j0.default tan.default
    tanh.default zeta.default
"""
_CASTS = """
    convert_element_type.default clone.default device_put.default
"""
_COPIES = """
    cat.default reshape.default rev.default collapse.default
"""
_VIEWS = """
    as_strided.default broadcast_in_dim.default collapse_view.default split_dim.default squeeze.default
    transpose.default view_of.default view_of_dtype.default real.default imag.default conj.default
"""
_REDUCTIONS = """
    amax.default amin.default prod.default sum.default var.default xor_sum.default
"""
_FACTORIES = """
    empty.default empty_permuted.default empty_strided.default full.default iota.default
    scalar_tensor.default
"""
_LIKE = """
    full_like.default
"""
_RANDOM = """
    normal.default
"""
_RANDOM_SCALED = """
    uniform.default
"""
_FFT = """
    fft_c2c.default fft_c2r.default fft_r2c.default
"""
_POINTWISE_CONVOLUTION = """
    _convolution_pointwise.default
"""
_POINTWISE_LINEAR = """
    _linear_pointwise.default
"""


def rows() -> Iterator[OpSpec]:
    """Primitive ops and fused oneDNN ops."""
    elementwise = Trait.ELEMENTWISE
    yield from declare(_ARITHMETIC, elementwise, namespace="prims", flops=formulas.per_output(1))
    yield from declare(_TRANSCENDENTAL, elementwise, namespace="prims", flops=formulas.per_output(10))
    yield from declare(_CASTS, Trait.COPY, elementwise, namespace="prims")
    yield from declare(_COPIES, Trait.COPY, namespace="prims")
    yield from declare(_VIEWS, Trait.VIEW, namespace="prims", bytes_moved=no_bytes)
    yield from declare(_REDUCTIONS, Trait.REDUCTION, namespace="prims", flops=formulas.per_input(1))
    yield from declare(_FACTORIES, Trait.FACTORY, namespace="prims", bytes_moved=output_traffic)
    yield from declare(_LIKE, Trait.FACTORY, namespace="prims", shape_only=(0,), bytes_moved=output_traffic)
    yield from declare(
        _RANDOM,
        Trait.FACTORY,
        namespace="prims",
        rng=True,
        flops=formulas.per_output(10),
        bytes_moved=output_traffic,
    )
    yield from declare(_RANDOM_SCALED, Trait.FACTORY, namespace="prims", rng=True, bytes_moved=output_traffic)
    yield from declare(_FFT, namespace="prims", flops=formulas.fft)
    yield from declare("copy_to.default", Trait.COPY, namespace="prims", writes=(0,))
    yield from declare("item.default", Trait.HOST_SCALAR, namespace="prims", host=True)
    yield from declare(
        _POINTWISE_CONVOLUTION,
        Trait.CONVOLUTION,
        namespace="mkldnn",
        flops=formulas.convolution(transposed_at=None),
    )
    yield from declare(_POINTWISE_LINEAR, Trait.CONTRACTION, namespace="mkldnn", flops=formulas.linear())
    # With another operand to add or multiply, which stands before the weight.
    yield from declare(
        "_convolution_pointwise.binary _convolution_pointwise_.binary",
        Trait.CONVOLUTION,
        namespace="mkldnn",
        flops=formulas.convolution(transposed_at=None, weight=2),
    )
    yield from declare(
        "_linear_pointwise.binary", Trait.CONTRACTION, namespace="mkldnn", flops=formulas.linear(weight=2)
    )
