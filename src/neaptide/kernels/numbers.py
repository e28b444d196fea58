"""Operations that are handed numbers which only the running program knows: in a kernel those are tensors without dims."""

from __future__ import annotations

from typing import Any

import torch


def call_with_numbers(packet: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of an operation (all overloads of it), with tensors without dims in the place of numbers."""
    name = packet.__name__
    if name.rstrip("_") in ("addcmul", "addcdiv"):
        base, left, right = args
        factor = kwargs.get("value", 1)
        term = left * right if name.startswith("addcmul") else left / right
        made = base + _as(base, factor) * term
        return base.copy_(made) if name.endswith("_") else made
    alpha = kwargs.pop("alpha", 1)
    base, other = args
    if isinstance(alpha, torch.Tensor):
        alpha, other = 1, _as(base, alpha) * other
    return packet(base, other, **({} if alpha == 1 else {"alpha": alpha}))


def _as(tensor: torch.Tensor, number: Any) -> Any:
    """A factor in the dtype of a tensor, as a kernel has it."""
    return number.to(tensor.dtype) if isinstance(number, torch.Tensor) else number
