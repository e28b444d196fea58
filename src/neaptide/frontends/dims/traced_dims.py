"""The dims of a trace that may vary: symbols that stand for them, and the lines that asked for their sizes."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.card.pretended import device_of_copy
from neaptide.frontends.dims.dynamic_dims import SMALLEST, DynamicDim, axes_inwards, dense_strides, examples
from neaptide.frontends.objects.places import all_replaced
from neaptide.frontends.recording import _torch_sizes as private
from neaptide.frontends.recording.traced_sizes import NO_SIZES, Condition, SizeFacts, size_of_formula
from neaptide.frontends.source.trace_errors import library_line, location, users_line
from neaptide.frontends.source.users_code import is_ours
from neaptide.frontends.state.step_slots import argument_name
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.ranges import Interval, bound
from neaptide.symbolic.size_expr import SizeExpr

_LARGEST = 1 << 40  # up to which a bound is looked for where a range has no end


@dataclass(frozen=True)
class Assumption:
    """What a trace has taken for true: a sympy formula of sizes, and the line that asked."""

    formula: Any
    where: str


class Settling:
    """Finds out for which sizes a trace holds."""

    def __init__(
        self,
        dims: Sequence[DynamicDim],
        symbols: Mapping[str, str],
        known: Mapping[str, Any],
        example: Mapping[str, int],
    ) -> None:
        self.dims, self.example = dims, example
        self.names = {symbol: SizeExpr.dim(name) for symbol, name in symbols.items()}
        self.asked = {
            name: size_of_formula(formula).substitute(self.names) for name, formula in known.items()
        }
        self.ranges = {dim.name: Interval(max(dim.low, SMALLEST), dim.high) for dim in dims}
        self.conditions: dict[str, Condition] = {}
        self.relations: dict[str, Relation] = {}
        self.lines: dict[str, dict[str, None]] = {dim.name: {} for dim in dims}

    def facts(self, assumed: Sequence[Assumption]) -> SizeFacts:
        """For which sizes it holds by what it assumed, in order."""
        equalities, conditions = self._read(assumed)
        for dim in self.dims:
            size = self._resolved(SizeExpr.dim(dim.name))
            if size != SizeExpr.dim(dim.name) and not size.is_constant:
                conditions.append(Condition(SizeExpr.const(max(dim.low, SMALLEST)), "<=", size))
                if dim.high is not None:
                    conditions.append(Condition(size, "<=", SizeExpr.const(dim.high)))
        resolved = [
            replace(c, left=self._resolved(c.left), right=self._resolved(c.right)) for c in conditions
        ]
        for condition in sorted(resolved, key=lambda c: len(c.dims())):
            self._hold(condition)
        for left, right, where in equalities:
            relation = Relation(self._resolved(left), self._resolved(right))
            if bound(relation.left - relation.right, self.ranges) != Interval(0, 0):
                self.relations[str(relation)] = relation
                for name in relation.dims():
                    self.lines[name][where] = None
        asked = {dim.name: self._resolved(SizeExpr.dim(dim.name)) for dim in self.dims}
        kept = {name for size in asked.values() for name in size.dims()}
        dims = tuple(
            Dim(d.name, self.ranges[d.name].low or 0, self.ranges[d.name].high)
            for d in self.dims
            if d.name in kept
        )
        meaning = {symbol: self._resolved(size) for symbol, size in self.names.items()}
        found = tuple(self.relations.values()), tuple(self.conditions.values())
        return SizeFacts(dims, *found, meaning, asked, self._narrowed(dims), tuple(self._ties(asked)))

    # -- what was assumed ----------------------------------------------------------------------------------------

    def _read(
        self, assumed: Sequence[Assumption]
    ) -> tuple[list[tuple[SizeExpr, SizeExpr, str]], list[Condition]]:
        """Equalities and conditions; sizes in a formula that is neither are fixed to those of the example."""
        equalities: list[tuple[SizeExpr, SizeExpr, str]] = []
        conditions: list[Condition] = []
        for assumption in assumed:
            for formula in self._parts(assumption.formula):
                self._note_lines(formula, assumption.where)
                kind = type(formula).__name__
                try:
                    left, right = (size_of_formula(side).substitute(self.names) for side in formula.args)
                except (CaptureError, ValueError):
                    self._fix(formula, assumption.where)
                    continue
                if kind == "Equality":
                    equalities.append((left, right, assumption.where))
                elif (made := _condition(kind, left, right, assumption.where)) is not None:
                    conditions.append(made)
                else:
                    self._fix(formula, assumption.where)
        return equalities, conditions

    def _parts(self, formula: Any) -> Iterator[Any]:
        """Comparisons that together are as strong as a formula; of alternatives that which the example meets."""
        kind = type(formula).__name__
        if kind == "And":
            for part in formula.args:
                yield from self._parts(part)
        elif kind == "Or":
            yield from self._parts(next(part for part in formula.args if self._is_met(part)))
        elif kind != "BooleanTrue":
            yield formula

    def _is_met(self, formula: Any) -> bool:
        sizes = {symbol: self.names[str(symbol)].evaluate(self.example) for symbol in formula.free_symbols}
        return bool(formula.xreplace({s: private.sympy_integer(size) for s, size in sizes.items()}))

    def _note_lines(self, formula: Any, where: str) -> None:
        for symbol in formula.free_symbols:
            for name in self.names[str(symbol)].dims():
                if self.asked[name] != SizeExpr.dim(name):
                    self.lines[name][where] = None

    def _fix(self, formula: Any, where: str) -> None:
        for symbol in formula.free_symbols:
            for name in self._resolved(self.names[str(symbol)]).dims():
                self.asked[name] = SizeExpr.const(self.example[name])
                self.lines[name][where] = None

    def _resolved(self, size: SizeExpr) -> SizeExpr:
        """In dims that are neither fixed nor equal to something else."""
        for _ in self.asked:
            size = size.substitute(self.asked)
        return size

    # -- to ranges and relations ---------------------------------------------------------------------------------

    def _hold(self, condition: Condition) -> None:
        """Drop a condition that is proved, narrow a range for one of a single dim, keep any other."""
        names = condition.dims()
        if not names or self._is_proved(condition):
            return
        if len(names) == 1:
            name = next(iter(names))
            self._narrow(name, condition)
            self.lines[name][condition.where] = None
        else:
            self.conditions[str(condition)] = condition

    def _is_proved(self, condition: Condition, **ranges: Interval) -> bool:
        difference = bound(condition.left - condition.right, {**self.ranges, **ranges})
        if condition.sign == "!=":
            return 0 not in difference
        return difference.high is not None and difference.high <= 0

    def _narrow(self, name: str, condition: Condition) -> None:
        """The widest range around the example for which a condition is proved, by halving."""
        example, whole = self.example[name], self.ranges[name]

        def proved(low: int, high: int) -> bool:
            return self._is_proved(condition, **{name: Interval(low, high)})

        low = _last(example, whole.low or 0, lambda n: proved(n, example))
        if whole.high is None and self._is_proved(condition, **{name: Interval(low, None)}):
            self.ranges[name] = Interval(low, None)
            return
        top = _LARGEST if whole.high is None else whole.high
        self.ranges[name] = Interval(low, _last(example, top, lambda n: proved(low, n)))

    # -- in words ------------------------------------------------------------------------------------------------

    def _told(self, name: str) -> tuple[str, ...]:
        return tuple(line for line in self.lines[name] if line)

    def _narrowed(self, dims: Sequence[Dim]) -> dict[str, tuple[Dim, tuple[str, ...]]]:
        held = {dim.name: dim for dim in dims}
        wanted = [Dim(dim.name, dim.low, dim.high) for dim in self.dims]
        return {dim.name: (dim, self._told(dim.name)) for dim in wanted if held.get(dim.name, dim) != dim}

    def _ties(self, asked: Mapping[str, SizeExpr]) -> Iterator[str]:
        for dim in self.dims:
            size, wanted = asked[dim.name], Dim(dim.name, dim.low, dim.high)
            told = f": {'; '.join(self._told(dim.name))}" if self._told(dim.name) else ""
            if size.is_constant and (dim.low, dim.high) != (size.constant_value(),) * 2:
                yield f"the program holds for {dim.name} = {size} only, asked for was {wanted}{told}"
            elif not size.is_constant and size != SizeExpr.dim(dim.name):
                yield f"the program holds where {dim.name} == {size}{told}"
        for relation in self.relations.values():
            yield f"the program holds where {relation}"
        for condition in self.conditions.values():
            yield f"the program holds where {condition}: {condition.where}"


def _condition(kind: str, left: SizeExpr, right: SizeExpr, where: str) -> Condition | None:
    if kind == "Unequality":
        return Condition(left, "!=", right, where)
    if kind in {"GreaterThan", "StrictGreaterThan"}:
        left, right = right, left
    if kind in {"StrictLessThan", "StrictGreaterThan"}:
        left = left + 1
    elif kind not in {"LessThan", "GreaterThan"}:
        return None
    return Condition(left, "<=", right, where)


def _last(first: int, end: int, holds: Callable[[int], bool]) -> int:
    """The number furthest from `first`, towards `end`, for which `holds` is true; it is true for all before that."""
    if holds(end):
        return end
    good, bad = first, end
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


# -- the dims of a trace


class TracedDims:
    """Symbols for dims, in the shape environment of one trace; one whose range is a single size is that number."""

    def __init__(self, mode: Any, dims: Sequence[DynamicDim]) -> None:
        self._mode = mode
        self._dims = dims
        self._example = examples(dims)
        self._lines: dict[int, str] = {}  # by position of what the trace assumed
        self._numbers = {dim.name: dim.low for dim in dims if dim.low == dim.high}
        self._symbols = {
            dim.name: private.new_size(
                mode, dim.name, self._example[dim.name], max(dim.low, SMALLEST), dim.high
            )
            for dim in dims
            if dim.name not in self._numbers
        }
        self._sizes: dict[str, Any] = {**self._numbers, **self._symbols}
        self._of_leaf = {
            place[0]: {axis: d.name for d in dims for at, axis in d.places if at == place[0]}
            for dim in dims
            for place in dim.places
        }

    def has(self, position: int) -> bool:
        """Whether a leaf of the arguments has a dim that may vary."""
        return position in self._of_leaf

    def fake(self, position: int, tensor: torch.Tensor) -> torch.Tensor:
        """A fake tensor for such a leaf."""
        names, axes = self._of_leaf[position], axes_inwards(tensor)
        shape = [
            self._sizes[names[axis]] if axis in names else size for axis, size in enumerate(tensor.shape)
        ]
        strides, dense = dense_strides(shape, axes), dense_strides(tensor.shape, axes)
        gaps = any(
            true != found and size > 1
            for size, true, found in zip(tensor.shape, tensor.stride(), dense, strict=True)
        )
        if gaps or tensor.storage_offset() or type(tensor) is not torch.Tensor:
            raise CaptureError(
                f"{argument_name(position)} cannot have a dim that varies",
                why="it is a part of another tensor or repeats its elements: its strides do not follow from its shape",
                next_step="pass a plain tensor (.contiguous()), or leave it out of dynamic=",
            )
        with self._mode:
            fake = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=device_of_copy(tensor))
        return fake.requires_grad_(tensor.requires_grad)

    @contextlib.contextmanager
    def traced(self) -> Iterator[None]:
        """Keep composite operations symbolic, and note which lines ask for sizes, while the context is open."""
        if not self._symbols:
            yield
            return
        with private.symbolic_kernels(), all_replaced(private.sizes_noted(self._mode, self._note)):
            yield

    def _note(self, position: int) -> None:
        frames = [frame for frame in traceback.extract_stack() if not is_ours(frame.filename)]
        call_site = library_line(frames)
        asked = f", asked for at {location(call_site)}" if call_site is not None else ""
        self._lines[position] = (location(users_line(frames)) or "") + asked

    def settled(self) -> SizeFacts:
        """For which sizes the trace holds, when it is over."""
        if not self._dims:
            return NO_SIZES
        symbols = {name: private.symbol_of(size) for name, size in self._symbols.items()}
        known = {name: private.simplified(self._mode, symbol) for name, symbol in symbols.items()}
        known |= {name: private.sympy_integer(number) for name, number in self._numbers.items()}
        assumed = [
            Assumption(formula, self._lines.get(position, ""))
            for position, formula in enumerate(private.assumptions(self._mode))
        ]
        by_symbol = {str(symbol): name for name, symbol in symbols.items()}
        return Settling(self._dims, by_symbol, known, self._example).facts(assumed)
