"""Reductions, softmax and normalisations."""

from __future__ import annotations

from typing import Final

from neaptide.lower.c.code import MOST_AXES, float_text
from neaptide.lower.c.operators.node_call import NodeCall, Row, typed
from neaptide.lower.c.views import View, joined_axes, product

# Start, step and end of an accumulator.
_REDUCTIONS: Final[dict[str, tuple[str, str, str]]] = {
    "Sum": ("0", "acc + a", "acc"),
    "Mean": ("0", "acc + a", "acc / (float)size"),
    "Max": ("@LOWEST@", "a > acc ? a : acc", "acc"),
    "Min": ("@HIGHEST@", "a < acc ? a : acc", "acc"),
    "Prod": ("1", "acc * a", "acc"),
    "L1": ("0", "acc + (a < 0 ? -a : a)", "acc"),
    "L2": ("0", "acc + a * a", "sqrt@F@(acc)"),
    "SumSquare": ("0", "acc + a * a", "acc"),
    "LogSum": ("0", "acc + a", "log@F@(acc)"),
    "LogSumExp": ("0", "acc + exp@F@(a)", "log@F@(acc)"),
}


def _reduce(call: NodeCall) -> None:
    kind = call.op.removeprefix("Reduce")
    rank = len(call.x().dims)
    axes = call.integers("axes") or (call.known_integers(1) if call.has(1) else None) or []
    if not axes and call.integer("noop_with_empty_axes"):
        call.copy(call.x(), call.y())
        return
    reduce_axes(call, kind, [axis % rank for axis in axes] or list(range(rank)))


def _global_pool(call: NodeCall) -> None:
    kind = "Mean" if call.op == "GlobalAveragePool" else "Max"
    reduce_axes(call, kind, list(range(2, len(call.x().dims))))


def reduce_axes(call: NodeCall, kind: str, axes: list[int]) -> None:
    """Result 0 is operand 0 reduced along some axes, which it keeps with one element or loses."""
    x, y = call.x(), call.y()
    kept = [axis for axis in range(len(x.dims)) if axis not in axes]
    steps = [y.strides[axis] for axis in kept] if len(y.dims) == len(x.dims) else list(y.strides)
    extents, outer = joined_axes([x.dims[a] for a in kept], [[x.strides[a] for a in kept], steps])
    inner_extents, inner = joined_axes([x.dims[a] for a in axes], [[x.strides[a] for a in axes]])
    if max(len(extents), len(inner_extents)) > MOST_AXES:
        raise call.refusal("has too many axes", f"the most are {MOST_AXES}")
    tokens = call.tokens(x)
    kernel = f"nt_reduce_{kind.lower()}_{tokens['X']}"
    texts = [_filled(text, x.dtype) for text in _REDUCTIONS[kind]]
    call.code.kernel("reduce")
    text = f"NT_REDUCE({kernel}, {x.c_type}, {x.c_type}, {', '.join(texts)})\n"
    call.code.kernels.setdefault(text)
    table = [len(extents), *extents, *outer[0], *outer[1], len(inner_extents), *inner_extents, *inner[0]]
    call.code.call(kernel, x.place.text, y.place.text, call.code.table(table))


def _filled(text: str, dtype: str) -> str:
    is_float = dtype.startswith("float")
    name = dtype.removesuffix("_t").upper()
    lowest = "-INFINITY" if is_float else "0" if dtype.startswith("u") else f"{name}_MIN"
    text = text.replace("@LOWEST@", lowest).replace("@HIGHEST@", "INFINITY" if is_float else f"{name}_MAX")
    text = text.replace("(float)size", "size" if not is_float else f"({_float(dtype)})size")
    return text.replace("@F@", "" if dtype == "float64" else "f")


def _float(dtype: str) -> str:
    return "double" if dtype == "float64" else "float"


def _softmax(call: NodeCall) -> None:
    axis = call.axis(default=1 if call.version < 13 else -1)
    outer, count, inner = call.three_axes(axis)
    if call.version < 13:
        count, inner = count * inner, 1
    call.code.kernel("softmax", **call.tokens(call.x()))
    numbers = map(str, (outer, count, inner, int(call.op == "LogSoftmax")))
    kernel = f"nt_softmax_{call.tokens(call.x())['X']}"
    call.code.call(kernel, call.x().place.text, call.y().place.text, *numbers)


def _normalize(call: NodeCall, numbers: list[int], scale: View | None, bias: View | None) -> None:
    call.code.kernel("normalize", **call.tokens(call.x()))
    extra = [call.y(k).place.text if call.has_result(k) else "0" for k in (1, 2)]
    texts = ["0" if view is None else view.place.text for view in (scale, bias)]
    call.code.call(
        f"nt_normalize_{call.tokens(call.x())['X']}",
        *(call.x().place.text, *texts, call.y().place.text, *extra),
        call.code.table(numbers),
        float_text(call.number("epsilon", 1e-5)),
    )


def _layer_norm(call: NodeCall) -> None:
    dims = call.x().dims
    axis = call.axis(-1)
    rows, count = product(dims[:axis]), product(dims[axis:])
    scale, bias = call.x(1), call.x(2) if call.has(2) else None
    if scale.numel != count or (bias is not None and bias.numel != count):
        raise call.refusal("has a scale of another shape than its axes")
    has_mean = int(call.op == "LayerNormalization")
    _normalize(call, [rows, count, 1, 0, 1, 1, has_mean], scale, bias)


def _instance_norm(call: NodeCall) -> None:
    n, c, *rest = call.x().dims
    _normalize(call, [n * c, product(rest), c, 1, product(rest), 0, 1], call.x(1), call.x(2))


def _group_norm(call: NodeCall) -> None:
    n, c, *rest = call.x().dims
    groups = call.integer("num_groups")
    if call.version < 21:
        raise call.refusal("of version 18 has one scale for each group")
    size = product(rest)
    _normalize(call, [n * groups, c // groups * size, groups, c // groups, size, 1, 1], call.x(1), call.x(2))


def _batch_norm(call: NodeCall) -> None:
    if call.integer("training_mode") or call.has_result(1):
        raise call.refusal("in training mode")
    x, y = call.x(), call.y()
    if len(x.dims) > 4:
        raise call.refusal(f"has {len(x.dims)} axes", "the most are 4")
    frames = []
    for view in (x, y):
        extra = 4 - len(view.dims)
        frames.append(View(view.place, view.dtype, view.dims + (1,) * extra, view.strides + (0,) * extra))
    call.code.kernel("batch_norm", **call.tokens(x))
    table = call.code.table([*frames[0].dims, *frames[0].strides, *frames[1].strides])
    places = [call.x(position).place.text for position in range(5)]
    epsilon = float_text(call.number("epsilon", 1e-5))
    call.code.call(f"nt_batch_norm_{call.tokens(x)['X']}", *places, y.place.text, table, epsilon)


def _lrn(call: NodeCall) -> None:
    n, c, *rest = call.x().dims
    call.code.kernel("lrn")
    table = call.code.table([n, c, product(rest), call.integer("size")])
    numbers = call.number("alpha", 1e-4), call.number("beta", 0.75), call.number("bias", 1.0)
    call.code.call("nt_lrn", typed(call.x()), typed(call.y(), written=True), table, *map(float_text, numbers))


def _arg_extreme(call: NodeCall) -> None:
    call.code.kernel("arg_extreme", **call.tokens(call.x()))
    sign = 1 if call.op == "ArgMax" else -1
    numbers = *call.three_axes(call.axis()), sign, call.integer("select_last_index")
    pointers = typed(call.x()), typed(call.y(), written=True)
    call.code.call(f"nt_arg_extreme_{call.tokens(call.x())['X']}", *pointers, *map(str, numbers))


def _cumulative_sum(call: NodeCall) -> None:
    axis = (call.known_integers(1) or [0])[0] % len(call.x().dims)
    call.code.kernel("cumulative_sum", **call.tokens(call.x()))
    numbers = *call.three_axes(axis), call.integer("exclusive"), call.integer("reverse")
    pointers = typed(call.x()), typed(call.y(), written=True)
    call.code.call(f"nt_cumulative_sum_{call.tokens(call.x())['X']}", *pointers, *map(str, numbers))


ROWS: Final[dict[str, Row]] = {
    **{f"Reduce{kind}": Row(_reduce) for kind in _REDUCTIONS},
    "GlobalAveragePool": Row(_global_pool),
    "GlobalMaxPool": Row(_global_pool),
    "Softmax": Row(_softmax, (0,), dense=True),
    "LogSoftmax": Row(_softmax, (0,), dense=True),
    "LayerNormalization": Row(_layer_norm, (0,), dense=True),
    "RMSNormalization": Row(_layer_norm, (0,), dense=True),
    "InstanceNormalization": Row(_instance_norm, (0,), dense=True),
    "GroupNormalization": Row(_group_norm, (0,), dense=True),
    "BatchNormalization": Row(_batch_norm, (0,)),
    "LRN": Row(_lrn, dense=True),
    "ArgMax": Row(_arg_extreme, dense=True),
    "ArgMin": Row(_arg_extreme, dense=True),
    "CumSum": Row(_cumulative_sum, (0,), dense=True),
}
