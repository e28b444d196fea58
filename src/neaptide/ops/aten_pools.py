"""ATen pooling, upsampling and grid sampling."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.formulas import per_input, per_output, window
from neaptide.ops.table import declare

_WINDOW = """
    avg_pool1d.default,out avg_pool2d.default,out avg_pool3d.default,out max_pool1d.default
    max_pool2d.default max_pool3d.default max_pool1d_with_indices.default
    max_pool2d_with_indices.default,out=out+indices max_pool3d_with_indices.default,out=out+indices
    fractional_max_pool2d.default,output=output+indices
    fractional_max_pool3d.default,output=output+indices mkldnn_max_pool2d.default,out
    mkldnn_max_pool3d.default,out
"""
_ADAPTIVE = """
    adaptive_avg_pool1d.default,out adaptive_avg_pool2d.default,out adaptive_avg_pool3d.default,out
    _adaptive_avg_pool2d.default,out _adaptive_avg_pool3d.default,out adaptive_max_pool1d.default
    adaptive_max_pool2d.default,out=out+indices adaptive_max_pool3d.default,out=out+indices
    mkldnn_adaptive_avg_pool2d.default,out
"""
# Overlapping windows and duplicated sources are added with atomics on CUDA.
_BACKWARD = """
    avg_pool2d_backward.default,grad_input=grad_input avg_pool3d_backward.default,grad_input=grad_input
    max_pool2d_with_indices_backward.default,grad_input=grad_input
    max_pool3d_with_indices_backward.default,grad_input=grad_input
    fractional_max_pool2d_backward.default,grad_input=grad_input
    fractional_max_pool3d_backward.default,grad_input=grad_input _adaptive_avg_pool2d_backward.default,out
    _adaptive_avg_pool3d_backward.default,out adaptive_avg_pool3d_backward.grad_input=grad_input
    adaptive_max_pool2d_backward.default,grad_input=grad_input
    adaptive_max_pool3d_backward.default,grad_input=grad_input
    mkldnn_adaptive_avg_pool2d_backward.default,out max_pool2d_backward.default,out
    mkldnn_max_pool2d_backward.default,out mkldnn_max_pool3d_backward.default,out
"""
_UNPOOL = """
    max_unpool2d.default,out max_unpool3d.default,out
"""
_NEAREST = """
    upsample_nearest1d.default,out,vec upsample_nearest2d.default,out,vec,vec_out
    upsample_nearest3d.default,out,vec _upsample_nearest_exact1d.default,out,vec
    _upsample_nearest_exact2d.default,out,vec _upsample_nearest_exact3d.default,out,vec
"""
_INTERPOLATION = """
    upsample_linear1d.default,out,vec upsample_bilinear2d.default,out,vec,vec_out
    upsample_trilinear3d.default,out,vec upsample_bicubic2d.default,out,vec
    _upsample_bilinear2d_aa.default,out,vec _upsample_bicubic2d_aa.default,out,vec
    _upsample_lanczos2d_aa.default,out,vec
"""
_UPSAMPLE_BACKWARD = """
    upsample_nearest1d_backward.default,grad_input=grad_input
    upsample_nearest2d_backward.default,grad_input=grad_input
    upsample_nearest3d_backward.default,grad_input=grad_input
    _upsample_nearest_exact1d_backward.default,grad_input=grad_input
    _upsample_nearest_exact2d_backward.default,grad_input=grad_input
    _upsample_nearest_exact3d_backward.default,grad_input=grad_input
    upsample_linear1d_backward.default,grad_input=grad_input
    upsample_bilinear2d_backward.default,grad_input=grad_input
    upsample_trilinear3d_backward.default,grad_input=grad_input
    upsample_bicubic2d_backward.default,grad_input=grad_input
    _upsample_bilinear2d_aa_backward.default,grad_input=grad_input
    _upsample_bicubic2d_aa_backward.default,grad_input=grad_input
    _upsample_lanczos2d_aa_backward.default,grad_input=grad_input
"""
_GRID = """
    grid_sampler_2d.default,out grid_sampler_3d.default,out grid_sampler.default
    affine_grid_generator.default,out _grid_sampler_2d_cpu_fallback.default,out
"""
_GRID_BACKWARD = """
    grid_sampler_2d_backward.default,out=out0+out1 grid_sampler_3d_backward.default,out=out0+out1
    _grid_sampler_2d_cpu_fallback_backward.default
"""


def rows() -> Iterator[OpSpec]:
    """Pools, resampling and their gradients."""
    pool = Trait.POOLING
    yield from declare(_WINDOW, pool, flops=window())
    yield from declare(_ADAPTIVE, pool, flops=per_input(1))
    yield from declare(_BACKWARD, pool, flops=per_input(2), deterministic=False)
    yield from declare(_UNPOOL, pool, deterministic=False)
    yield from declare(_NEAREST, pool)
    yield from declare(_INTERPOLATION, pool, flops=per_output(12))
    yield from declare(_UPSAMPLE_BACKWARD, pool, flops=per_input(12), deterministic=False)
    yield from declare(_GRID, pool, flops=per_output(12))
    yield from declare(_GRID_BACKWARD, pool, flops=per_input(24), deterministic=False)
