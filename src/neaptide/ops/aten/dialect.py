"""What rules insert into a graph of ATen operations, and operations that they look for: names and positions of arguments.

Facts of the PyTorch operator schemas (`native_functions.yaml`). A convolution that is not transposed, of one group, is a sum
over the channels of its input: cut in two, it is the sum of two convolutions. Its gradients follow piece by piece.
`addmm(x, a, b)` is `x + a @ b`; a product rounds once where a product and a sum after it round twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import Trait
from neaptide.ir.values import Kind
from neaptide.ops.dialect import Dialect, Inserted

# -- copies -----------------------------------------------------------------------------------------------------------

CLONE: Final = "aten.clone.default"
"""The same elements in bytes of their own."""

CAST: Final = "aten._to_copy.default"
"""The elements in another dtype, given by keyword, in bytes of their own."""

LAYOUT: Final = "memory_format"
"""Keyword of both: how the result lies."""

ROW_MAJOR: Final = "contiguous_format"

JOIN: Final = "aten.cat.default"

JOINS: Final[Mapping[str, bool]] = MappingProxyType({JOIN: False, "aten.stack.default": True})
"""A list of tensors and a dim (0 where it is not given) that they lie along; whether that dim is a new one."""

PERMUTE: Final = "aten.permute.default"
"""A view of a tensor: the order of its dims."""

VIEW: Final = "aten.view.default"
"""The same elements under another shape."""

# -- convolutions -----------------------------------------------------------------------------------------------------

CONVOLUTION: Final = "aten.convolution.default"
"""input, weight, bias, stride, padding, dilation, transposed, output padding, groups."""

GROUPS: Final = 8

CONVOLUTION_GRADIENTS: Final = "aten.convolution_backward.default"
"""gradient, input, weight, sizes of the bias, stride, padding, dilation, transposed, output padding, groups, mask.

The mask says which gradients are made: of the input, the weight and the bias. Each is computed by itself.
"""

GRADIENTS_TRANSPOSED: Final = 7
GRADIENTS_GROUPS: Final = 9
GRADIENTS_MASK: Final = 10

CHANNELS: Final = 1
"""Dim of the channels in an input, and of the channels that are read in a weight."""

# -- sums and products ------------------------------------------------------------------------------------------------

ADD: Final = "aten.add.Tensor"
"""The sum of two tensors; a keyword `alpha` scales the second."""

ADD_ONTO: Final = "aten.add_.Tensor"
"""Adds the second tensor to the first."""


class WithAddend(NamedTuple):
    """A product that adds to its first operand: `op` makes a result of its own, `onto` overwrites that operand."""

    op: str
    onto: str


PRODUCTS: Final[Mapping[str, WithAddend]] = MappingProxyType(
    {
        "aten.mm.default": WithAddend("aten.addmm.default", "aten.addmm_.default"),
        "aten.bmm.default": WithAddend("aten.baddbmm.default", "aten.baddbmm_.default"),
    }
)
"""Products of two tensors, and the forms that take the addend in front of them."""


def plain_terms(graph: Graph, node: Node) -> tuple[int, ...]:
    """The two values whose sum a node makes, of its shape and dtype; none where it does anything else, such as scaling."""
    if node.op != ADD or node.kwargs or not all(isinstance(arg, Ref) for arg in node.args):
        return ()
    made = graph.values[node.outputs[0]]
    terms = tuple(node.inputs[arg.slot] for arg in node.args if isinstance(arg, Ref))
    found = (graph.values[term] for term in terms)
    alike = all((value.shape, value.dtype) == (made.shape, made.dtype) for value in found)
    return terms if alike and len(terms) == 2 else ()


# -- parts of an image: rows of it by number, and other numbers where it has none -------------------------------------

ROWS: Final = "aten.index_select.default"
"""`(self, dim, numbers of elements)`, contiguous."""

SLICE: Final = "aten.slice.Tensor"
"""`(self, dim, start, end, step)`, a view."""

FILL: Final = "aten.masked_fill_.Scalar"
"""`(self, mask, number)`, in place."""

RANGE: Final = "aten.arange.start"
"""`(start, end)`."""

CLAMP: Final = "aten.clamp.default"
"""`(self, least, greatest)`."""

FULL: Final = "aten.full.default"
"""`(shape, number)`."""

PAD: Final = "aten.constant_pad_nd.default"
"""`(self, widths from the last dim on, number)`; what has a negative width is cut off."""


def _joined_dim(node: Node) -> int | None:
    if node.op != JOIN or node.kwargs or len(node.args) != 2:
        return None
    listed, dim = node.args
    is_plain = isinstance(listed, tuple) and all(isinstance(item, Ref) for item in listed)
    return dim if is_plain and isinstance(dim, int) else None


ATEN: Final = Dialect(
    kind=Kind.TEMPORARY,
    joined_dim=_joined_dim,
    join=lambda dim: Inserted(JOIN, args=(dim,), is_listed=True),
    cut=lambda dim, begin, end: Inserted(SLICE, args=(dim, begin, end), is_view=True),
    turn=lambda order: Inserted(PERMUTE, args=(order,), is_view=True),
    add=Inserted(ADD_ONTO, is_onto=True),
    summed=frozenset({Trait.CONVOLUTION}),
    has_loops=True,
)
