"""A small graph for each rule, and the rewrite of it: for golden text, and for numbers before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import torch

from neaptide.analysis.axes.windows import Scaled
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Named
from neaptide.ops import registry
from neaptide.ops.aten.dialect import CLONE, PERMUTE
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.rewrite import Rewrite
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission, fission_by_shape, windows
from neaptide.transform.rules.rematerialisation import Again, rematerialisation
from support.symbolic_steps import symbolised
from support.torch_programs import Recorder

ROWS, WIDTH = 7, 4
STRIDE_ONE = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


@dataclass(frozen=True)
class Example:
    """A graph and one rewrite of it.

    Attributes:
        graph: before.
        rewrite: of the graph.
        sizes: values of all dims before and after, for a run.
    """

    graph: Graph
    rewrite: Rewrite
    sizes: Mapping[str, int] = field(default_factory=dict)


def redundant_copies() -> Example:
    """A stack that is copied into another order of its dims."""
    r = Recorder()
    a, b = (r.input(torch.randn(2, 3, 4), name) for name in "ab")
    seen = r.call(PERMUTE, r.call("aten.stack.default", [a, b], 0), (1, 0, 2, 3))
    copy = r.call(CLONE, seen, memory_format=Named("memory_format", "contiguous_format"))
    return proposed("redundant_copies", r.finish([r.call("aten.sum.default", copy)]))


def split_dropout() -> Example:
    """A dropout in front of a wide layer, and the gradient of it."""
    r = Recorder()
    x, weight = r.input(torch.randn(ROWS, WIDTH), "x"), r.input(torch.randn(WIDTH, 9), "weight")
    result, mask = r.call("aten.native_dropout.default", x, 0.25, True)
    wide = r.call("aten.mm.default", result, weight)
    back = r.call("aten.mm.default", wide, r.call("aten.t.default", weight))
    return proposed(
        "split_dropout", r.finish([r.call("aten.native_dropout_backward.default", back, mask, 4 / 3)])
    )


def common_subexpressions() -> Example:
    """Two casts of one activation, as autocast makes them for two projections."""
    r = Recorder()
    x, weight = r.input(torch.randn(3, 4), "x"), r.input(torch.randn(4, 4), "weight")
    casts = [r.call("aten._to_copy.default", x, dtype=Named("dtype", "float64")) for _ in range(2)]
    wide = r.call("aten._to_copy.default", weight, dtype=Named("dtype", "float64"))
    first = r.call("aten.mm.default", casts[0], wide)
    return proposed("common_subexpressions", r.finish([r.call("aten.addmm.default", first, casts[1], wide)]))


def fission_of_rows() -> Example:
    """A wide layer and its gradient in parts of the rows; the gradient of the weight is a sum over them."""
    r = Recorder()
    x, weight = r.input(torch.randn(ROWS, WIDTH), "x"), r.input(torch.randn(WIDTH, 9), "weight")
    wide = r.call("aten.sigmoid.default", r.call("aten.mm.default", x, weight))
    back = r.call("aten.mul.Tensor", wide, wide)
    result = r.call("aten.mm.default", r.call("aten.t.default", x), back)
    graph = r.finish([result])
    made = fission(graph, range(len(graph.nodes)), length=ROWS, parts=3, inputs={x: Along(0)})
    return Example(graph, made)


def fission_by_shape_of_rows() -> Example:
    """A wide layer over as many rows as a call has."""
    r = Recorder()
    x, weight = r.input(torch.randn(ROWS, WIDTH), "x"), r.input(torch.randn(WIDTH, 9), "weight")
    wide = r.call("aten.sigmoid.default", r.call("aten.mm.default", x, weight))
    graph = symbolised(r.finish([r.call("aten.sum.dim_IntList", wide, [1])]), {ROWS: "B"})
    graph = replace(graph, dims=(Dim("B", 1, ROWS),))
    made = fission_by_shape(
        graph, range(len(graph.nodes)), length=SizeExpr.dim("B"), step="rows", inputs={x: Along(0)}
    )
    return Example(graph, made, {"B": ROWS, "rows": 3})


def gradients_of_one_call() -> Example:
    """All three gradients of a convolution."""
    r = Recorder()
    image, weight = r.input(torch.randn(1, 2, 4, 4), "image"), r.input(torch.randn(3, 2, 3, 3), "weight")
    arriving = r.input(torch.randn(1, 3, 2, 2), "arriving")
    made = r.call(
        "aten.convolution_backward.default", arriving, image, weight, [3], *STRIDE_ONE, [True, True, True]
    )
    return proposed("split_convolution_backward", r.finish(made))


def in_place() -> Example:
    """The gradient of an activation function, whose operand nobody needs after it."""
    r = Recorder()
    x, arriving = r.input(torch.randn(4, 6), "x"), r.input(torch.randn(24), "arriving")
    scaled = r.call("aten.view.default", r.call("aten.mul.Tensor", arriving, 3.0), (4, 6))
    back = r.call("aten.gelu_backward.default", scaled, x)
    return proposed("in_place", r.finish([r.call("aten.sum.default", r.call("aten.t.default", back))]))


def made_again_for_its_last_user() -> Example:
    """An activation that one operation uses at once and another at the end."""
    r = Recorder()
    x = r.input(torch.randn(4, 6), "x")
    early = r.call("aten.exp.default", x)
    total = r.call("aten.sum.default", early)
    graph = r.finish([r.call("aten.mul.Tensor", early, total)])
    return Example(graph, rematerialisation([Again((0,), (2,))]))


def mean_to_sum() -> Example:
    """The mean of the squares."""
    r = Recorder()
    squares = r.call("aten.pow.Tensor_Scalar", r.input(torch.randn(4, 6), "x"), 2)
    return proposed("mean_to_sum", r.finish([r.call("aten.mean.default", squares)]))


def concat_before_convolution() -> Example:
    """A convolution of two joined tensors."""
    r = Recorder()
    a, b = r.input(torch.randn(1, 2, 4, 4), "a"), r.input(torch.randn(1, 1, 4, 4), "b")
    weight = r.input(torch.randn(2, 3, 3, 3), "weight")
    joined = r.call("aten.cat.default", [r.call("aten.exp.default", a), b], 1)
    result = r.call("aten.convolution.default", joined, weight, None, *STRIDE_ONE)
    return proposed("concat_before_convolution", r.finish([result]))


def accumulate_in_gemm() -> Example:
    """A sum of an activation and a product, both in another shape."""
    r = Recorder()
    a, b = (r.input(torch.randn(4, 4), name) for name in "ab")
    x = r.call("aten.exp.default", a)
    seen = r.call("aten.view.default", r.call("aten.mm.default", a, b), (2, 8))
    total = r.call("aten.add.Tensor", r.call("aten.view.default", x, (2, 8)), seen)
    return proposed("accumulate_in_gemm", r.finish([r.call("aten.sum.dim_IntList", total, [1])]))


def overlapping_windows() -> Example:
    """Two convolutions, in parts of the height that overlap."""
    r = Recorder()
    image = r.input(torch.randn(1, 2, 11, 4), "image")
    first, second = r.input(torch.randn(3, 2, 3, 1), "first"), r.input(torch.randn(2, 3, 3, 1), "second")
    inner = r.call("aten.convolution.default", image, first, None, *STRIDE_ONE)
    graph = r.finish([r.call("aten.convolution.default", inner, second, None, *STRIDE_ONE)])
    return Example(graph, windows(graph, [0, 1], parts=2, inputs={image: Scaled(2, Fraction(1))}))


def proposed(rule: str, graph: Graph) -> Example:
    """A graph with the one rewrite that a rule finds in it."""
    (rewrite,) = (found for found in RULES[rule].find(graph, registry()) if isinstance(found, Rewrite))
    return Example(graph, rewrite)


def fused() -> Example:
    """An activation whose backward computes it again, a softmax of rows seen transposed, and an update by a number of the host."""
    r = Recorder()
    x, weight = r.input(torch.randn(ROWS, WIDTH), "x"), r.input(torch.randn(WIDTH, WIDTH), "weight")
    rate = r.input(0.25, "rate")
    gate = r.call("aten.sigmoid.default", r.call("aten.mm.default", x, weight))
    active = r.call("aten.tanh.default", r.call("aten.mul.Tensor", gate, 2.0))
    wide = r.call("aten.mm.default", active, weight)
    rows = r.call("aten._softmax.default", r.call("aten.add.Tensor", wide, x), 1, False)
    back = r.call("aten.mm.default", r.call("aten.t.default", rows), wide)
    slope = r.call("aten.mul.Tensor", r.call("aten.tanh_backward.default", rows, active), gate)
    r.call("aten.addcdiv_.default", r.call("aten.mul_.Tensor", weight, 0.5), back, weight, value=rate)
    return proposed("fusion", r.finish([r.call("aten.mm.default", slope, back)]))


EXAMPLES: Mapping[str, Callable[[], Example]] = {
    "redundant_copies": redundant_copies,
    "split_dropout": split_dropout,
    "common_subexpressions": common_subexpressions,
    "fission": fission_of_rows,
    "fission_by_shape": fission_by_shape_of_rows,
    "split_convolution_backward": gradients_of_one_call,
    "in_place": in_place,
    "rematerialisation": made_again_for_its_last_user,
    "mean_to_sum": mean_to_sum,
    "concat_before_convolution": concat_before_convolution,
    "accumulate_in_gemm": accumulate_in_gemm,
    "windows": overlapping_windows,
    "fusion": fused,
}
