"""ATen reductions, scans, sorts, searches, softmax, norms and losses, forward and backward."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import Replay, Trait
from neaptide.ops.byte_sizes import copy_of_operand, exponentials, unreduced_loss, unreduced_promoted_loss
from neaptide.ops.effects import running_statistics, tensors_present
from neaptide.ops.formulas import per_input, per_input_times_log, per_output
from neaptide.ops.table import meaning

_RUNNING: Final = running_statistics(3, 4, 5)
# What a training-mode batch norm computes, without its effect on the running statistics: same bits, measured on the CPU and
# on an H100, on contiguous and channels_last tensors.
_WITHOUT_STATISTICS: Final = Replay(
    op="aten._native_batch_norm_legit.no_stats",
    positions=(0, 1, 2, 5, 6, 7),
    outputs=(0, 1, 2),
    bitwise=("cpu", "cuda"),
)
_CUDNN_WITHOUT_STATISTICS: Final = Replay(
    op="aten.cudnn_batch_norm.default",
    positions=(0, 1, 2, None, None, 5, 6, 7),
    outputs=(0, 1, 2, 3),
    bitwise=("cuda",),
)

ROWS: Final = (
    *meaning(Trait.REDUCTION, flops=per_input(1))("""
        sum,IntList_out,dim_IntList,out mean,dim,dtype_out,out prod,dim_int,int_out,out amax,out amin,out
        max,dim,dim_max=max+max_values,unary_out min,dim,dim_min=min+min_indices,unary_out aminmax,out=min+max
        _aminmax,dim,dim_out=out0+out1,out=out0+out1 all,all_out,dim,dims,dims_out,out
        any,all_out,dim,dims,dims_out,out nansum,out argmax,out argmin,out
        count_nonzero,dim_IntList,dim_IntList_out,out nanmean,out trace,out _is_all_true _is_any_true
        hash_tensor,out sum_to_size
    """),
    *meaning(Trait.REDUCTION, flops=per_input(3))("""
        var,correction,correction_out,dim,out std,correction,correction_out,dim,out
        var_mean,correction,correction_out=out0+out1,dim std_mean,correction,correction_out=out0+out1,dim
        linalg_vector_norm,out
        norm.Scalar,ScalarOpt_dim,ScalarOpt_dim_dtype,ScalarOpt_dtype,ScalarOpt_dtype_out,Scalar_out,dtype_out,out
        frobenius_norm.dim,out dist,out
    """),
    *meaning(Trait.REDUCTION, flops=per_input(12), workspace=exponentials)("logsumexp"),
    *meaning(Trait.REDUCTION, flops=per_input(12))("logsumexp.out"),
    *meaning(flops=per_input(1))("""
        cumprod~ cummax,out=values+indices cummin,out=values+indices logcumsumexp,out _logcumsumexp,out
        diff,out
    """),
    # On CUDA these are not reproducible bit for bit (PyTorch's list of such ops).
    *meaning(flops=per_input(1), deterministic=False)("cumsum~"),
    *meaning(writes=(1, 2), flops=per_input(1))("_cummax_helper _cummin_helper"),
    *meaning(flops=per_input_times_log(), workspace=copy_of_operand, deterministic=False)("median"),
    *meaning(flops=per_input_times_log())("""
        sort,stable,values=values+indices,values_stable=values+indices argsort,stable,stable_out msort,out
        topk,values=values+indices nanmedian,dim,dim_values=values+indices,out mode,values=values+indices
        quantile,out,scalar,scalar_out nanquantile,out,scalar,scalar_out
    """),
    *meaning(flops=per_input_times_log(), deterministic=False)("""
        kthvalue,values=values+indices median.dim,dim_values=values+indices,out histc,out
    """),
    *meaning(flops=per_output(20))("""
        searchsorted.Scalar,Scalar_out,Tensor,Tensor_out bucketize.Scalar,Scalar_out,Tensor,Tensor_out
        isin.Scalar_Tensor,Scalar_Tensor_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out
    """),
    *meaning(Trait.NORMALISATION, flops=per_input(13))("""
        _softmax,out _log_softmax,out _safe_softmax softmax.int,int_out log_softmax.int,int_out
        _masked_softmax,out
    """),
    *meaning(Trait.NORMALISATION, flops=per_input(4))("""
        _softmax_backward_data,out=grad_input _log_softmax_backward_data,out _masked_softmax_backward,out
    """),
    *meaning(Trait.NORMALISATION, flops=per_input(7))("""
        native_layer_norm,out=out0+out1+out2 native_group_norm,out=out0+out1+out2 _fused_rms_norm layer_norm
        group_norm rms_norm _weight_norm_interface,out=out0+out1
        _native_batch_norm_legit.no_stats,no_stats_out=out+save_mean+save_invstd
        _native_batch_norm_legit_no_training,out=out0+out1+out2 _native_batch_norm_legit_functional
        _batch_norm_no_update,out=out0+out1+out2+out3 _batch_norm_with_update_functional
        batch_norm_stats,out=out0+out1 batch_norm_elemt,out renorm,out
    """),
    *meaning(Trait.NORMALISATION, flops=per_input(4))("renorm_"),
    *meaning(Trait.NORMALISATION, flops=per_input(8))("""
        native_layer_norm_backward,out=out0+out1+out2 native_group_norm_backward,out=out0+out1+out2
        native_batch_norm_backward.out=out0+out1+out2 _fused_rms_norm_backward
        cudnn_batch_norm_backward,out=out0+out1+out2 miopen_batch_norm_backward,out=out0+out1+out2
        batch_norm_backward batch_norm_backward_reduce,out=out0+out1+out2+out3 batch_norm_backward_elemt,out
        _weight_norm_interface_backward,out=out0+out1
    """),
    *meaning(Trait.NORMALISATION, flops=per_input(8), workspace=copy_of_operand)("""
        native_batch_norm_backward
    """),
    *meaning(Trait.NORMALISATION, writes_if=_RUNNING, flops=per_output(7), replay=_WITHOUT_STATISTICS)("""
        native_batch_norm _native_batch_norm_legit
    """),
    *meaning(Trait.NORMALISATION, writes_if=_RUNNING, flops=per_output(7), replay=_CUDNN_WITHOUT_STATISTICS)(
        "cudnn_batch_norm"
    ),
    *meaning(
        Trait.NORMALISATION,
        writes=("out", "save_mean", "save_invstd"),
        writes_if=_RUNNING,
        flops=per_output(7),
    )("""
        native_batch_norm.out _native_batch_norm_legit.out
    """),
    *meaning(Trait.NORMALISATION, writes_if=_RUNNING, flops=per_output(7))("""
        miopen_batch_norm batch_norm instance_norm
    """),
    *meaning(Trait.NORMALISATION, writes_if=tensors_present(3, 4), flops=per_output(7))("""
        _batch_norm_with_update batch_norm_gather_stats batch_norm_gather_stats_with_counts
    """),
    *meaning(Trait.NORMALISATION, writes_if=tensors_present(1, 2), flops=per_output(7))("""
        batch_norm_update_stats
    """),
    # With a reduction they return a scalar in the storage of the unreduced loss; broadcasting and promoting operands.
    *meaning(Trait.LOSS, flops=per_input(4), storage_bytes=unreduced_promoted_loss)("""
        mse_loss^^ smooth_l1_loss^^
    """),
    *meaning(Trait.LOSS, flops=per_input(20), storage_bytes=unreduced_loss(3))("binary_cross_entropy^^"),
    *meaning(Trait.LOSS, flops=per_input(20), storage_bytes=unreduced_loss(2))("soft_margin_loss"),
    *meaning(Trait.LOSS, flops=per_input(4))("""
        huber_loss^^ l1_loss kl_div binary_cross_entropy_with_logits nll_loss_forward nll_loss2d_forward
        nll_loss nll_loss2d nll_loss_nd cross_entropy_loss multi_margin_loss multilabel_margin_loss_forward
        multilabel_margin_loss margin_ranking_loss hinge_embedding_loss cosine_embedding_loss
        triplet_margin_loss poisson_nll_loss cosine_similarity pairwise_distance
    """),
    *meaning(Trait.LOSS, flops=per_input(4))("""
        mse_loss.out smooth_l1_loss.out binary_cross_entropy.out soft_margin_loss.out huber_loss.out
        nll_loss_forward.output=output+total_weight nll_loss2d_forward.output=output+total_weight
        multi_margin_loss.out multilabel_margin_loss_forward.output=output+is_target
        binary_cross_entropy_with_logits.out
    """),
    *meaning(Trait.LOSS, flops=per_input(4, position=1))("""
        mse_loss_backward^^^,grad_input smooth_l1_loss_backward^^^,grad_input
        huber_loss_backward^^^,out=grad_input binary_cross_entropy_backward^^^,grad_input
        soft_margin_loss_backward,grad_input nll_loss_backward,grad_input nll_loss2d_backward,grad_input
        multi_margin_loss_backward,grad_input multilabel_margin_loss_backward,grad_input
    """),
    *meaning(Trait.LOSS, flops=per_input(20), deterministic=False)("""
        _ctc_loss,Tensor _ctc_loss_backward,Tensor _cudnn_ctc_loss,Tensor
    """),
)
