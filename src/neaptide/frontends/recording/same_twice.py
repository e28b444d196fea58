"""What a run of a step does, as rows that can be compared with those of another run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.batch_objects import content_of, flatten
from neaptide.frontends.objects.containers import copied, entries_of
from neaptide.frontends.objects.unread import is_unread
from neaptide.frontends.objects.values import is_scalar
from neaptide.frontends.recording.record_source import SourceMap
from neaptide.frontends.recording.recording import Record, Recording, TensorFacts
from neaptide.symbolic.size_expr import SizeExpr

_MAX_LITERAL = 10_000  # elements; a larger literal is refused anyway
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SETTINGS = (
    *(str, bytes, type(None), SizeExpr),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
FIRST_OPERAND = "the first operand"
_DEPTH = 4  # of plain data in a result, in containers and attributes

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Listing:
    """The operations of one run with their numbers and where their tensors come from, and the result.

    Attributes:
        rows: one for each operation; the phase is its first entry.
        calls: the record of each row.
        results: what each row gave, where that follows from the facts of what it takes: tensors with bytes of their
            own, or `FIRST_OPERAND`, written in place; else None.
        result: structure and plain data of what the step returns, and which rows gave its tensors.
    """

    rows: tuple[Row, ...]
    calls: tuple[Record, ...]
    results: tuple[Any, ...]
    result: tuple[Any, ...]

    def difference(self, other: Listing, phases: Iterable[str]) -> str | None:
        """The line of the first operation that the other run does not do likewise; None where both do the same.

        It is empty where only the results differ.

        Args:
            other: another run.
            phases: what is compared: `forward`, `backward`, `optimizer`.
        """
        wanted = frozenset(phases)
        mine = [i for i, row in enumerate(self.rows) if row[0] in wanted]
        theirs = [row for row in other.rows if row[0] in wanted]
        for index, row in zip(mine, theirs, strict=False):
            if self.rows[index] != row:
                return self._location(index)
        if len(mine) != len(theirs):
            return self._location(mine[min(len(mine) - 1, len(theirs))]) if mine else ""
        return None if self.result == other.result else ""

    def _location(self, index: int) -> str:
        line = self.calls[index].line
        if line is not None:  # also in a backward of the user's own
            return f"{line.file}:{line.number}: {line.code}"
        source = SourceMap(self.calls).of(self.calls[index])
        return f"{source.location}: {source.code}"


NO_LISTING = Listing((), (), (), ())


class Lister:
    """Lists records one after the other.

    Args:
        names: of the inputs, in order.

    Attributes:
        rows: as in `Listing`.
        calls: likewise.
        results: likewise.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.rows: list[Row] = []
        self.calls: list[Record] = []
        self.results: list[Any] = []
        self._inputs = iter(names)
        self._tokens: dict[Record, Any] = {}
        self._counts: dict[str, int] = {}
        self._storages: set[int] = set()
        self._written_down: set[Record] = set()  # with elements that the trace knows

    def add(self, record: Record) -> None:
        """List the next record."""
        if record.kind == "input":
            self._tokens[record] = next(self._inputs)
        elif record.kind == "literal":
            self._tokens[record] = _literal(record.args[0])
            self._written_down.add(record)
        elif record.kind == "call":
            self._counts[record.phase] = number = self._counts.get(record.phase, 0) + 1
            self._tokens[record] = ("forward", number) if record.phase == "forward" else record.phase
            self.rows.append(self.row(record.phase, record.target, record.args, record.kwargs))
            self.calls.append(record)
            self.results.append(None if self._takes_literals(record) else self._followed(record))
        self._storages.update(facts.storage_key for facts in tensors_of(record.result))

    def row(self, phase: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Row:
        """A call as a row; what it takes has been listed."""
        return phase, target, self.token(args), tuple([(key, self.token(it)) for key, it in kwargs.items()])

    def token(self, item: Any) -> Any:
        """An argument, comparable with those of another run."""
        if isinstance(item, Record):
            return self._tokens[item]
        if isinstance(item, tuple):
            return tuple([self.token(entry) for entry in item])
        if isinstance(item, (bool, int, float)):
            return _number(item)
        return item if isinstance(item, _SETTINGS) else type(item)

    def _takes_literals(self, record: Record) -> bool:
        """Whether elements that the trace knows are computed with, or written to."""
        operands = list(record.operands())
        if operands and all(operand in self._written_down for operand in operands):
            self._written_down.add(record)
            return True
        return bool(operands) and operands[0] in self._written_down

    def _followed(self, record: Record) -> Any:
        if _is_in_place(record):
            return FIRST_OPERAND
        keys = [facts.storage_key for facts in tensors_of(record.result)]
        is_fresh = len(set(keys)) == len(keys) and self._storages.isdisjoint(keys)
        return record.result if keys and is_fresh else None


def _is_in_place(record: Record) -> bool:
    """Whether the result is the first operand, as it was but for its elements."""
    first = record.args[0] if record.args else None
    return (
        isinstance(first, Record)
        and isinstance(record.result, TensorFacts)
        and isinstance(first.result, TensorFacts)
        and record.result.storage_key == first.result.storage_key
        and shown_of(record.result) == shown_of(first.result)
        and private.returns_what_it_writes(record.target)
    )


def shown_of(facts: TensorFacts) -> tuple[Any, ...]:
    """What an operation that takes a tensor can see of it, but for its elements."""
    return facts.shape, facts.strides, facts.offset, facts.dtype, facts.device, facts.layout, facts.flags


def tensors_of(result: Any) -> Iterator[TensorFacts]:
    """The tensors of what a call gives, in order."""
    if isinstance(result, TensorFacts):
        yield result
    elif isinstance(result, tuple):
        for item in result:
            yield from tensors_of(item)


def list_run(recording: Recording, names: Sequence[str], result: Any) -> Listing:
    """List what was recorded. O(records).

    Args:
        recording: of a trace, before it is edited.
        names: of the inputs, in order.
        result: what the step returned.
    """
    lister = Lister(names)
    for record in recording.records:
        lister.add(record)
    output = recording.records[-1]
    leaves, structure = flatten(result)
    plain = [_content(content_of(leaf), _DEPTH) for leaf in leaves]
    returned = [lister.token(item) for item in output.args[: plain.count(_RETURNED)]]
    return Listing(
        tuple(lister.rows), tuple(lister.calls), tuple(lister.results), (structure, plain, returned)
    )


_RETURNED = "a value of the program"


def _number(item: float) -> Any:
    return type(item), item if item == item else "nan"  # noqa: PLR0124 - the one number that is not itself


def _literal(content: Any) -> Any:
    if isinstance(content, torch.Tensor) and private.is_fake(content):
        content = content.constant  # type: ignore[attr-defined]
    if not isinstance(content, torch.Tensor) or content.numel() > _MAX_LITERAL:
        return type(content)
    return "literal", content.dtype, private.literal_bytes(content)


def _content(item: Any, depth: int) -> Any:
    """Plain data of a result, comparable; of objects without a value of their own, what they hold."""
    if is_unread(item):
        return "what the step does not read"
    if isinstance(item, (torch.Tensor, *_SYMBOLS)):
        return _RETURNED
    if is_scalar(item):
        return _number(item) if isinstance(item, (bool, int, float)) else item
    kind: Any = type(item)
    if depth == 0:
        return kind
    if isinstance(item, Mapping):
        return kind, [(_content(k, depth - 1), _content(v, depth - 1)) for k, v in _items(item)]
    if isinstance(item, (list, tuple, set, frozenset)):
        return kind, [_content(entry, depth - 1) for entry in entries_of(item)]
    if kind.__eq__ != object.__eq__ and kind.__module__ != "numpy":
        return item
    return kind, _content(getattr(item, "__dict__", None), depth - 1)


def _items(mapping: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return (copied(mapping) if isinstance(mapping, dict) else mapping).items()
