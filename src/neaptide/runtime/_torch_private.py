"""Private PyTorch names of this room, resolved in one place.

Checked against torch 2.11 and 2.13.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.cost._torch_private import direct_call

__all__ = [
    "TorchDispatchMode",
    "changes_inputs",
    "direct_call",
    "load_dispatch_machinery",
    "storage_identity",
]


class _PassThrough(TorchDispatchMode):  # type: ignore[no-untyped-call]
    only_observes = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


@cache
def load_dispatch_machinery() -> None:
    """Runs one operator under a mode that does nothing; once per process.

    The first operator under any mode makes PyTorch import its compiler, which leaves a reference cycle
    through the frames of whoever called the operator: their tensors would look alive until a collection.
    """
    with _PassThrough():  # type: ignore[no-untyped-call]
        torch.empty(0)


def storage_identity(storage: Any) -> int:
    """The address of the storage object: one number per storage while it lives, unchanged by a resize."""
    return int(storage._cdata)


@cache
def changes_inputs(func: Any) -> bool:
    """Whether an operator may write to or resize an input; an operator without a schema may."""
    schema = getattr(func, "_schema", None)
    return schema is None or bool(schema.is_mutable)


def note_optimizer_step(optimizer: torch.optim.Optimizer) -> None:
    """Tell learning-rate schedulers that the optimizer has updated; without it they warn of a wrong order."""
    optimizer._opt_called = True  # type: ignore[attr-defined]
