"""The operations of torch behind the names of the registry."""

from __future__ import annotations

from typing import Any

import torch

from neaptide.errors import LoweringError
from neaptide.ir.nodes import LOOP_OP
from neaptide.ops.structural import KERNELS


def resolve_operation(op: str, location: str = "") -> Any:
    """The callable of a registry name such as `aten.add.Tensor`."""
    if op == LOOP_OP:
        raise LoweringError("a loop is not a single call", where=location or None)
    found: Any = torch.ops
    parts = KERNELS.get(op, op).split(".")
    try:
        for part in parts:
            found = getattr(found, part)
    except AttributeError as error:
        raise LoweringError(
            f"torch {torch.__version__} has no operation {op}",
            where=location or None,
            next_step="import the library that registers it, or plan with the torch that runs the plan",
        ) from error
    if len(parts) != 3:
        raise LoweringError(
            f"{op!r} names no overload of an operation",
            where=location or None,
            next_step="such as aten.add.Tensor",
        )
    return found
