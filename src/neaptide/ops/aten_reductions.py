"""ATen reductions, scans, sorts and searches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops import workspace
from neaptide.ops.formulas import per_input, per_input_times_log, per_output
from neaptide.ops.table import declare

_REDUCTION = """
    sum.default,IntList_out,dim_IntList,out mean.default,dim,dtype_out,out
    prod.default,dim_int,int_out,out amax.default,out amin.default,out
    max.default,dim,dim_max=max+max_values,unary_out min.default,dim,dim_min=min+min_indices,unary_out
    aminmax.default,out=min+max _aminmax.default,dim,dim_out=out0+out1,out=out0+out1
    all.default,all_out,dim,dims,dims_out,out any.default,all_out,dim,dims,dims_out,out nansum.default,out
    argmax.default,out argmin.default,out count_nonzero.default,dim_IntList,dim_IntList_out,out
    nanmean.default,out trace.default,out _is_all_true.default _is_any_true.default
    hash_tensor.default,out sum_to_size.default
"""
_MOMENT = """
    var.default,correction,correction_out,dim,out std.default,correction,correction_out,dim,out
    var_mean.default,correction,correction_out=out0+out1,dim
    std_mean.default,correction,correction_out=out0+out1,dim linalg_vector_norm.default,out
    norm.Scalar,ScalarOpt_dim,ScalarOpt_dim_dtype,ScalarOpt_dtype,ScalarOpt_dtype_out,Scalar_out,dtype_out,out
    frobenius_norm.dim,out dist.default,out
"""
_SCAN = """
    cumsum.default,out cumsum_.default cumprod.default,out cumprod_.default
    cummax.default,out=values+indices cummin.default,out=values+indices logcumsumexp.default,out
    _logcumsumexp.default,out diff.default,out
"""
_SCAN_IN_PLACE = """
    _cummax_helper.default _cummin_helper.default
"""
_SORT = """
    sort.default,stable,values=values+indices,values_stable=values+indices
    argsort.default,stable,stable_out msort.default,out topk.default,values=values+indices
    kthvalue.default,values=values+indices median.dim,dim_values=values+indices,out
    nanmedian.default,dim,dim_values=values+indices,out mode.default,values=values+indices
    histc.default,out quantile.default,out,scalar,scalar_out nanquantile.default,out,scalar,scalar_out
"""
_SEARCH = """
    searchsorted.Scalar,Scalar_out,Tensor,Tensor_out bucketize.Scalar,Scalar_out,Tensor,Tensor_out
    isin.Scalar_Tensor,Scalar_Tensor_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out
"""
# On CUDA, cumulative sums of floats are not reproducible bit for bit (PyTorch's list of such ops).
_UNSTABLE_ON_CUDA = frozenset({"aten.cumsum", "aten.kthvalue", "aten.median", "aten.histc"})


def rows() -> Iterator[OpSpec]:
    """Sums, extrema, norms, cumulative sums, sorts."""
    for row in _all():
        stable = row.name.rsplit(".", 1)[0].rstrip("_") not in _UNSTABLE_ON_CUDA
        yield row if stable else replace(row, deterministic=False)


def _all() -> Iterator[OpSpec]:
    yield from declare(_REDUCTION, Trait.REDUCTION, flops=per_input(1))
    yield from declare(_MOMENT, Trait.REDUCTION, flops=per_input(3))
    yield from declare(
        "logsumexp.default", Trait.REDUCTION, flops=per_input(12), workspace=workspace.exponentials
    )
    yield from declare("logsumexp.out", Trait.REDUCTION, flops=per_input(12))
    yield from declare(_SCAN, flops=per_input(1))
    yield from declare(_SCAN_IN_PLACE, writes=(1, 2), flops=per_input(1))
    yield from declare("median.default", flops=per_input_times_log(), workspace=workspace.copy_of_operand)
    yield from declare(_SORT, flops=per_input_times_log())
    yield from declare(_SEARCH, flops=per_output(20))
