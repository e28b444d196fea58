"""Sizes of a trace as size expressions: what torch writes in sympy, exactly, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Any, Literal

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.recording import _torch_sizes as private
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.ranges import Interval, decided
from neaptide.symbolic.size_expr import SizeExpr, floordiv, maximum, modulo

Sign = Literal["<=", "!="]


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of sizes that the line `where` asked for, and that does not hold for all sizes in the ranges."""

    left: SizeExpr
    sign: Sign
    right: SizeExpr
    where: str = ""

    def dims(self) -> frozenset[str]:
        """Names of the dims that it compares."""
        return self.left.dims() | self.right.dims()

    def holds(self, binding: Mapping[str, int]) -> bool:
        """Whether it is true for these sizes."""
        left, right = self.left.evaluate(binding), self.right.evaluate(binding)
        return left <= right if self.sign == "<=" else left != right

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True)
class SizeFacts:
    """For which sizes a trace holds.

    Attributes:
        dims: that the program's sizes are made of; what the step fixed is none of them.
        relations: equalities between those.
        conditions: that a call has to keep beside ranges and relations.
        meaning: by symbol of the trace, the size that it stands for.
        asked: by dim that was asked for, its size in the program: itself, another dim, or a number.
        narrowed: by dim whose range is smaller than was asked for: that range, the lines that asked, and what is beyond it.
        ties: what else the program asks of sizes, in words.
    """

    dims: tuple[Dim, ...] = ()
    relations: tuple[Relation, ...] = ()
    conditions: tuple[Condition, ...] = ()
    meaning: Mapping[str, SizeExpr] = field(default_factory=dict)
    asked: Mapping[str, SizeExpr] = field(default_factory=dict)
    narrowed: Mapping[str, tuple[Dim, tuple[str, ...]]] = field(default_factory=dict)
    ties: tuple[str, ...] = ()
    _sizes: dict[SizeExpr, SizeExpr] = field(default_factory=dict, repr=False, compare=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the program holds for less than was asked, in words."""
        notes = []
        for held in self.dims:
            if held.name in self.narrowed:
                wanted, told = self.narrowed[held.name]
                why = f": {'; '.join(told)}" if told else ""
                notes.append(f"the program holds for {held}, asked for was {wanted}{why}")
        return (*notes, *self.ties)

    def with_range(self, wider: Dim) -> SizeFacts:
        """The same with another range of one dim; one as wide as was asked for is not noted."""
        dims = tuple(wider if dim.name == wider.name else dim for dim in self.dims)
        kept = {name: why for name, why in self.narrowed.items() if name != wider.name or why[0] != wider}
        return replace(self, dims=dims, narrowed=kept, _sizes={})

    def with_remark(self, name: str, text: str) -> SizeFacts:
        """The same, with more said of why the range of a dim is smaller than was asked for."""
        if name not in self.narrowed:
            return self
        wanted, told = self.narrowed[name]
        return replace(self, narrowed={**self.narrowed, name: (wanted, (*told, text))})

    def hold(self, binding: Mapping[str, int]) -> bool:
        """Whether the trace holds for these sizes of its dims."""
        return (
            all(binding[dim.name] in dim for dim in self.dims)
            and all(r.left.evaluate(binding) == r.right.evaluate(binding) for r in self.relations)
            and all(condition.holds(binding) for condition in self.conditions)
        )

    def size(self, number: Any) -> SizeExpr:
        """A size of the trace in dims of the program."""
        if isinstance(number, SizeExpr):
            known = self._sizes.get(number)
            if known is None:
                ranges = {dim.name: Interval(dim.low, dim.high) for dim in self.dims}
                known = self._sizes[number] = decided(number.substitute(self.meaning), ranges)
            return known
        return SizeExpr.const(int(number))


NO_SIZES = SizeFacts()


# -- sizes in a trace


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
