"""How the op tables are written: many names with the same meaning as one block of text.

A block holds tokens such as `add.Tensor,Scalar`, each of them a base name and its overloads, or `relu,out`, whose first
overload is `default`. Conventions of ATen's own naming say what an overload overwrites, so that most rows need no more
than their name:

* a base that ends in one underscore overwrites its first argument: `add_.Tensor`;
* an overload `out`, or one that ends in `_out`, overwrites the keyword argument `out`, and `grad_input` the one called so;
  when its results have other names they follow the overload: `topk.values=values+indices`;
* a tilde stands for all forms: `exp~` for `exp,out exp_`, `eq~Scalar` for `eq.Scalar,Scalar_out eq_.Scalar`;
* carets count the first arguments that the result may lie on top of (`ops.in_place`): `exp^`, `add.Scalar^,Tensor^^`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from neaptide.ir.registry import OpSpec, SizeRule, Trait
from neaptide.ops.byte_sizes import traffic

Position = int | str
_TOKEN = re.compile(r"(\w+)(\^*)(?:(~)|([.,])|$)(.*)")


@dataclass(frozen=True, slots=True)
class Overload:
    """A full name such as `aten.add.out`, the arguments that its spelling says it overwrites, and those it may lie on."""

    name: str
    writes: tuple[Position, ...]
    in_place: tuple[int, ...]


def overloads(text: str) -> Iterator[Overload]:
    """The overloads that a block of text lists, in its order. O(length).

    >>> [o.name for o in overloads("add.Tensor,Scalar relu,out")]
    ['aten.add.Tensor', 'aten.add.Scalar', 'aten.relu.default', 'aten.relu.out']
    >>> [o.writes for o in overloads("relu_ relu.out topk.values=values+indices")]
    [(0,), ('out',), ('values', 'indices')]
    >>> [o.name for o in overloads("exp~ eq~Scalar")]
    ['aten.exp.default', 'aten.exp.out', 'aten.exp_.default', 'aten.eq.Scalar', 'aten.eq.Scalar_out', 'aten.eq_.Scalar']
    >>> [o.in_place for o in overloads("exp^~ add.Scalar^,Tensor^^")]
    [(0,), (), (), (0,), (0, 1)]
    """
    for token in text.split():
        for base, items in _spelled_out(token):
            for item in items:
                marked, _, results = item.partition("=")
                overload = marked.rstrip("^")
                written, on_top = _writes(base, overload, results), tuple(range(marked.count("^")))
                yield Overload(f"aten.{base}.{overload}", written, on_top)


def _spelled_out(token: str) -> Iterator[tuple[str, list[str]]]:
    """Base names with their overloads."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise ValueError(f"{token!r} names no overload")
    base, carets, tilde, mark, rest = found.groups()
    items = rest.split(",") if rest or mark == "." else []
    if not tilde:
        yield base, items if mark == "." else [f"default{carets}", *items]
        return
    plain = [item.rstrip("^") for item in items]
    yield base, [*items, *(f"{item}_out" for item in plain)] or [f"default{carets}", "out"]
    yield f"{base}_", plain or ["default"]


def _writes(base: str, overload: str, results: str) -> tuple[Position, ...]:
    if results:
        return tuple(results.split("+"))
    if overload == "out" or overload.endswith("_out"):
        return ("out",)
    if overload == "grad_input":
        return (overload,)
    return (0,) if base.endswith("_") and not base.endswith("__") else ()


def in_place_names(text: str) -> str:
    """The same overloads of the bases that end in one underscore."""
    return re.sub(r"(?m)(\w+)(\.\S*)?(?=\s|$)", r"\1_\2", text)


def meaning(
    *traits: Trait,
    writes: tuple[Position, ...] | None = None,
    bytes_moved: SizeRule | None = None,
    in_place: tuple[int, ...] | None = None,
    **fields: Any,
) -> Callable[[str], tuple[OpSpec, ...]]:
    """Makes the rows of a block of names that mean the same; `fields` are further ones of `OpSpec`.

    Without `writes` and `in_place`, what is overwritten and what may be follows from the names; without `bytes_moved` every
    tensor is read once and every result written once.
    """

    def rows(text: str) -> tuple[OpSpec, ...]:
        found = []
        for overload in overloads(text):
            written = overload.writes if writes is None else writes
            moved = traffic(written) if bytes_moved is None else bytes_moved
            on_top = overload.in_place if in_place is None else in_place
            spec = OpSpec(
                overload.name, frozenset(traits), written, bytes_moved=moved, in_place=on_top, **fields
            )
            found.append(spec)
        return tuple(found)

    return rows
