"""What nodes of FX hold: tensors, or numbers that sizes decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from neaptide.integrations.torch_compile import _torch_private as private

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def hint(number: Any) -> Any:
    """A number as it was at the first call; what is no symbolic number as it is."""
    return private.hint_of(number) if isinstance(number, _SYMBOLS) else number


def is_number(node: fx.Node) -> bool:
    """Whether a node gives a number, which has no bytes."""
    return isinstance(node.meta.get("val"), (*_SYMBOLS, int, float, bool))


def outputs_of(given: Iterable[Any]) -> Iterator[fx.Node]:
    """The nodes among outputs, once each."""
    return iter(dict.fromkeys(item for item in given if isinstance(item, fx.Node)))
