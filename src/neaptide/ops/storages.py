"""Ops whose results live in larger storages than their shapes say.

All sizes were measured on PyTorch 2.13 CPU with `untyped_storage().nbytes()`; the audit tests repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from neaptide.ir.registry import Call
from neaptide.ir.values import DTYPE_BYTES, Value
from neaptide.ops.workspace import device_of
from neaptide.symbolic.size_expr import SizeExpr, maximum

# at::Reduction::None; 1 is mean, 2 is sum.
_UNREDUCED = 0
_MEAN = 1


def unreduced_loss(reduction_at: int) -> Callable[[Call], Mapping[int, SizeExpr]]:
    """A scalar loss in a storage of the operand's size.

    `binary_cross_entropy` and `soft_margin_loss` write the loss of every element into a tensor shaped like their
    input, reduce it in place and shrink the shape, never the storage.
    """

    def rule(call: Call) -> Mapping[int, SizeExpr]:
        given = call.value(0)
        if given is None or call.arg(reduction_at, "reduction", _MEAN) == _UNREDUCED:
            return {}
        return {0: given.nbytes}

    return rule


def unreduced_promoted_loss(call: Call) -> Mapping[int, SizeExpr]:
    """`mse_loss`, `smooth_l1_loss`: as `unreduced_loss`, with operands that broadcast and promote each other."""
    given, target = call.value(0), call.value(1)
    if given is None or target is None or call.arg(2, "reduction", _MEAN) == _UNREDUCED:
        return {}
    return {0: _broadcast_numel(given, target) * DTYPE_BYTES[call.output().dtype]}


def _broadcast_numel(a: Value, b: Value) -> SizeExpr:
    rank = max(len(a.shape), len(b.shape))
    one = SizeExpr.const(1)
    total = one
    for axis in range(1, rank + 1):
        left = a.shape[-axis] if axis <= len(a.shape) else one
        right = b.shape[-axis] if axis <= len(b.shape) else one
        total = total * (right if left == one else left)
    return total


def bag_of_each_index(call: Call) -> Mapping[int, SizeExpr]:
    """`_embedding_bag` on CPU: the bag of each index is made one element too long, then shortened."""
    bags = call.output(1)
    if bags.numel == SizeExpr.const(0) or device_of(call, bags) != "cpu":
        return {}
    return {1: bags.nbytes + DTYPE_BYTES[bags.dtype]}


def columns(call: Call) -> Mapping[int, SizeExpr]:
    """`im2col`, `col2im`: the result is first made as large as the operand, then resized, which never shrinks it."""
    given = call.value(0)
    if given is None:
        return {}
    return {0: maximum(given.nbytes, call.output().nbytes)}
