"""Which operands a result may lie on top of: kernels that read each element before they write it, and only then.

The claim of a row in the tables (`OpSpec.in_place`): called with its own `out` exactly on top of that operand (same address,
shape, strides and dtype), or in its in-place form, the kernel computes the same bits as the functional call. Only operations
have the mark that have such a form of their own; an `out` overload that PyTorch generates computes into fresh bytes and
copies, which saves nothing. Tests run every row.

What has no mark has none on purpose: contractions and convolutions read an operand many times; softmax, norms
and reductions take several passes over it; gathers, pools and rearrangements read elements other than those they
write; dropout and other random kernels have no form that writes where it is told; `soft_margin_loss` and
`log_sigmoid` are compositions that read an operand again after the first write.
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
    """An operation, by its registry name, that computes what another one does on top of an operand.

    `keyword` is the argument that names the operand once more; empty where it is the first argument that is overwritten.
    """

    op: str
    keyword: str = ""


def in_place_form(registry: OpRegistry, op: str, position: int) -> InPlaceForm | None:
    """The operation that does what `op` does on top of its operand at a position; None where there is none.

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
