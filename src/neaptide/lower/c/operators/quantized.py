"""Integer operators: QuantizeLinear, DequantizeLinear, and those of two integer tensors with scales."""

from __future__ import annotations

from typing import Final

import numpy as np

from neaptide.ir.values import DTYPE_WORDS
from neaptide.lower.c.code import float_text
from neaptide.lower.c.operators.elementwise import range_of
from neaptide.lower.c.operators.layers import conv_numbers, matrices, product_numbers, two_spatial_axes
from neaptide.lower.c.operators.node_call import NodeCall, Row, typed
from neaptide.lower.c.views import View, product


def _along(call: NodeCall, view: View) -> View:
    """A scale or zero point as it lies along the quantised axis of operand 0."""
    rank = len(call.x().dims)
    if view.numel == 1:
        return view.reshaped(())
    if len(view.dims) != 1:
        raise call.refusal("has blocks of scales")
    axis = call.axis(1)
    dims = [1] * rank
    dims[axis] = view.dims[0]
    return view.reshaped(dims)


def _quantize(call: NodeCall) -> None:
    y = call.y()
    low, high = range_of(y.dtype)
    zero = _along(call, call.x(2)) if call.has(2) else call.code.scalar(y.dtype, 0)
    call.code.kernel("round_to")
    text = f"nt_round_to(a / b, c, {int(low)}, {int(high)})"
    call.map(text, [call.x(), _along(call, call.x(1)), zero], name="quantize")


def _dequantize(call: NodeCall) -> None:
    x = call.x()
    zero = _along(call, call.x(2)) if call.has(2) else call.code.scalar(x.dtype, 0)
    call.map("(float)(a - c) * b", [x, _along(call, call.x(1)), zero], name="dequantize")


def _one(call: NodeCall, position: int, default: float = 0.0) -> float:
    """A scale or zero point of a whole tensor."""
    found = call.known(position)
    if found is None:
        return default
    if found.size != 1:
        raise call.refusal(f"has a scale by channel as operand {position}")
    return float(found.reshape(-1)[0])


def _limits(y: View) -> tuple[int, int]:
    low, high = range_of(y.dtype)
    return int(low), int(high)


def _step(view: View | None) -> int:
    return 0 if view is None or view.numel == 1 else 1


def _three_types(x: View, w: View, y: View) -> dict[str, str]:
    words = {key: DTYPE_WORDS[view.dtype] for key, view in (("X", x), ("W", w), ("Y", y))}
    return {**words, "T": x.c_type, "TW": w.c_type, "TY": y.c_type}


def _qconv(call: NodeCall) -> None:
    x, w, y = (two_spatial_axes(call, view) for view in (call.x(0), call.x(3), call.y()))
    b = call.x(8) if call.has(8) else None
    scale, zero = call.x(4), call.x(5) if call.has(5) else None
    numbers = conv_numbers(call, x, w, b, y, transposed=False)
    zeros = int(_one(call, 2)), int(_one(call, 7))
    table = call.code.table([*numbers, *zeros, *_limits(y), _step(zero)])
    tokens = _three_types(x, w, y)
    call.code.kernel("qconv", **tokens)
    call.code.call(
        f"nt_qconv_{tokens['X']}_{tokens['W']}_{tokens['Y']}",
        *(x.place.text, w.place.text, typed(b), y.place.text, table),
        *(typed(scale), str(_step(scale)), "0" if zero is None else zero.place.text),
        *(float_text(_one(call, 1)), float_text(_one(call, 6))),
    )


def _product(
    call: NodeCall, a: View, b: View, c: View | None, y: View, *, at: tuple[int, int, int], alpha: float = 1.0
) -> None:
    """An integer matrix product. `at`: positions of the zero point of a, of the scale of b, and of the scale of y."""
    a_zero, b_scale, y_scale = at
    scale, zero = call.x(b_scale), call.x(b_scale + 1) if call.has(b_scale + 1) else None
    zeros = int(_one(call, a_zero)), int(_one(call, y_scale + 1))
    table = call.code.table([*product_numbers(a, b, c, y), *zeros, *_limits(y)])
    tokens = _three_types(a, b, y)
    call.code.kernel("qmatmul", **tokens)
    call.code.call(
        f"nt_qmatmul_{tokens['X']}_{tokens['W']}_{tokens['Y']}",
        *(a.place.text, b.place.text, typed(c), y.place.text, table),
        *(typed(scale), str(_step(scale)), "0" if zero is None else zero.place.text, str(_step(zero))),
        *(float_text(alpha * _one(call, a_zero - 1)), float_text(_one(call, y_scale))),
    )


def _qmatmul(call: NodeCall) -> None:
    a, b, y = matrices(call.x(0), call.x(3), call.y())
    _product(call, a, b, None, y, at=(2, 4, 6))


def _qgemm(call: NodeCall) -> None:
    a, b, y = call.x(0), call.x(3), call.y()
    a = a.permuted((1, 0)) if call.integer("transA") else a
    b = b.permuted((1, 0)) if call.integer("transB") else b
    c = call.x(6).broadcast(y.dims) if call.has(6) else None
    _product(call, a, b, c, y, at=(2, 4, 7), alpha=call.number("alpha", 1.0))


def _qbinary(call: NodeCall) -> None:
    """QLinearAdd and QLinearMul."""
    a, b, y = call.x(0), call.x(3), call.y()
    sa, sb, sy = (np.float32(_one(call, position)) for position in (1, 4, 6))
    za, zb, zy = (int(_one(call, position)) for position in (2, 5, 7))
    low, high = _limits(y)
    call.code.kernel("round_to")
    numbers = [float_text(float(number)) for number in (sa, sb, sy)]
    left, right = f"(float)(a - {za}) * {numbers[0]}", f"(float)(b - {zb}) * {numbers[1]}"
    sign = "+" if call.op == "QLinearAdd" else "*"
    text = f"nt_round_to(({left} {sign} {right}) / {numbers[2]}, {zy}, {low}, {high})"
    call.map(text, [a, b], name=f"{call.op.lower()}_{len(call.code.kernels)}")


def _qmean(call: NodeCall) -> None:
    """QLinearGlobalAveragePool."""
    x, y = call.x(), call.y()
    if call.integer("channels_last"):
        raise call.refusal("has its channels last")
    inner = product(x.dims[2:])
    ratio = np.float32(_one(call, 1)) / (np.float32(_one(call, 3)) * np.float32(inner))
    numbers = x.dims[0] * x.dims[1], inner, int(_one(call, 2)), int(_one(call, 4)), *_limits(y)
    call.code.kernel("qmean", **call.tokens(x))
    pointers = typed(x), typed(y, written=True)
    name = f"nt_qmean_{call.tokens(x)['X']}"
    call.code.call(name, *pointers, call.code.table(numbers), float_text(float(ratio)))


ROWS: Final[dict[str, Row]] = {
    "QuantizeLinear": Row(_quantize),
    "DequantizeLinear": Row(_dequantize),
    "QLinearConv": Row(_qconv),
    "QLinearMatMul": Row(_qmatmul),
    "QGemm": Row(_qgemm),
    "QLinearAdd": Row(_qbinary, (0, 3)),
    "QLinearMul": Row(_qbinary, (0, 3)),
    "QLinearGlobalAveragePool": Row(_qmean, dense=True),
}
