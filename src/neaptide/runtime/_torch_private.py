"""Private PyTorch names of this room, resolved in one place.

Checked against torch 2.11 to 2.15.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.cost._torch_private import direct_call, storage_identity
from neaptide.frontends._torch_private import new_fake, resolve

__all__ = [
    "EagerMode",
    "TorchDispatchMode",
    "changes_inputs",
    "direct_call",
    "load_dispatch_machinery",
    "new_asking_mode",
    "new_fake",
    "quiet_fakes",
    "storage_identity",
    "writes_so_far",
]


class EagerMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode for steps that run as they are: by itself it does nothing. PyTorch has no types for the class it is made of."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True, or Dynamo would skip every frame under this mode: what is compiled would run as eager."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator."""
        return func(*args, **(kwargs or {}))


class _PassThrough(EagerMode):
    only_observes = True


@cache
def load_dispatch_machinery() -> None:
    """Runs one operator under a mode that does nothing; once per process.

    The first operator under any mode makes PyTorch import its compiler, which leaves a reference cycle
    through the frames of whoever called the operator: their tensors would look live until a collection.
    """
    with _PassThrough():
        torch.empty(0)


@cache
def changes_inputs(func: Any) -> bool:
    """Whether an operator may write to or resize an input; an operator without a schema may."""
    schema = getattr(func, "_schema", None)
    return schema is None or bool(schema.is_mutable)


def writes_so_far(tensor: torch.Tensor) -> int:
    """How often what a tensor sees was written in place."""
    return int(tensor._version)


def note_optimizer_step(optimizer: torch.optim.Optimizer) -> None:
    """Tell learning-rate schedulers that the optimizer has updated; without it they warn of a wrong order."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


def new_asking_mode() -> Any:
    """A fake mode that takes real tensors as well: for asking operations what they would make."""
    return resolve("torch._subclasses.fake_tensor", "FakeTensorMode")(allow_non_fake_inputs=True)


@contextlib.contextmanager
def quiet_fakes() -> Iterator[None]:
    """A call of fake tensors that fails raises its error alone: torch would print it as well."""
    told = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, told.disabled = told.disabled, True
    try:
        yield
    finally:
        told.disabled = was_disabled
