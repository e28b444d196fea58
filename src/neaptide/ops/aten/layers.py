"""ATen matrix products, convolutions, attention, recurrent layers, pools, resampling and dense algebra."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops import formulas
from neaptide.ops.effects import (
    advanced_dropout_state,
    probability_positive,
    tensors_present,
    training_dropout,
)
from neaptide.ops.table import meaning


def _attention(dropout: int, names: str, *, batch_first: bool = False) -> tuple[OpSpec, ...]:
    """Fused attention with the chance of dropout at a position; `batch_first` operands are (b, s, h, d)."""
    cost = formulas.attention(batch_first)
    return meaning(Trait.ATTENTION, rng=True, rng_if=probability_positive(dropout), flops=cost)(names)


def _layer_with_state(state: int, name: str) -> tuple[OpSpec, ...]:
    """A layer that, in training with dropout, advances the generator in the tensor argument at a position."""
    probability, train = state - 4, state - 3
    return meaning(
        Trait.RECURRENT,
        writes_if=advanced_dropout_state(probability, train, state),
        rng=True,
        rng_if=training_dropout(probability, train),
        flops=formulas.rnn_layer(1, (1,)),
        deterministic=False,
    )(name)


ROWS: Final = (
    *meaning(Trait.CONTRACTION, flops=formulas.matmul(0, 1))("""
        mm,dtype,dtype_out,out bmm,dtype,dtype_out,out mv,out dot,out vdot,out _int_mm,out _scaled_mm,out
    """),
    # Both sides may broadcast, so the result tells how many dot products there are.
    *meaning(Trait.CONTRACTION, flops=formulas.dot_products)("matmul,out inner,out"),
    *meaning(Trait.CONTRACTION, flops=formulas.matmul(1, 2))("""
        addmm,dtype,dtype_out,out addmm_ addmv~ addbmm~ baddbmm,dtype,dtype_out,out baddbmm_
        _addmm_activation,out
    """),
    *meaning(Trait.CONTRACTION, flops=formulas.outer_product)("addr~ outer,out ger,out"),
    *meaning(Trait.CONTRACTION, flops=formulas.grouped_matmul)("_grouped_mm"),
    *meaning(Trait.CONTRACTION, flops=formulas.list_matmul)("_foreach_mm"),
    *meaning(Trait.CONTRACTION, flops=formulas.linear)("linear,out mkldnn_linear,out"),
    *meaning(Trait.CONTRACTION, flops=formulas.linear_backward)("linear_backward,out=out0+out1+out2"),
    *meaning(Trait.CONTRACTION, flops=formulas.trilinear)("_trilinear,out"),
    # How long the dot products are is in an equation or in lists of axes: the result alone is counted.
    *meaning(Trait.CONTRACTION, flops=formulas.per_output(2))("einsum bilinear tensordot,out"),
    *meaning(Trait.CONVOLUTION, flops=formulas.convolution())("""
        convolution,out _convolution,deprecated,out convolution_overrideable,out
    """),
    # Convolutions that are never transposed. Weight at position 1.
    *meaning(Trait.CONVOLUTION, flops=formulas.convolution(transposed_at=None))("""
        cudnn_convolution,out mkldnn_convolution,out _conv_depthwise2d,out conv_depthwise3d,out
        slow_conv_dilated2d,out slow_conv_dilated3d,out _slow_conv2d_forward,output=output
        slow_conv3d_forward,output=output conv1d,padding conv2d,padding conv3d,padding miopen_convolution,out
        miopen_depthwise_convolution,out cudnn_convolution_relu,out cudnn_convolution_add_relu,out
        _nnpack_spatial_convolution,out
    """),
    *meaning(Trait.CONVOLUTION, flops=formulas.transposed_convolution)("""
        cudnn_convolution_transpose,out miopen_convolution_transpose,out slow_conv_transpose2d,out
        slow_conv_transpose3d,out conv_transpose1d conv_transpose2d.input conv_transpose3d.input
    """),
    # cuDNN may pick algorithms that add with atomics.
    *meaning(Trait.CONVOLUTION, flops=formulas.convolution_backward, deterministic=False)("""
        convolution_backward,out=out0+out1+out2 convolution_backward_overrideable,out=out0+out1+out2
    """),
    *_attention(3, "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu"),
    *_attention(5, "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"),
    *_attention(4, "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math"),
    *_attention(4, "scaled_dot_product_attention"),
    *_attention(7, "_flash_attention_forward", batch_first=True),
    *_attention(8, "_efficient_attention_forward", batch_first=True),
    *_attention(9, "_cudnn_attention_forward"),
    *meaning(Trait.ATTENTION, flops=formulas.attention(backward=True))("""
        _scaled_dot_product_flash_attention_for_cpu_backward
        _scaled_dot_product_fused_attention_overrideable_backward
    """),
    # Gradients of query and key are added up with atomics on CUDA. They repeat the dropout mask from the seed that the
    # forward pass handed on, so they draw nothing, whatever their tags say.
    *meaning(Trait.ATTENTION, flops=formulas.attention(backward=True), deterministic=False)("""
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_cudnn_attention_backward _cudnn_attention_backward
    """),
    *meaning(
        Trait.ATTENTION, flops=formulas.attention(batch_first=True, backward=True), deterministic=False
    )("""
        _flash_attention_backward _efficient_attention_backward
    """),
    # The size of the workspace that it returns is oneDNN's secret: the shape that its meta kernel reports is empty,
    # and only an audit on real tensors knows it.
    *meaning(Trait.RECURRENT, flops=formulas.rnn_layer(1, (1, 2)))("mkldnn_rnn_layer"),
    # The backward pass scribbles on that workspace. Run again it gave the same gradients, but nothing promises it.
    *meaning(Trait.RECURRENT, writes_if=tensors_present(22), flops=formulas.rnn_layer(2, (1, 2)))("""
        mkldnn_rnn_layer_backward
    """),
    *_layer_with_state(15, "_cudnn_rnn"),
    *_layer_with_state(13, "miopen_rnn"),
    *meaning(Trait.RECURRENT, flops=formulas.rnn_layer(2, (1,)), deterministic=False)("""
        _cudnn_rnn_backward miopen_rnn_backward
    """),
    *meaning(Trait.COPY)("_cudnn_rnn_flatten_weight"),
    *meaning(Trait.RECURRENT, flops=formulas.per_input(10))("""
        _thnn_fused_lstm_cell,out=out0+out1+out2 _thnn_fused_gru_cell,out=out0+out1
    """),
    *meaning(Trait.RECURRENT, flops=formulas.per_input(10, 4))(
        "_thnn_fused_lstm_cell_backward_impl,out=out0+out1+out2"
    ),
    *meaning(Trait.RECURRENT, flops=formulas.per_input(10, 1))(
        "_thnn_fused_gru_cell_backward,out=out0+out1+out2+out3+out4"
    ),
    *meaning(Trait.POOLING, flops=formulas.window)("""
        avg_pool1d,out avg_pool2d,out avg_pool3d,out max_pool1d max_pool2d max_pool3d max_pool1d_with_indices
        max_pool2d_with_indices,out=out+indices max_pool3d_with_indices,out=out+indices
        fractional_max_pool2d,output=output+indices fractional_max_pool3d,output=output+indices
        mkldnn_max_pool2d,out mkldnn_max_pool3d,out
    """),
    *meaning(Trait.POOLING, flops=formulas.per_input(1))("""
        adaptive_avg_pool1d,out adaptive_avg_pool2d,out adaptive_avg_pool3d,out _adaptive_avg_pool2d,out
        _adaptive_avg_pool3d,out adaptive_max_pool1d adaptive_max_pool2d,out=out+indices
        adaptive_max_pool3d,out=out+indices mkldnn_adaptive_avg_pool2d,out
    """),
    # Overlapping windows and duplicated sources are added with atomics on CUDA.
    *meaning(Trait.POOLING, flops=formulas.per_input(2), deterministic=False)("""
        avg_pool2d_backward,grad_input avg_pool3d_backward,grad_input
        max_pool2d_with_indices_backward,grad_input max_pool3d_with_indices_backward,grad_input
        fractional_max_pool2d_backward,grad_input fractional_max_pool3d_backward,grad_input
        _adaptive_avg_pool2d_backward,out _adaptive_avg_pool3d_backward,out
        adaptive_avg_pool3d_backward.grad_input adaptive_max_pool2d_backward,grad_input
        adaptive_max_pool3d_backward,grad_input mkldnn_adaptive_avg_pool2d_backward,out
        max_pool2d_backward,out mkldnn_max_pool2d_backward,out mkldnn_max_pool3d_backward,out
    """),
    *meaning(Trait.POOLING, deterministic=False)("max_unpool2d,out max_unpool3d,out"),
    *meaning(Trait.POOLING)("""
        upsample_nearest1d,out,vec upsample_nearest2d,out,vec,vec_out upsample_nearest3d,out,vec
        _upsample_nearest_exact1d,out,vec _upsample_nearest_exact2d,out,vec _upsample_nearest_exact3d,out,vec
    """),
    *meaning(Trait.POOLING, flops=formulas.per_output(12))("""
        upsample_linear1d,out,vec upsample_bilinear2d,out,vec,vec_out upsample_trilinear3d,out,vec
        upsample_bicubic2d,out,vec _upsample_bilinear2d_aa,out,vec _upsample_bicubic2d_aa,out,vec
        _upsample_lanczos2d_aa,out,vec
    """),
    *meaning(Trait.POOLING, flops=formulas.per_input(12), deterministic=False)("""
        upsample_nearest1d_backward,grad_input upsample_nearest2d_backward,grad_input
        upsample_nearest3d_backward,grad_input _upsample_nearest_exact1d_backward,grad_input
        _upsample_nearest_exact2d_backward,grad_input _upsample_nearest_exact3d_backward,grad_input
        upsample_linear1d_backward,grad_input upsample_bilinear2d_backward,grad_input
        upsample_trilinear3d_backward,grad_input upsample_bicubic2d_backward,grad_input
        _upsample_bilinear2d_aa_backward,grad_input _upsample_bicubic2d_aa_backward,grad_input
        _upsample_lanczos2d_aa_backward,grad_input
    """),
    *meaning(Trait.POOLING, flops=formulas.per_output(12))("""
        grid_sampler_2d,out grid_sampler_3d,out grid_sampler affine_grid_generator,out
        _grid_sampler_2d_cpu_fallback,out
    """),
    *meaning(Trait.POOLING, flops=formulas.per_input(24), deterministic=False)("""
        grid_sampler_2d_backward,out=out0+out1 grid_sampler_3d_backward,out=out0+out1
        _grid_sampler_2d_cpu_fallback_backward
    """),
    *meaning(flops=formulas.fft)("_fft_c2c,out _fft_c2r,out _fft_r2c,out"),
    *meaning(flops=formulas.cubic)("""
        linalg_inv_ex,inverse=inverse+info linalg_inv,out linalg_cholesky_ex,L=L+info linalg_cholesky,out
        linalg_lu_factor_ex,out=LU+pivots+info linalg_lu,out=P+L+U linalg_qr,out=Q+R _linalg_svd,U=U+S+Vh
        _linalg_eigh,eigenvalues=eigenvalues+eigenvectors linalg_eig,out=eigenvalues+eigenvectors
        _linalg_det,result=result+LU+pivots _linalg_slogdet,sign=sign+logabsdet+LU+pivots
        _linalg_solve_ex,result=result+LU+pivots+info linalg_solve_triangular,out linalg_lu_solve,out
        triangular_solve,X=X+M cholesky,out cholesky_inverse,out cholesky_solve,out
        linalg_householder_product,out linalg_ldl_factor_ex,out=LD+pivots+info
        linalg_pinv,atol_rtol_float,atol_rtol_float_out,atol_rtol_tensor,atol_rtol_tensor_out,out,out_rcond_tensor=out,rcond_tensor
        linalg_cross,out lu_unpack,out=P+L+U
    """),
    # The degree of the Taylor polynomial follows from the norm (Bader, Blanes, Casas 2019).
    *meaning(Trait.DATA_SIZED, flops=formulas.cubic)("linalg_matrix_exp,out"),
    *meaning(Trait.CONTRACTION, flops=formulas.distances)("""
        _cdist_forward,out _euclidean_dist,out _pdist_forward,out
    """),
    *meaning(Trait.CONTRACTION, flops=formulas.distances_backward)("_cdist_backward,out"),
)
