"""Bytes of a call: its memory traffic, results in larger storages than their shapes say, and scratch.

Sizes of storages were measured on PyTorch 2.13 CPU with `untyped_storage().nbytes()`; the audit tests repeat it. Of scratch,
only what was found exact there for contiguous and channels_last operands and several dtypes is here (on tensors of a few
elements, scalars inside the kernel can add some bytes). What depends on threads, kernels or versions, such as the scratch of
convolutions and of fused attention, is left to a measurement; elsewhere than on CPU all of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from neaptide.ir.nodes import Arg, refs
from neaptide.ir.registry import Call, SizeRule, no_bytes, tensor_traffic
from neaptide.ir.values import DTYPE_BYTES, Value
from neaptide.symbolic.size_expr import SizeExpr, maximum

# at::Reduction::None; 1 is mean, 2 is sum.
_UNREDUCED = 0
_MEAN = 1

# -- traffic: what a roofline divides by the bandwidth ---------------------------------------------------------------


def tensors_of(call: Call, arg: Arg) -> tuple[Value, ...]:
    """The tensors in one argument: one, those of a list, or none."""
    values = (call.graph.values[call.node.inputs[ref.slot]] for ref in refs(arg))
    return tuple(value for value in values if not value.is_host_scalar)


def total_bytes(values: Iterable[Value]) -> SizeExpr:
    """Bytes of some tensors' elements."""
    total = SizeExpr.const(0)
    for value in values:
        total = total + value.nbytes
    return total


def output_traffic(call: Call) -> SizeExpr:
    """Results written, nothing read: factories and fills."""
    return total_bytes(value for value in call.outputs() if not value.is_host_scalar)


def traffic(writes: tuple[int | str, ...]) -> SizeRule:
    """Every operand read once, every result written once, for an op that overwrites the arguments `writes`.

    An argument given as `out=` is written but not read. An op that changes its arguments and hands nothing back
    (`_foreach_add_`) writes those arguments.
    """
    if not writes:
        return tensor_traffic

    def rule(call: Call) -> SizeExpr:
        written: list[Value] = []
        unread = SizeExpr.const(0)
        for place in writes:
            if isinstance(place, str):
                targets = tensors_of(call, call.node.kwarg(place))
                unread = unread + total_bytes(targets)
            else:
                targets = tensors_of(call, call.arg(place))
            written.extend(targets)
        total = tensor_traffic(call) - unread
        return total if call.node.outputs else total + total_bytes(written)

    return rule


def overwrite_traffic(call: Call) -> SizeExpr:
    """All operands but the first are read, the results written: copies and fills, which forget the old contents."""
    return total_bytes(tensors_of(call, call.node.args[1:])) + output_traffic(call)


def gather_traffic(call: Call) -> SizeExpr:
    """Elements picked out of a table are read and written, the indices read; the rest of the table is not touched."""
    picked = output_traffic(call)
    return picked + picked + total_bytes(tensors_of(call, call.node.args[1:]))


def scatter_in_place_traffic(call: Call) -> SizeExpr:
    """Elements put into a tensor in place: indices and values are read, what they hit is read and written."""
    given = tensors_of(call, call.node.args[1:])
    hit = total_bytes(given[-1:])
    return total_bytes(given) + hit + hit


# -- storages that are larger than their tensors ----------------------------------------------------------------------


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


# -- scratch ----------------------------------------------------------------------------------------------------------


def device_of(call: Call, value: Value) -> str:
    """Where the bytes of a tensor are; empty for a host scalar."""
    return "" if value.storage is None else call.graph.storages[value.storage].device


def _on_cpu(rule: SizeRule) -> SizeRule:
    def on_cpu(call: Call) -> SizeExpr:
        given = call.value(0)
        return rule(call) if given is not None and device_of(call, given) == "cpu" else no_bytes(call)

    return on_cpu


def _operand(call: Call) -> SizeExpr:
    given = call.value(0)
    return no_bytes(call) if given is None else given.nbytes


copy_of_operand = _on_cpu(_operand)
"""`median` sorts a copy; `native_batch_norm_backward` makes a second gradient of its input."""

dropout_mask = _on_cpu(lambda call: no_bytes(call) if call.arg(2) is False else _operand(call))
"""`native_dropout` draws its mask in the operand's dtype before it makes it boolean."""

exponentials = _on_cpu(lambda call: _operand(call) + call.output().nbytes)
"""`logsumexp` holds the exponentials of all elements, and the maxima."""
