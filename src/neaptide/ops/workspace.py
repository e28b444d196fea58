"""Scratch bytes of a call where they follow from shapes.

Only what was found exact on PyTorch 2.13 CPU for contiguous and channels_last operands and several dtypes is here (on
tensors of a few elements, scalars inside the kernel can add some bytes). What depends on threads, kernels or versions,
such as the scratch of convolutions and of fused attention, is left to a measurement; elsewhere than on CPU all of it is.
"""

from __future__ import annotations

from neaptide.ir.registry import Call, SizeRule, no_bytes
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr


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


def _dropout(call: Call) -> SizeExpr:
    return no_bytes(call) if call.arg(2) is False else _operand(call)


def _operand_and_result(call: Call) -> SizeExpr:
    return _operand(call) + call.output().nbytes


copy_of_operand = _on_cpu(_operand)
"""`median` sorts a copy; `native_batch_norm_backward` makes a second gradient of its input."""

dropout_mask = _on_cpu(_dropout)
"""`native_dropout` draws its mask in the operand's dtype before it makes it boolean."""

exponentials = _on_cpu(_operand_and_result)
"""`logsumexp` holds the exponentials of all elements, and the maxima."""
