"""Memory traffic of a call in bytes: what a roofline divides by the bandwidth."""

from __future__ import annotations

from collections.abc import Iterable

from neaptide.ir.nodes import Arg, refs
from neaptide.ir.registry import Call, SizeRule, tensor_traffic
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr


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
