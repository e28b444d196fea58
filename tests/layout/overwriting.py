"""Calls of PyTorch ops whose result is written exactly on top of one of their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def operation(op: str) -> Any:
    """`aten.add.Tensor` as something to call."""
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """What two tensors must have equal to be the same, NaN and signed zeros included."""
    return tensor.contiguous().flatten().view(torch.uint8)


def written_out(op: str) -> tuple[Any, str] | None:
    """The `out` overload with the same arguments that is a kernel of its own, and the name of its last argument."""
    namespace, name, _ = op.split(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    wanted = _arguments(operation(op))
    for overload in packet.overloads():
        found = getattr(packet, overload)
        *ours, last = found._schema.arguments
        is_out = last.is_out and torch.Tag.generated not in found.tags
        if is_out and [(a.name, str(a.type)) for a in ours] == wanted:
            return found, last.name
    return None


def in_place_form(op: str) -> Any:
    """`aten.relu_.default` for `aten.relu.default`; None when there is none with the same arguments."""
    namespace, name, _ = op.split(".")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_", None)
    for overload in () if packet is None else packet.overloads():
        found = getattr(packet, overload)
        if _arguments(found) == _arguments(operation(op)):
            return found
    return None


def overwrite(op: str, args: Sequence[Any], kwargs: dict[str, Any], position: int) -> torch.Tensor:
    """Run an op with its result on top of the tensor at `position`; a tensor object of its own, as an arena has it."""
    over = args[position]
    place = over.as_strided(over.shape, over.stride(), over.storage_offset())
    variant = written_out(op)
    if variant is not None:
        function, keyword = variant
        function(*args, **kwargs, **{keyword: place})
    else:
        assert position == 0, f"{op} has neither an out overload nor an in-place form for operand {position}"
        in_place_form(op)(place, *args[1:], **kwargs)
    return place


def _arguments(function: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in function._schema.arguments]
