"""What a run of a step does, as rows that can be compared with those of another run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private
from neaptide.frontends.record_source import SourceMap
from neaptide.frontends.recording import Record, Recording
from neaptide.frontends.scalars import is_scalar

_MAX_LITERAL = 10_000  # elements; a larger literal is refused anyway
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SETTINGS = (str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_DEPTH = 4  # of plain data in a result, in containers and attributes

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


NO_LISTING = Listing((), (), ())


def list_run(recording: Recording, names: Sequence[str], result: Any) -> Listing:
    """List what was recorded. O(records).

    Args:
        recording: of a trace, before it is edited.
        names: of the inputs, in order.
        result: what the step returned.
    """
    tokens: dict[Record, Any] = {}
    counts: dict[str, int] = {}
    rows: list[Row] = []
    calls: list[Record] = []
    inputs = iter(names)
    for record in recording.records:
        if record.kind == "input":
            tokens[record] = next(inputs)
        elif record.kind == "literal":
            tokens[record] = _literal(record.args[0])
        elif record.kind == "call":
            counts[record.phase] = number = counts.get(record.phase, 0) + 1
            tokens[record] = ("forward", number) if record.phase == "forward" else record.phase
            given = tuple((key, _token(item, tokens)) for key, item in record.kwargs.items())
            rows.append((record.phase, record.target, _token(record.args, tokens), given))
            calls.append(record)
    output = recording.records[-1]
    leaves, structure = pytree.tree_flatten(result)
    plain = [_content(leaf, _DEPTH) for leaf in leaves]
    returned = [_token(item, tokens) for item in output.args[: plain.count(_RETURNED)]]
    return Listing(tuple(rows), tuple(calls), (structure, plain, returned))


_RETURNED = "a value of the program"


def _token(item: Any, tokens: Mapping[Record, Any]) -> Any:
    if isinstance(item, Record):
        return tokens[item]
    if isinstance(item, tuple):
        return tuple([_token(entry, tokens) for entry in item])
    if isinstance(item, (bool, int, float)):
        return _number(item)
    return item if isinstance(item, _SETTINGS) else type(item)


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
    if isinstance(item, (torch.Tensor, *_SYMBOLS)):
        return _RETURNED
    if is_scalar(item):
        return _number(item) if isinstance(item, (bool, int, float)) else item
    kind: Any = type(item)
    if depth == 0:
        return kind
    if isinstance(item, Mapping):
        return kind, [(_content(k, depth - 1), _content(v, depth - 1)) for k, v in item.items()]
    if isinstance(item, (list, tuple, set, frozenset)):
        return kind, [_content(entry, depth - 1) for entry in item]
    if kind.__eq__ != object.__eq__ and kind.__module__ != "numpy":
        return item
    return kind, _content(getattr(item, "__dict__", None), depth - 1)
