"""Products of matrices that can be told to add to something, and what sums two tensors.

Facts of the PyTorch operator schemas (`native_functions.yaml`): `addmm(x, a, b)` is `x + a @ b`, and the form that ends in
one underscore adds into its first operand. A product rounds once where a product and a sum behind it round twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

ADD: Final = "aten.add.Tensor"
"""The sum of two tensors; a keyword `alpha` scales the second."""

VIEW: Final = "aten.view.default"
"""The same elements under another shape."""


@dataclass(frozen=True, slots=True)
class WithAddend:
    """A product that adds to its first operand.

    Attributes:
        op: makes a result of its own.
        onto: overwrites that operand.
    """

    op: str
    onto: str


PRODUCTS: Final[Mapping[str, WithAddend]] = MappingProxyType(
    {
        "aten.mm.default": WithAddend("aten.addmm.default", "aten.addmm_.default"),
        "aten.bmm.default": WithAddend("aten.baddbmm.default", "aten.baddbmm_.default"),
    }
)
"""Products of two tensors, and the forms that take the addend in front of them."""
