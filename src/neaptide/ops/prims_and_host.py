"""Rows of `prims` (PyTorch's primitive ops), of `mkldnn` (oneDNN with fused epilogues), and of what talks to the host."""

from __future__ import annotations

from functools import partial
from typing import Final

from neaptide.ir.registry import Trait, no_bytes
from neaptide.ops.byte_sizes import output_traffic
from neaptide.ops.formulas import convolution, fft, linear, per_input, per_output
from neaptide.ops.table import meaning

_prims: Final = partial(meaning, namespace="prims")
_mkldnn: Final = partial(meaning, namespace="mkldnn")

ROWS: Final = (
    *_prims(Trait.ELEMENTWISE, flops=per_output(1))("""
        abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceil conj_physical div eq floor fmax fmin fmod
        gcd ge gt isfinite le lt maximum minimum mul ne neg nextafter reciprocal remainder round shift_left
        shift_right_arithmetic sign signbit sqrt sub trunc where
    """),
    *_prims(Trait.ELEMENTWISE, flops=per_output(10))("""
        acos acosh asin asinh atan atan2 atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1
        cbrt cos cosh digamma erf erf_inv erfc erfcx exp exp2 expm1 hypot igamma igammac lgamma log log10
        log1p log2 ndtri pow rsqrt sin sinh spherical_bessel_j0 tan tanh zeta
    """),
    *_prims(Trait.COPY, Trait.ELEMENTWISE)("convert_element_type clone device_put"),
    *_prims(Trait.COPY)("cat reshape rev collapse"),
    *_prims(Trait.VIEW, bytes_moved=no_bytes)("""
        as_strided broadcast_in_dim collapse_view split_dim squeeze transpose view_of view_of_dtype real imag
        conj
    """),
    *_prims(Trait.REDUCTION, flops=per_input(1))("""
        amax amin prod sum var xor_sum
    """),
    *_prims(Trait.FACTORY, bytes_moved=output_traffic)("""
        empty empty_permuted empty_strided full iota scalar_tensor
    """),
    *_prims(Trait.FACTORY, shape_only=(0,), bytes_moved=output_traffic)("full_like"),
    *_prims(Trait.FACTORY, rng=True, flops=per_output(10), bytes_moved=output_traffic)("""
        normal
    """),
    *_prims(Trait.FACTORY, rng=True, bytes_moved=output_traffic)("uniform"),
    *_prims(flops=fft)("fft_c2c fft_c2r fft_r2c"),
    *_prims(Trait.COPY, writes=(0,))("copy_to"),
    *_prims(Trait.HOST_SCALAR, host=True)("item"),
    *_mkldnn(Trait.CONVOLUTION, flops=convolution(transposed_at=None))("""
        _convolution_pointwise
    """),
    *_mkldnn(Trait.CONTRACTION, flops=linear())("_linear_pointwise"),
    # With another operand to add or multiply, which stands before the weight.
    *_mkldnn(Trait.CONVOLUTION, flops=convolution(transposed_at=None, weight=2))("""
        _convolution_pointwise.binary _convolution_pointwise_.binary
    """),
    *_mkldnn(Trait.CONTRACTION, flops=linear(weight=2))("""
        _linear_pointwise.binary
    """),
    *meaning(Trait.HOST_SCALAR, host=True)("_local_scalar_dense item is_nonzero equal allclose"),
    # The size of the result depends on the data.
    *meaning(host=True)("""
        nonzero nonzero_numpy argwhere masked_select _unique _unique2 unique_dim unique_consecutive
        unique_dim_consecutive bincount repeat_interleave.Tensor
    """),
    *meaning()("nonzero_static"),
    *meaning(host=True, bytes_moved=no_bytes)("""
        _assert_async,msg _assert_scalar _functional_assert_async.msg _functional_assert_scalar
        sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range
        _functional_sym_constrain_range_for_size _print _linalg_check_errors
    """),
    *meaning(Trait.HOST_SCALAR, shape_only=(0,), bytes_moved=no_bytes)("""
        size,int sym_size.int sym_stride.int sym_numel sym_storage_offset sym_is_contiguous stride.int numel
        storage_offset dim is_contiguous,memory_format is_floating_point is_complex is_same_size
        _assert_tensor_metadata _fused_sdp_choice
    """),
)
