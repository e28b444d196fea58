"""What operations say of the sizes of their operands and results, beside what their rows of axes say.

Facts of the PyTorch operator schemas (`native_functions.yaml`) and their documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from neaptide.ir.registry import Call
from neaptide.ops.axes_forms import dim_of, slots
from neaptide.ops.table import overloads
from neaptide.symbolic.dims import Relation
from neaptide.symbolic.size_expr import SizeExpr

SizeFacts: TypeAlias = Callable[[Call], Iterator[Relation]]


def joined(call: Call) -> Iterator[Relation]:
    """`cat(tensors, dim)`: the dim of the result is as long as those of all operands together; the others are alike."""
    made = call.output()
    parts = [call.inputs()[slot] for slot in slots(call, 0)]
    parts = [
        part for part in parts if len(part.shape) == len(made.shape)
    ]  # an empty vector may stand among them
    dim = dim_of(call.arg(1, "dim", 0), len(made.shape))
    if dim is None or not parts:
        return
    yield Relation(made.shape[dim], _sum(part.shape[dim] for part in parts))
    for other, extent in enumerate(made.shape):
        if other != dim:
            yield from (Relation(part.shape[other], extent) for part in parts)


def divided(call: Call) -> Iterator[Relation]:
    """`split(x, ..., dim)`: the parts together are as long as the dim, and all but the last are as long as the first."""
    whole = call.inputs()[0]
    dim = dim_of(call.arg(2, "dim", 0), len(whole.shape))
    if dim is not None and len(call.outputs()) == _returned(call):
        yield Relation(whole.shape[dim], _sum(part.shape[dim] for part in call.outputs()))


def chunked(call: Call) -> Iterator[Relation]:
    """`chunk(x, n, dim)`: every part but the last is `ceil(length / n)` long."""
    whole, count = call.inputs()[0], call.arg(1, "chunks")
    dim = dim_of(call.arg(2, "dim", 0), len(whole.shape))
    if dim is not None and isinstance(count, int) and len(call.outputs()) == _returned(call):
        yield from divided(call)
        if len(call.outputs()) > 1:
            yield Relation(call.output().shape[dim], (whole.shape[dim] + (count - 1)) // count)


def _returned(call: Call) -> int:
    """Parts that the operation returns; some of them may be nobody's output."""
    results = call.node.results
    return len(results) if isinstance(results, tuple) else len(call.node.outputs)


def _sum(extents: Iterator[SizeExpr]) -> SizeExpr:
    total = SizeExpr.const(0)
    for extent in extents:
        total = total + extent
    return total


_TABLE: Final = (
    ("cat.default concat.default concatenate.default", joined),
    (
        """
        split.Tensor,sizes split_with_sizes.default unsafe_split.Tensor unsafe_split_with_sizes.default
        split_copy.Tensor split_with_sizes_copy.default
        """,
        divided,
    ),
    ("chunk.default unsafe_chunk.default", chunked),
)

SIZE_FACTS: Final[Mapping[str, SizeFacts]] = MappingProxyType(
    {overload.name: facts for names, facts in _TABLE for overload in overloads(names)}
)
"""By operation, the equalities that a call of it implies."""
