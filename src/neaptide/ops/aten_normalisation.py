"""ATen softmax, batch, layer, group, instance and RMS norms, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Replay, Trait
from neaptide.ops.effects import running_statistics, tensors_present
from neaptide.ops.formulas import per_input, per_output
from neaptide.ops.table import declare
from neaptide.ops.workspace import copy_of_operand

_SOFTMAX = """
    _softmax.default,out _log_softmax.default,out _safe_softmax.default softmax.int,int_out
    log_softmax.int,int_out _masked_softmax.default,out
"""
_SOFTMAX_BACKWARD = """
    _softmax_backward_data.default,out=grad_input _log_softmax_backward_data.default,out
    _masked_softmax_backward.default,out
"""
_NORM = """
    native_layer_norm.default,out=out0+out1+out2 native_group_norm.default,out=out0+out1+out2
    _fused_rms_norm.default layer_norm.default group_norm.default rms_norm.default
    _weight_norm_interface.default,out=out0+out1
    _native_batch_norm_legit.no_stats,no_stats_out=out+save_mean+save_invstd
    _native_batch_norm_legit_no_training.default,out=out0+out1+out2
    _native_batch_norm_legit_functional.default _batch_norm_no_update.default,out=out0+out1+out2+out3
    _batch_norm_with_update_functional.default batch_norm_stats.default,out=out0+out1
    batch_norm_elemt.default,out renorm.default,out
"""
_NORM_IN_PLACE = """
    renorm_.default
"""
_NORM_BACKWARD = """
    native_layer_norm_backward.default,out=out0+out1+out2
    native_group_norm_backward.default,out=out0+out1+out2
    native_batch_norm_backward.out=out0+out1+out2 _fused_rms_norm_backward.default
    cudnn_batch_norm_backward.default,out=out0+out1+out2
    miopen_batch_norm_backward.default,out=out0+out1+out2 batch_norm_backward.default
    batch_norm_backward_reduce.default,out=out0+out1+out2+out3 batch_norm_backward_elemt.default,out
    _weight_norm_interface_backward.default,out=out0+out1
"""

# What a training-mode batch norm computes, without its effect on the running statistics: same bits on CPU, measured
# on contiguous and channels_last tensors.
_WITHOUT_STATISTICS = Replay(
    op="aten._native_batch_norm_legit.no_stats",
    positions=(0, 1, 2, 5, 6, 7),
    outputs=(0, 1, 2),
    bitwise=("cpu",),
)


def rows() -> Iterator[OpSpec]:
    """Softmax and the norms."""
    norm = Trait.NORMALISATION
    yield from declare(_SOFTMAX, norm, flops=per_input(13))
    yield from declare(_SOFTMAX_BACKWARD, norm, flops=per_input(4))
    yield from declare(_NORM, norm, flops=per_input(7))
    yield from declare(_NORM_IN_PLACE, norm, flops=per_input(4))
    yield from declare(_NORM_BACKWARD, norm, flops=per_input(8))
    yield from declare(
        "native_batch_norm_backward.default", norm, flops=per_input(8), workspace=copy_of_operand
    )
    yield from _batch_norms_with_running_statistics()


def _batch_norms_with_running_statistics() -> Iterator[OpSpec]:
    norm, cost, hidden = Trait.NORMALISATION, per_output(7), running_statistics(3, 4, 5)
    yield from declare(
        "native_batch_norm.default _native_batch_norm_legit.default",
        norm,
        writes_if=hidden,
        flops=cost,
        replay=_WITHOUT_STATISTICS,
    )
    outputs = ("out", "save_mean", "save_invstd")
    yield from declare(
        "native_batch_norm.out _native_batch_norm_legit.out",
        norm,
        writes=outputs,
        writes_if=hidden,
        flops=cost,
    )
    yield from declare(
        "cudnn_batch_norm.default miopen_batch_norm.default batch_norm.default instance_norm.default",
        norm,
        writes_if=hidden,
        flops=cost,
    )
    yield from declare("_batch_norm_with_update.default", norm, writes_if=tensors_present(3, 4), flops=cost)
    yield from declare(
        "batch_norm_gather_stats.default batch_norm_gather_stats_with_counts.default",
        norm,
        writes_if=tensors_present(3, 4),
        flops=cost,
    )
    yield from declare("batch_norm_update_stats.default", norm, writes_if=tensors_present(1, 2), flops=cost)
