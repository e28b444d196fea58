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


def traced_size(number: Any) -> Any:
    """A number of a trace: a plain one, or an expression where sizes decide it. O(terms).

    What only the data knows, and what is no integer, stays as it is.

    Raises:
        CaptureError: an integer of sizes that no size expression can hold.
    """
    if isinstance(number, torch.SymInt):
        if not private.is_backed(number):
            return number
        size = size_of_formula(private.formula(number))
        return size.constant_value() if size.is_constant else size
    return number


def traced_sizes(numbers: Any) -> tuple[Any, ...]:
    """Each number of a shape, strides or the like as `traced_size` gives it."""
    return tuple([number if type(number) is int else traced_size(number) for number in numbers])


def is_of_sizes(number: Any) -> bool:
    """Whether a symbolic number follows from sizes alone."""
    return isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) and private.is_backed(number)


def is_of_data(number: Any) -> bool:
    """Whether only the data knows a number."""
    return isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) and not private.is_backed(number)


def size_of_formula(formula: Any) -> SizeExpr:
    """A sympy expression of integers as a size expression.

    Raises:
        CaptureError: it holds a function that size expressions do not know.
    """
    if formula.is_Integer:
        return SizeExpr.const(int(formula))
    if formula.is_Symbol:
        return SizeExpr.dim(str(formula))
    make = _FUNCTIONS.get(type(formula).__name__)
    if make is None:
        raise CaptureError(
            f"the step computes the size {formula}",
            why=f"{type(formula).__name__} of a size is no size that a program can carry",
            next_step="compute it with +, -, *, // and %, or leave that dim out of dynamic=",
        )
    return make(*formula.args)


def _sum(*terms: Any) -> SizeExpr:
    return reduce(SizeExpr.__add__, map(size_of_formula, terms))


def _product(*factors: Any) -> SizeExpr:
    return reduce(SizeExpr.__mul__, map(size_of_formula, factors))


def _power(base: Any, exponent: Any) -> SizeExpr:
    if not exponent.is_Integer or exponent < 0:
        raise CaptureError(f"the step computes the size {base}**{exponent}", why="it is no whole number")
    return reduce(SizeExpr.__mul__, [size_of_formula(base)] * int(exponent), SizeExpr.const(1))


def _maximum(*sizes: Any) -> SizeExpr:
    return reduce(maximum, map(size_of_formula, sizes))


def _minimum(*sizes: Any) -> SizeExpr:
    return -reduce(maximum, [-size_of_formula(size) for size in sizes])


def _quotient(x: Any, y: Any) -> SizeExpr:
    return floordiv(size_of_formula(x), size_of_formula(y))


def _remainder(x: Any, y: Any) -> SizeExpr:
    return modulo(size_of_formula(x), size_of_formula(y))


def _rounded_down(number: Any) -> SizeExpr:
    """Of a quotient of whole numbers, which is exact as a float up to 2**53."""
    if type(number).__name__ == "IntTrueDiv":
        return _quotient(*number.args)
    return size_of_formula(number)


def _rounded_up(number: Any) -> SizeExpr:
    if type(number).__name__ == "IntTrueDiv":
        x, y = map(size_of_formula, number.args)
        return -floordiv(-x, y)
    return size_of_formula(number)


_FUNCTIONS: Mapping[str, Callable[..., SizeExpr]] = MappingProxyType(
    {
        "Add": _sum,
        "Mul": _product,
        "Pow": _power,
        "PowByNatural": _power,
        "Max": _maximum,
        "Min": _minimum,
        "FloorDiv": _quotient,
        "CleanDiv": _quotient,
        "Mod": _remainder,
        "PythonMod": _remainder,
        "FloorToInt": _rounded_down,
        "TruncToInt": _rounded_down,
        "CeilToInt": _rounded_up,
        "Identity": size_of_formula,
        "ToFloat": size_of_formula,
    }
)
