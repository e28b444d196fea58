"""Sizes of a trace as size expressions: what torch writes in sympy, exactly, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.recording import _torch_sizes as private
from neaptide.symbolic.size_expr import SizeExpr, floordiv, maximum, modulo

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def traced_size(number: Any) -> Any:
    """A number of a trace: a plain one, or an expression where sizes decide it. O(terms).

    What only the data knows, and what is no integer, stays as it is.
    """
    if not isinstance(number, torch.SymInt) or not private.is_backed(number):
        return number
    size = size_of_formula(private.formula(number))
    return size.constant_value() if size.is_constant else size


def traced_sizes(numbers: Any) -> tuple[Any, ...]:
    """Each number of a shape, strides or the like as `traced_size` gives it."""
    return tuple([number if type(number) is int else traced_size(number) for number in numbers])


def is_of_sizes(number: Any) -> bool:
    """Whether a symbolic number follows from sizes alone."""
    return isinstance(number, _SYMBOLS) and private.is_backed(number)


def is_of_data(number: Any) -> bool:
    """Whether only the data knows a number."""
    return isinstance(number, _SYMBOLS) and not private.is_backed(number)


def size_of_formula(formula: Any) -> SizeExpr:
    """A sympy expression of integers as a size expression."""
    if formula.is_Integer:
        return SizeExpr.const(int(formula))
    if formula.is_Symbol:
        return SizeExpr.dim(str(formula))
    kind = type(formula).__name__
    if kind in _ROUNDED:
        (number,) = formula.args
        if type(number).__name__ != "IntTrueDiv":
            return size_of_formula(number)
        return _ROUNDED[kind](*map(size_of_formula, number.args))
    if kind in _POWERS:
        return _power(*formula.args)
    make = _FUNCTIONS.get(kind)
    if make is None:
        raise CaptureError(
            f"the step computes the size {formula}",
            why=f"{kind} of a size is no size that a program can carry",
            next_step="compute it with +, -, *, // and %, or leave that dim out of dynamic=",
        )
    return make(*map(size_of_formula, formula.args))


def _power(base: Any, exponent: Any) -> SizeExpr:
    if not exponent.is_Integer or exponent < 0:
        raise CaptureError(f"the step computes the size {base}**{exponent}", why="it is no whole number")
    return reduce(SizeExpr.__mul__, [size_of_formula(base)] * int(exponent), SizeExpr.const(1))


_POWERS = frozenset({"Pow", "PowByNatural"})
# Of a quotient of whole numbers, which is exact as a float up to 2**53.
_ROUNDED: Mapping[str, Callable[..., SizeExpr]] = MappingProxyType(
    {"FloorToInt": floordiv, "TruncToInt": floordiv, "CeilToInt": lambda x, y: -floordiv(-x, y)}
)
_FUNCTIONS: Mapping[str, Callable[..., SizeExpr]] = MappingProxyType(
    {
        "Add": lambda *terms: reduce(SizeExpr.__add__, terms),
        "Mul": lambda *factors: reduce(SizeExpr.__mul__, factors),
        "Max": lambda *sizes: reduce(maximum, sizes),
        "Min": lambda *sizes: -reduce(maximum, [-size for size in sizes]),
        "FloorDiv": floordiv,
        "CleanDiv": floordiv,
        "Mod": modulo,
        "PythonMod": modulo,
        "Identity": lambda size: size,
        "ToFloat": lambda size: size,
    }
)
