"""ATen ops that compute nothing: views, copies, factories and random numbers, gathers and scatters."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import Trait, no_bytes, tensor_traffic
from neaptide.ops.byte_sizes import (
    bag_of_each_index,
    columns,
    gather_traffic,
    output_traffic,
    overwrite_traffic,
    scatter_in_place_traffic,
)
from neaptide.ops.formulas import per_input, per_output
from neaptide.ops.table import meaning

# A counter-based generator spends about ten integer operations on a number.
_DRAW: Final = per_output(10)

ROWS: Final = (
    # `reshape`, `contiguous` and a few like them copy when they must: storages tell, not names.
    *meaning(Trait.VIEW, bytes_moved=no_bytes)("""
        alias as_strided detach diagonal expand lift_fresh permute real imag select.int slice.Tensor
        split.Tensor,sizes split_with_sizes squeeze,dim,dims t transpose.int unbind.int unfold unsqueeze
        view,dtype view_as_complex view_as_real _conj _neg_view adjoint mH mT matrix_H numpy_T
        movedim.int,intlist moveaxis.int,intlist swapaxes swapdims narrow,Tensor flatten.using_ints
        unflatten.int broadcast_to chunk tensor_split.indices,sections,tensor_indices_or_sections
        hsplit.array,int vsplit.array,int dsplit.array,int unsafe_chunk _fw_primal _reshape_alias
        slice_inverse ravel atleast_1d,Sequence atleast_2d,Sequence atleast_3d,Sequence reshape contiguous
        conj positive indices values data lift broadcast_tensors meshgrid,indexing resolve_conj resolve_neg
    """),
    # The other operand lends its shape only.
    *meaning(Trait.VIEW, shape_only=(1,), bytes_moved=no_bytes)("expand_as view_as reshape_as"),
    # The result may not be changed in place, so the schema marks no alias; the bytes are the operand's all the same.
    *meaning(Trait.VIEW, bytes_moved=no_bytes)("_unsafe_view unsafe_split.Tensor unsafe_split_with_sizes"),
    # They change the operand's own shape and strides and no byte. Everyone who holds the tensor sees the new shape, so
    # they are ordered like writes.
    *meaning(Trait.VIEW, bytes_moved=no_bytes)("""
        as_strided_ detach_ squeeze_,dim,dims swapaxes_ swapdims_ t_ transpose_ unsqueeze_ requires_grad_
    """),
    # Element by element as well: a cast may sink through arithmetic.
    *meaning(Trait.COPY, Trait.ELEMENTWISE)("""
        _to_copy clone lift_fresh_copy to.device,dtype,dtype_layout,other type_as _cast_Float _cast_Double
        _cast_Half _cast_Long _cast_Int _pin_memory pin_memory copy detach_copy alias_copy
    """),
    *meaning(Trait.COPY, Trait.ELEMENTWISE, bytes_moved=overwrite_traffic)("copy_"),
    *meaning(Trait.COPY)("""
        cat,out stack,out _stack,out concat,out concatenate,out hstack,out vstack,out dstack,out
        column_stack,out row_stack,out block_diag,out _chunk_cat,out pad_sequence
    """),
    *meaning(Trait.COPY)("""
        flip,out fliplr flipud roll,out rot90,out repeat,out tile repeat_interleave.self_Tensor,self_int
        channel_shuffle,out native_channel_shuffle pixel_shuffle,out pixel_unshuffle,out constant_pad_nd,out
        pad _pad_circular _pad_enum reflection_pad1d,out reflection_pad2d,out reflection_pad3d,out
        replication_pad1d,out replication_pad2d,out replication_pad3d,out tril^,out triu^,out diag_embed,out
        diag,out diagflat view_copy,dtype,dtype_out,out expand_copy,out permute_copy,out
        transpose_copy.int,int_out t_copy,out slice_copy.Tensor,Tensor_out select_copy.int,int_out
        squeeze_copy,dim,dim_out,dims,dims_out,out unsqueeze_copy,out split_copy.Tensor,Tensor_out
        split_with_sizes_copy,out unbind_copy.int,int_out diagonal_copy,out as_strided_copy,out
        unfold_copy,out _reshape_copy narrow_copy,out view_as_real_copy,out view_as_complex_copy,out
        slice_scatter,out select_scatter,out diagonal_scatter,out as_strided_scatter,out slice_backward,out
        select_backward,out diagonal_backward,out kron,out to_padded_tensor,out cartesian_prod combinations
    """),
    *meaning(Trait.COPY)("tril_ triu_ fill_diagonal_"),
    # Their CPU and CUDA kernels add overlapping windows.
    *meaning(flops=per_output(1), deterministic=False)("""
        unfold_backward,out reflection_pad1d_backward,grad_input reflection_pad2d_backward,grad_input
        reflection_pad3d_backward,grad_input replication_pad1d_backward,grad_input
        replication_pad2d_backward,grad_input replication_pad3d_backward,grad_input
    """),
    *meaning(Trait.COPY, flops=per_output(1), storage_bytes=columns)("im2col col2im"),
    *meaning(Trait.COPY, flops=per_output(1))("im2col.out col2im.out"),
    *meaning(Trait.FACTORY, bytes_moved=no_bytes)("""
        empty.memory_format empty_strided empty_permuted _efficientzerotensor
    """),
    *meaning(Trait.FACTORY, shape_only=(0,), bytes_moved=no_bytes)("""
        empty_like new_empty new_empty_strided _new_zeros_with_same_feature_meta
    """),
    *meaning(Trait.FACTORY, bytes_moved=output_traffic)("""
        zeros,out ones,out full,out arange,out,start,start_out,start_step range,out,out_=out,step
        linspace,Scalar_Tensor,Scalar_Tensor_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out,out
        logspace,Scalar_Tensor,Scalar_Tensor_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out,out
        eye,m,m_out,out scalar_tensor,out tril_indices,out triu_indices,out
        bartlett_window,out,periodic,periodic_out blackman_window,out,periodic,periodic_out
        hamming_window,out,periodic,periodic_alpha,periodic_alpha_beta,periodic_alpha_beta_out,periodic_alpha_out,periodic_out
        hann_window,out,periodic,periodic_out kaiser_window,beta,beta_out,out,periodic,periodic_out
        fft_fftfreq,out fft_rfftfreq,out
    """),
    # The generators' states follow from the seed, an argument; the layers that read them advance them.
    *meaning(Trait.FACTORY, bytes_moved=output_traffic)("_cudnn_init_dropout_state,out"),
    *meaning(Trait.FACTORY, shape_only=(0,), bytes_moved=output_traffic)("""
        zeros_like ones_like full_like new_zeros new_ones new_full
    """),
    *meaning(Trait.FACTORY, shape_only=(0,), bytes_moved=output_traffic)("zero fill.Scalar,Tensor"),
    # They do not need the old contents, but are not `shape_only`: the operand may be a part of a storage whose other
    # bytes stay.
    *meaning(Trait.ELEMENTWISE, bytes_moved=overwrite_traffic)("zero_ fill_.Scalar,Tensor"),
    *meaning(flops=per_output(1))("one_hot"),
    *meaning(Trait.FACTORY, rng=True, flops=_DRAW, bytes_moved=output_traffic)("""
        rand,generator,generator_out,out randn,generator,generator_out,out
        randint,generator,generator_out,low,low_generator,low_generator_out,low_out,out
        randperm,generator,generator_out,out normal.float_float,float_float_out
    """),
    *meaning(Trait.FACTORY, rng=True, shape_only=(0,), flops=_DRAW, bytes_moved=output_traffic)("""
        rand_like,generator randn_like,generator
        randint_like,Tensor,Tensor_generator,generator,low_dtype,low_generator_dtype bernoulli.p cauchy
        exponential geometric log_normal random,from,to uniform normal_functional
    """),
    # The operand holds probabilities, rates or means.
    *meaning(rng=True, flops=_DRAW)("""
        bernoulli,Tensor poisson binomial normal.Tensor_Tensor,Tensor_float,float_Tensor multinomial
        _standard_gamma _sample_dirichlet
    """),
    *meaning(Trait.ELEMENTWISE, rng=True, flops=_DRAW, bytes_moved=overwrite_traffic)("""
        bernoulli_.Tensor,float cauchy_ exponential_ geometric_ log_normal_ normal_ random_,from,to uniform_
    """),
    *meaning(Trait.GATHER, bytes_moved=gather_traffic)("""
        embedding,out index.Tensor _unsafe_index.Tensor _unsafe_masked_index index_select,out gather,out
        take,out take_along_dim,out
    """),
    *meaning(Trait.GATHER, Trait.REDUCTION, flops=per_output(1), bytes_moved=gather_traffic)("""
        _embedding_bag.out=out0+out1+out2+out3 _embedding_bag_forward_only.out=out0+out1+out2+out3
        embedding_bag,padding_idx
    """),
    *meaning(
        Trait.GATHER,
        Trait.REDUCTION,
        flops=per_output(1),
        bytes_moved=gather_traffic,
        storage_bytes=bag_of_each_index,
    )("""
        _embedding_bag _embedding_bag_forward_only
    """),
    *meaning(flops=per_input(1), bytes_moved=tensor_traffic, deterministic=False)("""
        embedding_dense_backward,out embedding_backward _embedding_bag_backward
        _embedding_bag_dense_backward,out _embedding_bag_per_sample_weights_backward,out
        _unsafe_masked_index_put_accumulate index_select_backward gather_backward
    """),
    # A copy of the whole tensor with some elements replaced.
    *meaning(bytes_moved=tensor_traffic)("""
        scatter.reduce,src,value,value_reduce index_copy index_fill.int_Scalar,int_Tensor masked_scatter
        masked_scatter_backward
    """),
    *meaning(bytes_moved=scatter_in_place_traffic)("""
        scatter_.reduce,src,value,value_reduce index_copy_ index_fill_.int_Scalar,int_Tensor masked_scatter_
    """),
    # With duplicate indices the sum is done with atomics on CUDA; without `accumulate`, which of them wins is open.
    *meaning(flops=per_output(1), bytes_moved=tensor_traffic, deterministic=False)("""
        scatter_add index_add index_put _unsafe_index_put scatter_reduce.two index_reduce put segment_reduce
        _segment_reduce_backward _index_put_impl
    """),
    *meaning(bytes_moved=scatter_in_place_traffic, deterministic=False)("""
        scatter_add_ index_add_ index_put_ _index_put_impl_ scatter_reduce_.two index_reduce_ put_
    """),
    *meaning(bytes_moved=scatter_in_place_traffic)("embedding_renorm_"),
    *meaning(deterministic=False)("""
        scatter.reduce_out,src_out,value_out,value_reduce_out index_copy.out
        index_fill.int_Scalar_out,int_Tensor_out masked_scatter.out scatter_add.out index_add.out
        index_put.out scatter_reduce.two_out index_reduce.out put.out
    """),
)
