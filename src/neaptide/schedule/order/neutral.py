"""Ordering problems as JSON, format `neaptide.order/1`: for any compiler that wants an order of its operations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from neaptide.errors import UsageError
from neaptide.reading import JsonError, decode_json
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage

FORMAT: Final = "neaptide.order/1"


def from_json(text: str | bytes) -> OrderProblem:
    """The problem that a JSON text holds.

    Raises:
        UsageError: names the storage or op that is wrong, and what to write.
    """
    try:
        content = decode_json(text)
    except JsonError as error:
        raise _wrong("the ordering problem is no JSON", why=str(error)) from error
    return from_mapping(content)


def from_mapping(content: Any) -> OrderProblem:
    """The problem that a decoded JSON object holds.

    Raises:
        UsageError: names the storage or op that is wrong, and what to write.
    """
    top = _record(content, "the ordering problem", ("format", "storages", "ops"), ("name",))
    if top["format"] != FORMAT:
        raise _wrong(f"the format {top['format']!r} is not known", why=f"this reads {FORMAT!r}")
    name = top.get("name", "")
    if not isinstance(name, str):
        raise _wrong("the name of the problem is no text")
    storages = []
    storage_index: dict[str, int] = {}
    for position, item in enumerate(_list(top["storages"], "storages")):
        storage = _storage(item, position)
        if storage.name in storage_index:
            raise _wrong(f"two storages have the id {storage.name!r}")
        storage_index[storage.name] = position
        storages.append(storage)
    ops = []
    op_index: dict[str, int] = {}
    for position, item in enumerate(_list(top["ops"], "ops")):
        op = _op(item, position, storage_index, op_index)
        if op.name in op_index:
            raise _wrong(f"two ops have the id {op.name!r}")
        op_index[op.name] = position
        ops.append(op)
    return OrderProblem(tuple(storages), tuple(ops), name)


def to_json(problem: OrderProblem) -> str:
    """The problem as JSON text; `from_json` reads it back to an equal one. What is at its default is left out."""
    return json.dumps(to_mapping(problem), indent=1)


def to_mapping(problem: OrderProblem) -> dict[str, Any]:
    """The problem as an object for `json.dumps`."""

    def storage_ids(indices: tuple[int, ...]) -> list[str]:
        return [problem.storages[index].name for index in indices]

    storages = []
    for storage in problem.storages:
        row: dict[str, Any] = {"id": storage.name, "nbytes": storage.nbytes}
        if storage.resident:
            row["resident"] = True
        if storage.output:
            row["output"] = True
        storages.append(row)
    ops = []
    for op in problem.ops:
        row = {"id": op.name, "reads": storage_ids(op.reads), "writes": storage_ids(op.writes)}
        if op.workspace:
            row["workspace"] = op.workspace
        if op.in_place:
            row["in_place"] = [storage_ids(pair) for pair in op.in_place]
        if op.after:
            row["after"] = [problem.ops[index].name for index in op.after]
        ops.append(row)
    named = {"name": problem.name} if problem.name else {}
    return {"format": FORMAT, **named, "storages": storages, "ops": ops}


def _storage(item: Any, position: int) -> OrderStorage:
    where = f"storage number {position}"
    row = _record(item, where, ("id", "nbytes"), ("resident", "output"))
    name = _id(row["id"], where)
    where = f"storage {name!r}"
    return OrderStorage(
        name,
        _bytes(row["nbytes"], "nbytes", where),
        resident=_flag(row.get("resident", False), "resident", where),
        output=_flag(row.get("output", False), "output", where),
    )


def _op(item: Any, position: int, storages: Mapping[str, int], ops: Mapping[str, int]) -> OrderOp:
    where = f"op number {position}"
    row = _record(item, where, ("id", "reads", "writes"), ("workspace", "in_place", "after"))
    name = _id(row["id"], where)
    where = f"op {name!r}"

    def found(value: Any, table: Mapping[str, int], what: str, hint: str) -> int:
        if not isinstance(value, str) or value not in table:
            raise _wrong(f"{where} names {value!r} in `{what}`", why=hint)
        return table[value]

    def several(key: str, table: Mapping[str, int], hint: str) -> tuple[int, ...]:
        values = _list(row.get(key, []), f"`{key}` of {where}")
        return tuple(dict.fromkeys(found(value, table, key, hint) for value in values))

    no_storage = "there is no storage with that id"
    reads = several("reads", storages, no_storage)
    writes = several("writes", storages, no_storage)
    pairs = []
    for pair in _list(row.get("in_place", []), f"`in_place` of {where}"):
        if not isinstance(pair, list) or len(pair) != 2:
            raise _wrong(
                f"{where} has {pair!r} in `in_place`", why="a pair is [written storage, read storage]"
            )
        written, read = (found(value, storages, "in_place", no_storage) for value in pair)
        if written not in writes or read not in reads:
            raise _wrong(
                f"{where} has {pair!r} in `in_place`",
                why="the first of a pair is one of its writes, the second one of its reads",
            )
        pairs.append((written, read))
    return OrderOp(
        name,
        reads,
        writes,
        _bytes(row.get("workspace", 0), "workspace", where),
        tuple(pairs),
        several("after", ops, "there is no op with that id before it in the list"),
    )


def _record(item: Any, where: str, needed: tuple[str, ...], allowed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _wrong(f"{where} is no JSON object")
    for key in needed:
        if key not in item:
            raise _wrong(f"{where} has no `{key}`")
    for key in item:
        if key not in needed and key not in allowed:
            raise _wrong(
                f"{where} has an unknown key {key!r}", why=f"known are {', '.join(needed + allowed)}"
            )
    return item


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(f"{where} is no list")
    return value


def _id(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(f"the id of {where} is {value!r}", why="an id is a text, not empty")
    return value


def _bytes(value: Any, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(f"`{key}` of {where} is {value!r}", why="bytes are a whole number, not negative")
    return value


def _flag(value: Any, key: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(f"`{key}` of {where} is {value!r}", why="it is true or false")
    return value


def _wrong(what: str, *, why: str | None = None) -> UsageError:
    return UsageError(what, why=why, next_step=f"write the problem in the form {FORMAT}")
