"""What a run of a step does, as rows that can be compared with those of another run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.batch_objects import content_of, flatten
from neaptide.frontends.objects.containers import copied, entries_of
from neaptide.frontends.objects.unread import is_unread
from neaptide.frontends.objects.values import is_scalar
from neaptide.frontends.recording.record_queries import SourceMap
from neaptide.frontends.recording.recording import Record, Recording
from neaptide.symbolic.size_expr import SizeExpr

_MAX_LITERAL = 10_000  # elements; a larger literal is refused anyway
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SETTINGS = (
    *(str, bytes, type(None), SizeExpr),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_DEPTH = 4  # of plain data in a result, in containers and attributes
_RETURNED = "a value of the program"

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Listing:
    """The operations of one run with their numbers and where their tensors come from, and the result.

    Attributes:
        rows: one for each operation; the phase is its first entry.
        calls: the record of each row.
        result: structure and plain data of what the step returns, and which rows gave its tensors.
    """

    rows: tuple[Row, ...]
    calls: tuple[Record, ...]
    result: tuple[Any, ...]

    def difference(self, other: Listing, phases: Iterable[str]) -> str | None:
        """The line of the first operation of some phases that the other run does not do likewise; None where both do the same.

        It is empty where only the results differ.
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
            return line.location
        source = SourceMap(self.calls).of(self.calls[index])
        return f"{source.location}: {source.code}"


def list_run(recording: Recording, names: Iterable[str], result: Any) -> Listing:
    """List what was recorded of a run with inputs of these names, before it is edited. O(records)."""
    inputs = iter(names)
    tokens: dict[Record, Any] = {}
    counts: dict[str, int] = {}
    rows: list[Row] = []
    calls: list[Record] = []

    def token(item: Any) -> Any:
        """An argument, comparable with those of another run."""
        if isinstance(item, Record):
            return tokens[item]
        if isinstance(item, tuple):
            return tuple([token(entry) for entry in item])
        if isinstance(item, (bool, int, float)):
            return _number(item)
        return item if isinstance(item, _SETTINGS) else type(item)

    for record in recording.records:
        if record.kind == "input":
            tokens[record] = next(inputs)
        elif record.kind == "literal":
            tokens[record] = _literal(record.literal())
        elif record.kind == "call":
            phase = record.phase
            counts[phase] = number = counts.get(phase, 0) + 1
            tokens[record] = ("forward", number) if phase == "forward" else phase
            named = tuple([(key, token(item)) for key, item in record.kwargs.items()])
            rows.append((phase, record.target, token(record.args), named))
            calls.append(record)
    leaves, structure = flatten(result)
    plain = [_content(content_of(leaf), _DEPTH) for leaf in leaves]
    returned = [token(item) for item in recording.records[-1].args[: plain.count(_RETURNED)]]
    return Listing(tuple(rows), tuple(calls), (structure, plain, returned))


def _number(item: float) -> Any:
    return type(item), item if item == item else "nan"  # noqa: PLR0124 - the one number that is not itself


def _literal(content: Any) -> Any:
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
