"""How ONNX convolutions and pools read rows and columns: kernel, stride, dilation and padding, with `auto_pad` resolved."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.ir.registry import Call
from neaptide.ops.axes.forms import numbers
from neaptide.symbolic.size_expr import SizeExpr


@dataclass(frozen=True, slots=True)
class WindowForm:
    """One spatial dim; `before` and `after` are elements of padding."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int


def window_forms(call: Call, kernel: tuple[SizeExpr, ...]) -> tuple[WindowForm, ...] | None:
    """The windows of a call, one for each spatial dim; None where a size is symbolic or an attribute has another form.

    `SAME_UPPER` and `SAME_LOWER` pad so that the result has an element for each stride, the odd one behind or in front.
    """
    count, given = len(kernel), call.inputs()[0].shape[2:]
    if len(given) != count or not all(extent.is_constant for extent in (*kernel, *given)):
        return None
    steps = numbers(call.node.kwarg("strides")) or (1,) * count
    apart = numbers(call.node.kwarg("dilations")) or (1,) * count
    pads = numbers(call.node.kwarg("pads")) or (0,) * (2 * count)
    if len(steps) != count or len(apart) != count or len(pads) != 2 * count:
        return None
    how = call.node.kwarg("auto_pad", "NOTSET")
    found = []
    for k in range(count):
        size, extent = kernel[k].constant_value(), given[k].constant_value()
        before, after = pads[k], pads[count + k]
        if how == "VALID":
            before = after = 0
        elif how in ("SAME_UPPER", "SAME_LOWER"):
            made = -(-extent // steps[k])
            total = max(0, (made - 1) * steps[k] + apart[k] * (size - 1) + 1 - extent)
            less, more = total // 2, total - total // 2
            before, after = (less, more) if how == "SAME_UPPER" else (more, less)
        elif how != "NOTSET":
            return None
        found.append(WindowForm(size, steps[k], apart[k], before, after))
    return tuple(found)


def windows_of(call: Call) -> tuple[WindowForm, ...] | None:
    """The windows of a convolution, by its filters, or of a pool; None where `window_forms` knows none."""
    filters = call.value(3 if ".QLinearConv." in call.node.op else 1)
    kernel = numbers(call.node.kwarg("kernel_shape"))
    sizes = filters.shape[2:] if filters is not None else tuple(map(SizeExpr.const, kernel or ()))
    return window_forms(call, sizes) if sizes else None
