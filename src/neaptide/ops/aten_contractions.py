"""ATen matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops import formulas
from neaptide.ops.table import declare

_LEFT_FIRST = """
    mm.default,dtype,dtype_out,out bmm.default,dtype,dtype_out,out mv.default,out dot.default,out
    vdot.default,out _int_mm.default,out _scaled_mm.default,out
"""
_WITH_ADDEND = """
    addmm.default,dtype,dtype_out,out addmm_.default addmv.default,out addmv_.default addbmm.default,out
    addbmm_.default baddbmm.default,dtype,dtype_out,out baddbmm_.default _addmm_activation.default,out
"""
_OUTER = """
    addr.default,out addr_.default outer.default,out ger.default,out
"""
_GROUPED = """
    _grouped_mm.default
"""
_LISTS = """
    _foreach_mm.default
"""
_LINEAR = """
    linear.default,out mkldnn_linear.default,out
"""
_LINEAR_BACKWARD = """
    linear_backward.default,out=out0+out1+out2
"""
_TRILINEAR = """
    _trilinear.default,out
"""
_CONVOLUTION = """
    convolution.default,out _convolution.default,deprecated,out convolution_overrideable.default,out
"""
# Convolutions that are never transposed. Weight at position 1.
_PLAIN_CONVOLUTION = """
    cudnn_convolution.default,out mkldnn_convolution.default,out _conv_depthwise2d.default,out
    conv_depthwise3d.default,out slow_conv_dilated2d.default,out slow_conv_dilated3d.default,out
    _slow_conv2d_forward.default,output=output slow_conv3d_forward.default,output=output
    conv1d.default,padding conv2d.default,padding conv3d.default,padding miopen_convolution.default,out
    miopen_depthwise_convolution.default,out cudnn_convolution_relu.default,out
    cudnn_convolution_add_relu.default,out _nnpack_spatial_convolution.default,out
"""
_TRANSPOSED_CONVOLUTION = """
    cudnn_convolution_transpose.default,out miopen_convolution_transpose.default,out
    slow_conv_transpose2d.default,out slow_conv_transpose3d.default,out conv_transpose1d.default
    conv_transpose2d.input conv_transpose3d.input
"""
_CONVOLUTION_BACKWARD = """
    convolution_backward.default,out=out0+out1+out2
    convolution_backward_overrideable.default,out=out0+out1+out2
"""
# Both sides may broadcast, so the result tells how many dot products there are.
_BROADCASTING = """
    matmul.default,out inner.default,out
"""
# How long the dot products are is in an equation or in lists of axes: the result alone is counted.
_EINSUM = """
    einsum.default bilinear.default tensordot.default,out
"""


def rows() -> Iterator[OpSpec]:
    """Dense and grouped products, convolutions and their gradients."""
    product = Trait.CONTRACTION
    yield from declare(_LEFT_FIRST, product, flops=formulas.matmul(0, 1))
    yield from declare(_BROADCASTING, product, flops=formulas.dot_products)
    yield from declare(_WITH_ADDEND, product, flops=formulas.matmul(1, 2))
    yield from declare(_OUTER, product, flops=formulas.outer_product)
    yield from declare(_GROUPED, product, flops=formulas.grouped_matmul)
    yield from declare(_LISTS, product, flops=formulas.list_matmul)
    yield from declare(_LINEAR, product, flops=formulas.linear())
    yield from declare(_LINEAR_BACKWARD, product, flops=formulas.linear_backward)
    yield from declare(_TRILINEAR, product, flops=formulas.trilinear)
    yield from declare(_EINSUM, product, flops=formulas.per_output(2))
    yield from declare(_CONVOLUTION, Trait.CONVOLUTION, flops=formulas.convolution())
    yield from declare(_PLAIN_CONVOLUTION, Trait.CONVOLUTION, flops=formulas.convolution(transposed_at=None))
    yield from declare(_TRANSPOSED_CONVOLUTION, Trait.CONVOLUTION, flops=formulas.transposed_convolution)
    # cuDNN may pick algorithms that add with atomics.
    yield from declare(
        _CONVOLUTION_BACKWARD, Trait.CONVOLUTION, flops=formulas.convolution_backward, deterministic=False
    )
