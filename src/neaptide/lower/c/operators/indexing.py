"""Operators whose operands say where elements are."""

from __future__ import annotations

from typing import Final

from neaptide.ir.values import DTYPE_WORDS
from neaptide.lower.c.operators.node_call import NodeCall, Row, typed
from neaptide.lower.c.views import dense_strides, product

_COMBINED: Final = {
    "none": "b",
    "add": "a + b",
    "mul": "a * b",
    "max": "a > b ? a : b",
    "min": "a < b ? a : b",
}


def _gather(call: NodeCall) -> None:
    axis = call.axis()
    outer, extent, inner = call.three_axes(axis)
    at = call.x(1)
    numbers = outer, extent, at.numel, inner * call.x().item_bytes
    call.code.kernel("gather", X=DTYPE_WORDS[at.dtype], T=at.c_type)
    pointers = call.x().place.text, typed(at), call.y().place.text
    call.code.call(f"nt_gather_{DTYPE_WORDS[at.dtype]}", *pointers, *map(str, numbers))


def _elements(call: NodeCall) -> None:
    """GatherElements and ScatterElements."""
    x, at, axis = call.x(), call.x(1), call.axis()
    tokens = {**call.tokens(x), "W": DTYPE_WORDS[at.dtype], "TW": at.c_type}
    table = [axis, x.dims[axis], len(x.dims), *at.dims, *dense_strides(x.dims)]
    if call.op == "GatherElements":
        kernel, name = "gather_elements", "gather_elements"
        pointers = x.place.text, typed(at), call.y().place.text
    else:
        kind = call.text("reduction", "none")
        tokens |= {"R": kind, "E": _COMBINED[kind]}
        kernel, name = "scatter_elements", f"scatter_elements_{kind}"
        pointers = typed(at), call.x(2).place.text, call.y().place.text
        call.copy(x, call.y())
    if at.numel:
        call.code.kernel(kernel, **tokens)
        call.code.call(f"nt_{name}_{tokens['X']}_{tokens['W']}", *pointers, call.code.table(table))


def _scatter_nd(call: NodeCall) -> None:
    x, at, updates = call.x(), call.x(1), call.x(2)
    kind = call.text("reduction", "none")
    call.copy(x, call.y())
    length = at.dims[-1]
    tokens = {**call.tokens(x), "R": kind, "E": _COMBINED[kind]}
    call.code.kernel("scatter_nd", **tokens)
    dims, strides = x.dims[:length], dense_strides(x.dims)[:length]
    table = [product(at.dims[:-1]), length, product(x.dims[length:]), *dims, *strides]
    pointers = typed(at), updates.place.text, call.y().place.text
    call.code.call(f"nt_scatter_nd_{kind}_{tokens['X']}", *pointers, call.code.table(table))


def _gather_nd(call: NodeCall) -> None:
    x, at = call.x(), call.x(1)
    if call.integer("batch_dims"):
        raise call.refusal("has batch dims")
    length = at.dims[-1]
    call.code.kernel("gather_nd")
    dims, strides = x.dims[:length], dense_strides(x.dims)[:length]
    steps = [step * x.item_bytes for step in strides]
    table = [product(at.dims[:-1]), length, product(x.dims[length:]) * x.item_bytes, *dims, *steps]
    pointers = x.place.text, typed(at), call.y().place.text
    call.code.call("nt_gather_nd", *pointers, call.code.table(table))


def _one_hot(call: NodeCall) -> None:
    at, values, y = call.x(0), call.x(2), call.y()
    if at.dtype not in {"int32", "int64"}:
        raise call.refusal(f"has indices of {at.dtype}")
    axis = call.axis(-1, len(y.dims))
    tokens = {**call.tokens(values), "W": DTYPE_WORDS[at.dtype], "TW": at.c_type}
    call.code.kernel("one_hot", **tokens)
    numbers = product(y.dims[:axis]), y.dims[axis], product(y.dims[axis + 1 :])
    pointers = typed(at), values.place.text, y.place.text
    name = f"nt_one_hot_{tokens['X']}_{tokens['W']}"
    call.code.call(name, *pointers, *map(str, numbers))


def _top_k(call: NodeCall) -> None:
    axis = call.axis(-1)
    call.code.kernel("top_k", **call.tokens(call.x()))
    sign = 1 if call.integer("largest", 1) else -1
    table = call.code.table([*call.three_axes(axis), call.y().dims[axis], sign])
    pointers = typed(call.x()), typed(call.y(), written=True), typed(call.y(1), written=True)
    call.code.call(f"nt_top_k_{call.tokens(call.x())['X']}", *pointers, table)


ROWS: Final[dict[str, Row]] = {
    "Gather": Row(_gather, dense=True),
    "GatherElements": Row(_elements, dense=True),
    "GatherND": Row(_gather_nd, dense=True),
    "ScatterElements": Row(_elements, (0,), dense=True),
    "ScatterND": Row(_scatter_nd, (0,), dense=True),
    "OneHot": Row(_one_hot, dense=True),
    "TopK": Row(_top_k, dense=True),
}
