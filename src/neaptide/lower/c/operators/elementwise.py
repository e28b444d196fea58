"""Element-wise operators: one expression of C each. `u` and `v` are attributes, `@F@` is the suffix of the float functions."""

from __future__ import annotations

from typing import Final

import numpy as np

from neaptide.lower.c.code import element_wise
from neaptide.lower.c.operators.node_call import Emit, NodeCall, Row
from neaptide.lower.c.views import View

UNARY: Final[dict[str, str]] = {
    "Abs": "a < 0 ? -a : a",
    "Neg": "-a",
    "Relu": "a < 0 ? 0 : a",
    "Reciprocal": "1 / a",
    "Sign": "(a > 0) - (a < 0)",
    "Not": "!a",
    "Round": "rint@F@(a)",
    "Sigmoid": "1 / (1 + exp@F@(-a))",
    "Softplus": "(a > 0 ? a : 0) + log1p@F@(exp@F@(-fabs@F@(a)))",
    "Softsign": "a / (1 + fabs@F@(a))",
    "HardSwish": "a * (a < -3 ? 0 : a > 3 ? 1 : a / 6 + 0.5f)",
    "Mish": "a * tanh@F@((a > 0 ? a : 0) + log1p@F@(exp@F@(-fabs@F@(a))))",
    "IsNaN": "a != a",
    "Identity": "a",
    "Dropout": "a",
} | {
    name: f"{name.lower()}@F@(a)"
    for name in (
        *("Exp", "Log", "Sqrt", "Erf", "Floor", "Ceil"),
        *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"),
        *("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    )
}

# With the attributes that `u` and `v` stand for, and their defaults.
_WITH_NUMBERS: Final[dict[str, tuple[str, tuple[tuple[str, float], ...]]]] = {
    "LeakyRelu": ("a < 0 ? u * a : a", (("alpha", 0.01),)),
    "Elu": ("a < 0 ? u * expm1@F@(a) : a", (("alpha", 1.0),)),
    "Celu": ("a < 0 ? u * expm1@F@(a / u) : a", (("alpha", 1.0),)),
    "Selu": ("v * (a > 0 ? a : u * expm1@F@(a))", (("alpha", 1.67326319), ("gamma", 1.05070102))),
    "ThresholdedRelu": ("a > u ? a : 0", (("alpha", 1.0),)),
    "HardSigmoid": ("u * a + v < 0 ? 0 : u * a + v > 1 ? 1 : u * a + v", (("alpha", 0.2), ("beta", 0.5))),
    "Swish": ("a / (1 + exp@F@(-u * a))", (("alpha", 1.0),)),
}

_BINARY: Final[dict[str, str]] = {
    "Add": "a + b",
    "Sub": "a - b",
    "Mul": "a * b",
    "Div": "a / b",
    "And": "a && b",
    "Or": "a || b",
    "Xor": "!a != !b",
    "Equal": "a == b",
    "Greater": "a > b",
    "Less": "a < b",
    "GreaterOrEqual": "a >= b",
    "LessOrEqual": "a <= b",
    "PRelu": "a < 0 ? a * b : a",
}

_VARIADIC: Final = {"Sum": "a + b", "Mean": "a + b", "Max": "a > b ? a : b", "Min": "a < b ? a : b"}


def _unary(expression: str) -> Emit:
    return lambda call: call.map(expression, [call.x()])


def _with_numbers(expression: str, numbers: tuple[tuple[str, float], ...]) -> Emit:
    return lambda call: call.map(
        expression, [call.x()], *(call.number(name, default) for name, default in numbers)
    )


def _binary(expression: str) -> Emit:
    return lambda call: call.map(expression, [call.x(0), call.x(1)])


def _variadic(call: NodeCall) -> None:
    result = call.y()
    expression = _VARIADIC[call.op]
    if len(call.operands) == 1:
        call.copy(call.x(), result)
        return
    call.map(expression, [call.x(0), call.x(1)])
    for position in range(2, len(call.operands)):
        call.map(expression, [result, call.x(position)])
    if call.op == "Mean":
        call.map("a * u", [result], 1 / len(call.operands), name="scale")


_POWERS: Final = {
    1.0: ("power_one", "a"),
    2.0: ("square", "a * a"),
    3.0: ("cube", "a * a * a"),
    0.5: ("square_root", "sqrt@F@(a)"),
}


def _power(call: NodeCall) -> None:
    exponent = call.constants[1]
    number = float(exponent.reshape(-1)[0]) if exponent is not None and exponent.size == 1 else 0.0
    if number in _POWERS:
        name, expression = _POWERS[number]
        call.map(expression, [call.x()], name=name)
    else:
        call.map("pow@F@(a, b)", [call.x(0), call.x(1)])


def _modulo(call: NodeCall) -> None:
    is_float = call.x().dtype.startswith("float")
    if is_float and call.integer("fmod"):
        call.map("fmod@F@(a, b)", [call.x(0), call.x(1)])
    elif is_float:
        rest = "fmod@F@(a, b)"
        text = f"{rest} + ({rest} != 0 && ({rest} < 0) != (b < 0) ? b : 0)"
        call.map(text, [call.x(0), call.x(1)], name="modulo")
    elif call.integer("fmod") or call.x().dtype.startswith("u"):
        call.map("a % b", [call.x(0), call.x(1)], name="remainder")
    else:
        call.map("(a % b + b) % b", [call.x(0), call.x(1)])


def _gelu(call: NodeCall) -> None:
    if call.text("approximate", "none") == "tanh":
        text = "0.5f * a * (1 + tanh@F@(0.7978845608f * (a + 0.044715f * a * a * a)))"
        call.map(text, [call.x()], name="gelu_tanh")
    else:
        call.map("0.5f * a * (1 + erf@F@(a * 0.7071067812f))", [call.x()])


def _is_infinite(call: NodeCall) -> None:
    signs = (call.integer(f"detect_{sign}", 1) for sign in ("positive", "negative"))
    call.map("(u != 0 && a == INFINITY) || (v != 0 && a == -INFINITY)", [call.x()], *signs)


def _cast(call: NodeCall) -> None:
    expression = "a != 0" if call.y().dtype == "bool" else "a"
    call.map(expression, [call.x()], name="cast_" + ("bool" if call.y().dtype == "bool" else "number"))


def _clip(call: NodeCall) -> None:
    x = call.x()
    low, high = range_of(x.dtype)
    if call.version < 11:
        bounds = [call.number("min", low), call.number("max", high)]
        operands = [call.code.scalar(x.dtype, bound) for bound in bounds]
    else:
        operands = [
            call.x(position) if call.has(position) else call.code.scalar(x.dtype, bound)
            for position, bound in ((1, low), (2, high))
        ]
    call.map("a < b ? b : a > c ? c : a", [x, *operands])


def range_of(dtype: str) -> tuple[float, float]:
    """Least and greatest number of an element type; infinities for floats."""
    if dtype.startswith("float"):
        return float("-inf"), float("inf")
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _where(call: NodeCall) -> None:
    call.map("a ? b : c", [call.x(0), call.x(1), call.x(2)])


def fill(call: NodeCall, value: float, target: View) -> None:
    """Set all elements of a tensor to a number."""
    element_wise(call.code, "copy", "a", [call.code.scalar(target.dtype, value)], target)


ROWS: Final[dict[str, Row]] = {
    **{name: Row(_unary(text), (0,)) for name, text in UNARY.items()},
    **{name: Row(_with_numbers(*row), (0,)) for name, row in _WITH_NUMBERS.items()},
    **{name: Row(_binary(text), (0, 1)) for name, text in _BINARY.items()},
    **{name: Row(_variadic, (0, 1)) for name in _VARIADIC},
    "Pow": Row(_power, (0, 1)),
    "Mod": Row(_modulo, (0, 1)),
    "Gelu": Row(_gelu, (0,)),
    "IsInf": Row(_is_infinite),
    "Cast": Row(_cast, (0,)),
    "Clip": Row(_clip, (0,)),
    "Where": Row(_where, (0, 1, 2)),
}
