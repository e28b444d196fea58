"""Memory spaces as JSON, format `neaptide.memories/1`: which memories there are, and what buffers do in them."""

from __future__ import annotations

from typing import Any, Final

from neaptide.errors import LayoutProblemError
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import LayoutProblem

FORMAT: Final = "neaptide.memories/1"
_SPACE_KEYS: Final = ("capacity_bytes", "cost_per_byte", "alignment", "max_arena_bytes")


def pooled_problem(problem: LayoutProblem, content: Any) -> PooledProblem:
    """Buffers in the memories that a decoded JSON object holds.

    Args:
        content: an object with `format`, `spaces` and maybe `accesses` and `allowed`, as
            `docs/how-to/place-buffers-in-several-memories.md` says.

    Raises:
        LayoutProblemError: names the key, space or buffer that is wrong.
    """
    top = _record(content, "the file of memories", ("format", "spaces"), ("accesses", "allowed"))
    if top["format"] != FORMAT:
        raise _wrong(f"the format {top['format']!r} is not known", f"this reads {FORMAT!r}")
    if not isinstance(top["spaces"], list):
        raise _wrong("`spaces` is no list")
    spaces = tuple(_space(item, position) for position, item in enumerate(top["spaces"]))
    accesses, allowed = (_object(top.get(key, {}), key) for key in ("accesses", "allowed"))
    for name, names in allowed.items():
        if not isinstance(names, list) or not all(isinstance(space, str) for space in names):
            raise _wrong(f"`allowed` of buffer {name!r} is no list of names of spaces")
    return PooledProblem(problem, spaces, accesses, allowed)


def _space(item: Any, position: int) -> MemorySpace:
    row = _record(item, f"space {position}", ("name",), _SPACE_KEYS)
    if not isinstance(row["name"], str) or not row["name"]:
        raise _wrong(f"the name of space {position} is no text")
    # What is no integer is refused by `PooledProblem`, with the name of the space.
    return MemorySpace(**row)


def _record(item: Any, where: str, needed: tuple[str, ...], allowed: tuple[str, ...]) -> dict[str, Any]:
    row = _object(item, where)
    for key in needed:
        if key not in row:
            raise _wrong(f"{where} has no `{key}`")
    for key in row:
        if key not in needed and key not in allowed:
            raise _wrong(f"{where} has an unknown key {key!r}", f"known are {', '.join(needed + allowed)}")
    return row


def _object(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _wrong(f"{where} is no JSON object")
    return item


def _wrong(what: str, why: str | None = None) -> LayoutProblemError:
    return LayoutProblemError(what, why=why, next_step=f"write the memories in the form {FORMAT}")
