"""What the operations of recorded training steps mean: their arithmetic, traffic and axes follow from dim links.

The operations are those of MAGIS's own graphs (Chen et al., ASPLOS 2024). A dim link (d, r) says that dim d of an operand
is dim r of the result, or that the operation adds up along it where r is below 0. An axis without a link is needed whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

from neaptide.ir.axes import Merge, OpAxis
from neaptide.ir.nodes import Ref
from neaptide.ir.registry import AxisRow, Call, OpRegistry, OpSpec, Trait
from neaptide.ops import structural
from neaptide.ops.axes.table import with_axes
from neaptide.ops.formulas import product
from neaptide.symbolic.size_expr import SizeExpr

UPDATE: Final = "recorded.ewise.bin.add_"
"""Adds a gradient to a weight, in the weight's place."""
LINKS: Final = "links"
"""Keyword argument: for each operand its dim links."""
_ZERO: Final = SizeExpr.const(0)

_TRAITS: Final = {
    "recorded.conv2d": Trait.CONVOLUTION,
    "recorded.matmul": Trait.CONTRACTION,
    "recorded.flex_matmul": Trait.CONTRACTION,
    "recorded.ewise": Trait.ELEMENTWISE,
    "recorded.pool2d": Trait.POOLING,
    "recorded.layer_norm": Trait.NORMALISATION,
    "recorded.softmax": Trait.NORMALISATION,
}
MOVES_NOTHING: Final = frozenset(
    {"recorded.slice", "recorded.concat", "recorded.index_out", "recorded.reshape", "recorded.permute"}
)
"""Operations of other places or shapes: they make bytes of their own, but their traffic is not counted."""
_NORM: Final = "recorded.layer_norm"


def links_of(call: Call) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The dim links of a call, by positional argument."""
    found = call.node.kwarg(LINKS)
    assert isinstance(found, tuple)
    return cast("tuple[tuple[tuple[int, int], ...], ...]", found)


def registry_of(names: Iterable[str]) -> OpRegistry:
    """Rows for operations of recorded steps by name, and those that loops need."""
    return OpRegistry((*with_axes(structural.rows()), *map(_row, sorted(set(names)))))


def _row(name: str) -> OpSpec:
    trait = next((found for prefix, found in _TRAITS.items() if name.startswith(prefix)), None)
    traits = frozenset(() if trait is None else (trait,))
    if name == UPDATE:
        return OpSpec(name, traits | {Trait.UPDATE}, writes=(0,), axes=AxisRow(_axes))
    return OpSpec(name, traits, flops=_flops, bytes_moved=_traffic, axes=AxisRow(_axes))


def _axes(call: Call) -> Iterator[OpAxis]:
    """One axis for each dim of the result and each sum that an operand has a link to."""
    operands: dict[int, dict[int, int]] = {}
    torn: set[int] = set()
    for position, links in enumerate(links_of(call)):
        argument = call.node.args[position]
        assert isinstance(argument, Ref)
        for dim, target in links:
            if operands.setdefault(target, {}).setdefault(argument.slot, dim) != dim:
                torn.add(target)  # one value in two places, cut along two of its dims
    for target, dims in sorted(operands.items()):
        if target not in torn:
            yield OpAxis(dims, {0: Merge.SUM if target < 0 else target})


def _flops(call: Call) -> SizeExpr:
    """Two for each product of a matrix multiplication or a convolution; what else there is, is bound by its traffic."""
    name = call.node.op
    if name in ("recorded.matmul", "recorded.flex_matmul"):
        summed: dict[int, SizeExpr] = {}
        for position, links in enumerate(links_of(call)):
            operand = call.value(position)
            assert operand is not None
            for dim, target in links:
                if target < 0:
                    summed.setdefault(target, operand.shape[dim])
        return product(call.output().shape) * product(tuple(summed.values())) * 2
    first, second, made = call.value(0), call.value(1), call.output()
    if name == "recorded.conv2d" and second is not None:
        return product(made.shape) * product(second.shape[1:]) * 2
    if name == "recorded.conv2d_bwd_inp" and first is not None and second is not None:
        return product(first.shape) * product(second.shape[1:]) * 2
    if name == "recorded.conv2d_bwd_wgt" and second is not None:
        return product(second.shape) * product(made.shape[1:]) * 2
    return _ZERO


def moved_values(call: Call) -> tuple[int, ...]:
    """Values that a call reads or writes, one entry for each pass over their bytes."""
    if call.node.op in MOVES_NOTHING:
        return ()
    if call.node.op == _NORM:  # statistics after the result are not counted
        return (call.node.inputs[0],) * 2
    return (*call.node.inputs, *call.node.outputs)


def _traffic(call: Call) -> SizeExpr:
    return sum((call.graph.values[value].nbytes for value in moved_values(call)), _ZERO)
