"""Derivatives of element-wise operators.

A rule has one expression per input: the adjoint before broadcasting is undone. It reads the result or a mask of it, not the
input, where the result says enough. At a kink (a bound of Clip, zero of Relu) the derivative is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from neaptide.autodiff.call import Call, Rule
from neaptide.autodiff.emitter import BOOL, Tensor

Expression: TypeAlias = Callable[[Call], Tensor]


def _identity(c: Call) -> Tensor:
    return c.g.apply("Identity")


def _power_base(c: Call) -> Tensor:
    value = c.node.inputs[1]
    assert value is not None
    fixed = value.const_value is not None and not value.is_graph_input() and value.const_value.size == 1
    if not fixed:
        exponent = c.b.cast(c.a.dtype)
        return c.g * exponent * c.a.apply("Pow", exponent - 1)
    array = c.array(1)
    assert array is not None
    number = float(array.item())
    if number == 2:
        return c.g * (c.a * 2)
    return c.g * (c.a.apply("Pow", number - 1) * number)


def _clip(c: Call) -> Tensor:
    inside = None
    for index, sign in ((1, 1), (2, -1)):
        bound = c.optional(index)
        if bound is not None:
            mask = c.y > bound if sign > 0 else c.y < bound
            inside = mask if inside is None else inside.apply("And", mask, dtype=BOOL)
    return _identity(c) if inside is None else inside.where(c.g, 0)


def _gelu(c: Call) -> Tensor:
    if c.attribute("approximate", "none") == "tanh":
        slope, cubic = math.sqrt(2 / math.pi), 0.044715
        t = ((c.a * c.a * cubic + 1) * c.a * slope).apply("Tanh")
        inner = (c.a * c.a * (3 * cubic) + 1) * slope
        return c.g * ((t + 1) * 0.5 + c.a * (1 - t * t) * inner * 0.5)
    normal = ((c.a * math.sqrt(0.5)).apply("Erf") + 1) * 0.5
    return c.g * (normal + c.a * _gauss(c.a, 0.5) * (1 / math.sqrt(2 * math.pi)))


def _gauss(x: Tensor, factor: float) -> Tensor:
    """`exp(-factor x^2)`."""
    return (x * x * -factor).apply("Exp")


def _hard_sigmoid(c: Call) -> Tensor:
    inside = (c.y > 0).apply("And", c.y < 1, dtype=BOOL)
    return inside.where(c.g * c.attribute("alpha", 0.2), 0)


def _hard_swish(c: Call) -> Tensor:
    inner = (c.a < 3).where(c.g * (c.a * (1 / 3) + 0.5), c.g)
    return (c.a > -3).where(inner, 0)


def _elu(c: Call) -> Tensor:
    return (c.y > 0).where(c.g, c.g * (c.y + c.attribute("alpha", 1.0)))


def _selu(c: Call) -> Tensor:
    alpha, gamma = c.attribute("alpha", 1.6732632), c.attribute("gamma", 1.050701)
    return (c.y > 0).where(c.g * gamma, c.g * (c.y + alpha * gamma))


def _leaky_relu(c: Call) -> Tensor:
    alpha: float = c.attribute("alpha", 0.01)
    return (c.y > 0 if alpha >= 0 else c.a > 0).where(c.g, c.g * alpha)


def _mish(c: Call) -> Tensor:
    t = c.a.apply("Softplus").apply("Tanh")
    return c.g * (t + c.a * (1 - t * t) * c.a.apply("Sigmoid"))


def _swish(c: Call) -> Tensor:
    alpha: float = c.attribute("alpha", 1.0)
    s = (c.a * alpha).apply("Sigmoid")
    return c.g * (s + c.y * (1 - s) * alpha)


EXPRESSIONS: Final[Mapping[str, tuple[Expression, ...]]] = {
    "Add": (_identity, _identity),
    "Sub": (_identity, lambda c: -c.g),
    "Mul": (lambda c: c.g * c.b, lambda c: c.g * c.a),
    "Div": (lambda c: c.g / c.b, lambda c: -(c.g / c.b * c.y)),
    "Neg": (lambda c: -c.g,),
    "Identity": (_identity,),
    "Pow": (_power_base, lambda c: (c.g * c.y * c.a.apply("Log")).cast(c.b.dtype)),
    "Reciprocal": (lambda c: -(c.g * (c.y * c.y)),),
    "Sqrt": (lambda c: c.g * 0.5 / c.y,),
    "Exp": (lambda c: c.g * c.y,),
    "Log": (lambda c: c.g / c.a,),
    "Sin": (lambda c: c.g * c.a.apply("Cos"),),
    "Cos": (lambda c: -(c.g * c.a.apply("Sin")),),
    "Tan": (lambda c: c.g * (c.y * c.y + 1),),
    "Atan": (lambda c: c.g / (c.a * c.a + 1),),
    "Asin": (lambda c: c.g / (1 - c.a * c.a).apply("Sqrt"),),
    "Acos": (lambda c: -(c.g / (1 - c.a * c.a).apply("Sqrt")),),
    "Sinh": (lambda c: c.g * c.a.apply("Cosh"),),
    "Cosh": (lambda c: c.g * c.a.apply("Sinh"),),
    "Tanh": (lambda c: c.g * (1 - c.y * c.y),),
    "Sigmoid": (lambda c: c.g * c.y * (1 - c.y),),
    "Softplus": (lambda c: c.g * (1 - (-c.y).apply("Exp")),),
    "Softsign": (lambda c: c.g / (c.a.apply("Abs") + 1) / (c.a.apply("Abs") + 1),),
    "Relu": (lambda c: (c.y > 0).where(c.g, 0),),
    "LeakyRelu": (_leaky_relu,),
    "ThresholdedRelu": (lambda c: (c.a > c.attribute("alpha", 1.0)).where(c.g, 0),),
    "PRelu": (
        lambda c: (c.a > 0).where(c.g, c.g * c.b),
        lambda c: (c.a > 0).where(0, c.g * c.a),
    ),
    "Elu": (_elu,),
    "Selu": (_selu,),
    "Mish": (_mish,),
    "Swish": (_swish,),
    "Clip": (_clip,),
    "Erf": (lambda c: c.g * (_gauss(c.a, 1) * (2 / math.sqrt(math.pi))),),
    "Gelu": (_gelu,),
    "HardSigmoid": (_hard_sigmoid,),
    "HardSwish": (_hard_swish,),
    "Abs": (lambda c: c.g * c.a.apply("Sign"),),
}
"""The adjoint of each input, with the shape of the result; inputs beyond have none."""


def _from(expressions: tuple[Expression, ...]) -> Rule:
    def rule(c: Call) -> list[Tensor | None]:
        pairs = zip(expressions, c.wanted, strict=False)
        return [c.reduced(make(c), c.input(i)) if wanted else None for i, (make, wanted) in enumerate(pairs)]

    return rule


def _where(c: Call) -> list[Tensor | None]:
    one, other = c.a.where(c.g, 0), c.a.where(0, c.g)
    return [None, c.reduced(one, c.input(1)), c.reduced(other, c.input(2))]


def _sum(c: Call) -> list[Tensor | None]:
    """Sum and Mean of any number of inputs."""
    count = len(c.node.inputs)
    adjoint = c.g * (1 / count) if c.node.op_type == "Mean" else c.g
    return [c.reduced(adjoint.apply("Identity"), c.input(i)) for i in range(count)]


def _extreme(c: Call) -> list[Tensor | None]:
    """Min and Max: the first input that is equal to the result takes the adjoint."""
    rest, found = c.g, []
    for index in range(len(c.node.inputs)):
        mask = c.y.equal(c.input(index))
        found.append(c.reduced(mask.where(rest, 0), c.input(index)))
        rest = mask.where(0, rest)
    return list(found)


def _cast(c: Call) -> list[Tensor | None]:
    return [c.g.cast(c.a.dtype)]


def _dropout(c: Call) -> list[Tensor | None]:
    """Saves the mask, not the input."""
    training = c.array(2)
    if training is None or not training.item():
        return [_identity(c)]
    ratio = c.array(1)
    kept = 1 - (0.5 if ratio is None else float(ratio.item()))
    return [c.result(1, BOOL).where(c.g * (1 / kept), 0)]


RULES: Final[Mapping[str, Rule]] = {
    **{op: _from(expressions) for op, expressions in EXPRESSIONS.items()},
    "Where": _where,
    "Sum": _sum,
    "Mean": _sum,
    "Min": _extreme,
    "Max": _extreme,
    "Cast": _cast,
    "CastLike": _cast,
    "Dropout": _dropout,
}
