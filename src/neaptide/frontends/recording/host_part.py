"""The part of a traced step that the host can work out by itself: from step counts and other numbers, before it runs.

An optimizer may branch on how many steps it has made. Which branch a call takes follows from numbers that the host
holds: Python numbers and one-element tensors on the CPU. `KnownValues` works such values out while the step is traced;
`HostPart` is what remains of it for later calls: a function of the numbers that gives the outcome of each branch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private
from neaptide.frontends.recording.constant_values import told_sizes
from neaptide.frontends.recording.recording import Record, Recording, TensorFacts
from neaptide.frontends.recording.trace_values import qualified
from neaptide.ops.structural import HOST_OPS
from neaptide.symbolic.size_expr import SizeExpr

Key = tuple[Any, ...]
UNKNOWN = object()
_READ_BACK = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001
_SYMBOLS = (torch.SymFloat, torch.SymInt, torch.SymBool)


@dataclass(frozen=True, eq=False)
class HostPart:
    """The branches that a traced step took, as a function of numbers that the host knows at each call.

    Attributes:
        keys: where the numbers are read, as in `InputSlot.key`.
        numbers: what was there when the step was traced.
        outcomes: of the branches, in the order of the step.
        decide: of the numbers, to the outcomes; it overwrites the tensors that it is given, and so does `step`.
        step: of the numbers, to their values after the step.
        changed: keys of the numbers whose value after the step is known.
    """

    keys: tuple[Key, ...]
    numbers: tuple[Any, ...]
    outcomes: tuple[bool, ...]
    decide: Callable[..., tuple[Any, ...]]
    step: Callable[..., tuple[Any, ...]]
    changed: tuple[Key, ...]

    def holds(self, numbers: Sequence[Any]) -> bool:
        """Whether a step with these numbers, in the order of `keys`, takes the same branches. O(nodes of the part).

        Tensors among the numbers are not written.
        """
        try:
            return tuple(map(bool, self.decide(*_copied(numbers)))) == self.outcomes
        except (ArithmeticError, TypeError, ValueError):  # computed only after a branch that is not taken
            return False

    def is_like(self, other: HostPart) -> bool:
        """Whether it computes the same of the same numbers, with the same outcomes."""
        return (
            (self.keys, self.outcomes, self.changed) == (other.keys, other.outcomes, other.changed)
            and _is_same_function(self.decide, other.decide)
            and _is_same_function(self.step, other.step)
        )

    def after(self, numbers: Sequence[Any]) -> dict[Key, Any]:
        """The numbers that a step with these leaves behind, as far as the host knows them."""
        return dict(zip(self.changed, self.step(*_copied(numbers)), strict=True))


class _SizeOf:
    """A size as a function of tensors: each tells one of its dims, in order of their names."""

    def __init__(self, size: SizeExpr, axes: Sequence[int]) -> None:
        self._size, self._axes = size, axes
        self.__name__, self.__module__ = f"size_{size}", __name__  # names it in the code of the graph

    def __call__(self, *tensors: torch.Tensor) -> int:
        told = zip(sorted(self._size.dims()), tensors, self._axes, strict=True)
        return self._size.evaluate({dim: tensor.shape[axis] for dim, tensor, axis in told})


def _is_same_function(one: Any, other: Any) -> bool:
    """Whether two functions that a `KnownValues` made have the same code and literals."""
    mine, its = dict(one.__self__.named_buffers()), dict(other.__self__.named_buffers())
    return (
        one.__self__.code == other.__self__.code
        and mine.keys() == its.keys()
        and all(torch.equal(mine[name], its[name]) for name in mine)
    )


def _copied(numbers: Sequence[Any]) -> list[Any]:
    return [n.detach().clone() if isinstance(n, torch.Tensor) else n for n in numbers]


class KnownValues:
    """What the values of a trace are, as far as they follow from the numbers that the host holds.

    On inputs in `given` decisions may depend; no values are worked out from them here.
    """

    def __init__(
        self,
        recording: Recording,
        numbers: Mapping[Key, Any],
        slots: Sequence[Key],
        given: Mapping[Key, torch.Tensor] | None = None,
    ) -> None:
        self._recording = recording
        self._numbers = numbers
        self._given = given or {}
        self._slots = iter(slots)
        self._key_of: dict[Record, Key] = {}
        self._values: dict[Record, Any] = {}
        self._writers: dict[int, list[Record]] = {}  # by storage: calls that overwrote it
        self._storages: dict[Record, int] = {}
        self._seen = 0

    def of(self, record: Record) -> Any:
        """The value of a record as it stands at the end of the recording so far, or `UNKNOWN`."""
        self._advance()
        return self._values.get(record, UNKNOWN)

    def part(self, decisions: Sequence[tuple[Record, bool]], after: Mapping[Key, Record]) -> HostPart:
        """The function of the numbers on which the decisions (records with their known values) depend. O(records).

        `after` gives, by key, the record whose value the number has when the step is over.
        """
        self._advance()
        roots = {record for record, _ in decisions}
        changed: dict[Key, Record] = {}
        while True:
            needed = self._needed(roots | set(changed.values()))
            keys = [key for record, key in self._key_of.items() if record in needed and key not in changed]
            more = {key: after[key] for key in keys if key in after and after[key] in self._values}
            if not more:
                break
            changed |= more
        inputs = [record for record in self._key_of if record in needed]
        return HostPart(
            tuple(self._key_of[record] for record in inputs),
            tuple(map(self._number, inputs)),
            tuple(outcome for _, outcome in decisions),
            self._function(inputs, [record for record, _ in decisions]),
            self._function(inputs, list(changed.values())),
            tuple(changed),
        )

    def _number(self, record: Record) -> Any:
        key = self._key_of[record]
        return self._numbers[key] if key in self._numbers else self._given[key]

    def _needed(self, roots: Iterable[Record]) -> set[Record]:
        """The records that some others depend on, among them those that write to what they read."""
        needed: set[Record] = set()
        stack = list(roots)
        while stack:
            record = stack.pop()
            if record not in needed:
                needed.add(record)
                stack.extend(record.operands())
                stack.extend(self._writers.get(self._storages.get(record, -1), ()))
        return needed

    def _function(self, inputs: list[Record], results: list[Record]) -> Callable[..., tuple[Any, ...]]:
        """A Python function of the inputs that computes some records; the inputs may be more than it needs."""
        needed = self._needed(results)
        graph = torch.fx.Graph()
        numbers = {record: self._number(record) for record in inputs}
        copies: dict[Record, torch.fx.Node] = {
            record: graph.placeholder(f"number_{k}") for k, record in enumerate(inputs)
        }
        plain = {
            record: copies.pop(record) for record in inputs if not isinstance(numbers[record], torch.Tensor)
        }
        literals: dict[str, torch.Tensor] = {}

        def copy_of(record: Record) -> torch.fx.Node:
            if (
                record not in copies
            ):  # a plain number that is used as the tensor as which it entered the trace
                options: dict[str, Any] = {"dtype": traced_dtype(numbers[record])}
                copies[record] = graph.call_function(torch.tensor, (plain[record],), options)
            return copies[record]

        told = told_sizes(copies)

        def size_of(size: SizeExpr) -> torch.fx.Node:
            places = [told[dim] for dim in sorted(size.dims())]
            return graph.call_function(
                _SizeOf(size, [axis for _, axis in places]), tuple(copies[record] for record, _ in places)
            )

        for record in self._recording.records:
            if record not in needed or record.kind == "input":
                continue
            if record.kind == "literal":
                name = f"literal_{len(literals)}"
                literals[name] = record.literal()
                copies[record] = graph.call_function(torch.clone, (graph.get_attr(name),))
            elif record.target is _READ_BACK and record.args[0] in plain:
                copies[record] = plain[record.args[0]]
            else:
                args, kwargs = _replaced((record.args, record.kwargs), copy_of)
                args, kwargs = pytree.tree_map_only(SizeExpr, size_of, (args, kwargs))
                copies[record] = graph.call_function(record.target, args, kwargs)
        graph.output(tuple(map(copy_of, results)))
        function: Callable[..., tuple[Any, ...]] = torch.fx.GraphModule(literals, graph).forward
        return function

    # -- working values out

    def _advance(self) -> None:
        """Go through the records that were added since the last time."""
        records = self._recording.records
        with private.no_modes():
            for record in records[self._seen :]:
                if record.kind == "input":
                    self._key_of[record] = key = next(self._slots)
                    if key in self._numbers:
                        self._know(record, _as_traced(self._numbers[key]))
                elif record.kind == "literal":
                    literal = record.literal()
                    if is_host_number(literal):
                        self._know(record, literal.clone())
                elif record.kind == "call":
                    self._call(record)
        self._seen = len(records)

    def _call(self, record: Record) -> None:
        written = [r for r in record.written() if r in self._values]
        if all(r in self._values for r in record.operands()) and _can_be_played(record):
            args, kwargs = _replaced((record.args, record.kwargs), self._values.__getitem__)
            try:
                self._know(record, record.target(*args, **kwargs))
            except (ArithmeticError, TypeError, ValueError):  # the step itself fails there, if it gets so far
                pass
            else:
                for r in written:
                    self._writers.setdefault(self._storages[r], []).append(record)
                return
        for r in written:
            self._forget(self._storages[r])

    def _know(self, record: Record, value: Any) -> None:
        self._values[record] = value
        if isinstance(value, torch.Tensor):
            self._storages[record] = private.storage_key(value.untyped_storage())

    def _forget(self, storage: int) -> None:
        """Something that is not known was written there."""
        for record in [r for r, s in self._storages.items() if s == storage]:
            self._values.pop(record, None)


def _replaced(items: Any, replace: Callable[[Record], Any]) -> Any:
    return pytree.tree_map_only(Record, replace, items)


def is_host_number(item: Any) -> bool:
    """Whether something is a number that the host can read without waiting: a Python number or a tensor of one."""
    if isinstance(item, torch.Tensor):
        return item.numel() == 1 and item.device.type == "cpu" and not item.requires_grad
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def traced_dtype(number: float) -> torch.dtype:
    """The dtype as which a Python number enters a trace: as a tensor of one element, which is read back at once."""
    return torch.int64 if isinstance(number, int) else torch.float64


def _as_traced(number: Any) -> torch.Tensor:
    """A number as it enters a trace, to be overwritten at will."""
    if isinstance(number, torch.Tensor):
        return number.detach().clone()
    return torch.tensor(number, dtype=traced_dtype(number), device="cpu")  # whatever the default device is


def _can_be_played(record: Record) -> bool:
    """Whether a call gives numbers or tensors of one, on the CPU, and always the same for the same operands."""
    target = record.target
    if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
        if torch.Tag.nondeterministic_seeded in target.tags:
            return False
    elif target is not operator.getitem and qualified(target) not in HOST_OPS:
        return False
    results = record.result if isinstance(record.result, tuple) else (record.result,)
    return all(map(_is_small, results))


def _is_small(result: Any) -> bool:
    if isinstance(result, TensorFacts):
        return math.prod(result.shape) == 1 and result.device.type == "cpu"
    return result is None or isinstance(result, (*_SYMBOLS, int, float))
