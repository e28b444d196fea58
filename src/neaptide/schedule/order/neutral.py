"""Ordering problems as JSON, format `neaptide.order/1`: for any compiler that wants an order of its operations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from neaptide.errors import UsageError
from neaptide.files.reading import JsonError, decode_json
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage

FORMAT: Final = "neaptide.order/1"
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Pair: TypeAlias = Annotated[list[str], msgspec.Meta(min_length=2, max_length=2)]
_WHERE: Final = re.compile(r"`\$\.(storages|ops)\[(\d+)\]")


class _Record(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What the file holds in place of a class of the problem."""


class _Storage(_Record):
    id: _Name
    nbytes: _Bytes
    resident: bool = False
    output: bool = False


class _Op(_Record):
    id: _Name
    reads: list[str]
    writes: list[str]
    workspace: _Bytes = 0
    in_place: list[_Pair] = []
    after: list[str] = []


class _Problem(_Record, kw_only=True):
    format: Literal["neaptide.order/1"]
    name: str = ""
    storages: list[_Storage]
    ops: list[_Op]


def from_json(text: str | bytes) -> OrderProblem:
    """The problem that a JSON text holds."""
    try:
        content = decode_json(text)
    except JsonError as error:
        raise _wrong("the ordering problem is no JSON", why=str(error)) from error
    return from_mapping(content)


def from_mapping(content: Any) -> OrderProblem:
    """The problem that a decoded JSON object holds."""
    try:
        form = msgspec.convert(content, _Problem)
    except msgspec.ValidationError as error:
        raise _wrong(f"{_where(content, str(error))} is not as it must be", why=str(error)) from error
    storages = _numbers((storage.id for storage in form.storages), "storages")
    ops = _numbers((op.id for op in form.ops), "ops")
    return OrderProblem(
        tuple(OrderStorage(*msgspec.structs.astuple(storage)) for storage in form.storages),
        tuple(_op(op, position, storages, ops) for position, op in enumerate(form.ops)),
        form.name,
    )


def to_json(problem: OrderProblem) -> str:
    """The problem as JSON text; `from_json` reads it back to an equal one. What is at its default is left out."""
    return json.dumps(to_mapping(problem), indent=1)


def to_mapping(problem: OrderProblem) -> dict[str, Any]:
    """The problem as an object for `json.dumps`."""

    def ids(indices: tuple[int, ...]) -> list[str]:
        return [problem.storages[index].name for index in indices]

    storages = [_Storage(s.name, s.nbytes, s.resident, s.output) for s in problem.storages]
    ops = [
        _Op(
            op.name,
            ids(op.reads),
            ids(op.writes),
            op.workspace,
            [ids(pair) for pair in op.in_place],
            [problem.ops[index].name for index in op.after],
        )
        for op in problem.ops
    ]
    form = _Problem(format=FORMAT, name=problem.name, storages=storages, ops=ops)
    made: dict[str, Any] = msgspec.to_builtins(form)
    return made


def _op(op: _Op, position: int, storages: Mapping[str, int], ops: Mapping[str, int]) -> OrderOp:
    """An operation with numbers in the place of names."""

    def numbers(names: list[str], key: str, table: Mapping[str, int], end: int, hint: str) -> tuple[int, ...]:
        for name in names:
            if table.get(name, end) >= end:
                raise _wrong(f"op {op.id!r} names {name!r} in `{key}`", why=hint)
        return tuple(dict.fromkeys(table[name] for name in names))

    no_storage = "there is no storage with that id"
    made = OrderOp(
        op.id,
        numbers(op.reads, "reads", storages, len(storages), no_storage),
        numbers(op.writes, "writes", storages, len(storages), no_storage),
        op.workspace,
        tuple((storages.get(written, -1), storages.get(read, -1)) for written, read in op.in_place),
        numbers(op.after, "after", ops, position, "there is no op with that id before it in the list"),
    )
    for pair, (written, read) in zip(op.in_place, made.in_place, strict=True):
        if written not in made.writes or read not in made.reads:
            raise _wrong(
                f"op {op.id!r} has {pair!r} in `in_place`",
                why="the first of a pair is one of its writes, the second one of its reads",
            )
    return made


def _numbers(names: Iterable[str], what: str) -> dict[str, int]:
    """Positions by name."""
    found: dict[str, int] = {}
    for position, name in enumerate(names):
        if found.setdefault(name, position) != position:
            raise _wrong(f"two {what} have the id {name!r}")
    return found


def _where(content: Any, error: str) -> str:
    """The storage or op that a message of msgspec is about, by its id where it has one."""
    place = _WHERE.search(error)
    if place is None:
        return "the ordering problem"
    kind, number = place[1].removesuffix("s"), int(place[2])
    item = content[place[1]][number]
    name = item.get("id") if isinstance(item, dict) else None
    return f"{kind} {name!r}" if name and isinstance(name, str) else f"{kind} number {number}"


def _wrong(what: str, *, why: str | None = None) -> UsageError:
    return UsageError(what, why=why, next_step=f"write the problem in the form {FORMAT}")
