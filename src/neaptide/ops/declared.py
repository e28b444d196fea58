"""Operations that the user vouches for: custom operators, which no op table knows."""

from __future__ import annotations

import re
from typing import Final

from neaptide.errors import UsageError
from neaptide.ir.registry import OpSpec

_OWN_NAMESPACES: Final = frozenset({"aten", "host", "neaptide"})
_NAME: Final = re.compile(r"(\w+)(?:::|\.)(\w+)(?:\.(\w+))?")

_rows: dict[str, OpSpec] = {}


def declare_pure(name: str, *, deterministic: bool = True) -> None:
    """Say that a custom operator does nothing but make its results from its arguments.

    It may then be moved, dropped when nobody needs it, and recomputed. Undeclared, it is left where it is. Declare it
    before the step is captured. A plan file does not carry it: declare it wherever the plan is used to plan again.

    Args:
        name: `"mylib::gelu"`, or with its overload `"mylib::gelu.out_of_place"`; `default` without one.
        deterministic: the same arguments give the same bits on every run; otherwise it is recomputed only where the
            plan allows that.

    Raises:
        UsageError: no such name can be, or it is an operation that neaptide knows itself.
    """
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise UsageError(f"{name!r} names no operator", next_step='write it as "library::operator"')
    library, operator, overload = parts.groups()
    if library in _OWN_NAMESPACES:
        raise UsageError(
            f"{name} needs no declaration", why=f"what {library} operations do is in the op table"
        )
    row = f"{library}.{operator}.{overload or 'default'}"
    _rows[row] = OpSpec(row, deterministic=deterministic)


def declared_rows() -> tuple[OpSpec, ...]:
    """The rows of everything declared so far."""
    return tuple(_rows.values())


def is_declared(op: str) -> bool:
    """Whether an operation, by its registry name, was declared by the user."""
    return op in _rows
