"""How the call of an operation is written that puts its result on top of one of its operands.

Facts of the PyTorch operator schemas (`native_functions.yaml`): an operation whose name ends in one underscore works on
its first operand, and a keyword says where the result goes otherwise. `ops.in_place` says for which operands that gives
the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from neaptide.ir.registry import OpRegistry

# What the overload and its keyword are called where the name of the operation's own overload is no part of it.
_PLAIN: Final = ("out", "grad_input")
# Overloads of which that is so.
_OF_PLAIN: Final = ("default", "Tensor", "self")


@dataclass(frozen=True, slots=True)
class InPlaceForm:
    """An operation that computes what another one does, on top of an operand.

    Attributes:
        op: registry name.
        keyword: argument that names the operand once more; empty where it is the first argument that is overwritten.
    """

    op: str
    keyword: str = ""


def in_place_form(registry: OpRegistry, op: str, position: int) -> InPlaceForm | None:
    """The operation that does what `op` does on top of its operand at a position; None where there is none.

    Args:
        registry: holds the operations.
        op: registry name of a functional operation.
        position: of the operand; one that `OpSpec.in_place` does not name has no form.

    >>> from neaptide.ops import registry
    >>> in_place_form(registry(), "aten.add.Tensor", 0), in_place_form(registry(), "aten.add.Tensor", 1)
    (InPlaceForm(op='aten.add_.Tensor', keyword=''), InPlaceForm(op='aten.add.out', keyword='out'))
    """
    known = registry.find(op)
    if known is None or position not in known.in_place:
        return None
    base, _, overload = op.rpartition(".")
    first = registry.find(f"{base}_.{overload}")
    if position == 0 and first is not None and first.writes == (0,):
        return InPlaceForm(first.name)
    for name, keyword in _spellings(overload):
        spec = registry.find(f"{base}.{name}")
        if spec is not None and spec.writes == (keyword,):
            return InPlaceForm(spec.name, keyword)
    return None


def _spellings(overload: str) -> Iterator[tuple[str, str]]:
    """Names of the overload that takes its result's place, and of its keyword; the likeliest first."""
    if overload != "default":
        yield f"{overload}_out", "out"
    if overload in _OF_PLAIN:
        yield from ((name, name) for name in _PLAIN)
    if overload == "Tensor_mode":
        yield "out_mode", "out"
