"""Private PyTorch names of this room, resolved in one place. Checked against torch 2.11 to 2.15."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from neaptide.frontends._torch_private import resolve


def hint_of(number: Any) -> Any:
    """What a symbolic number was at the first call."""
    return number.node.hint


def aot_backend(**passes: Callable[..., Any]) -> Callable[..., Any]:
    """A backend of Dynamo that hands graphs to AOTAutograd, with the compilers and the partition function of `passes`."""
    made: Callable[..., Any] = resolve("torch._dynamo.backends.common", "aot_autograd")(**passes)
    return made


def mutated_input(description: Any) -> Any:
    """The description of the input that an output is written to after the forward pass; None for another output."""
    kind = resolve("torch._functorch._aot_autograd.descriptors", "InputMutationAOTOutput")
    return description.mutated_input if isinstance(description, kind) else None


def saved_description(position: int) -> Any:
    """The description of an output that autograd saves."""
    made = resolve("torch._functorch._aot_autograd.descriptors", "SavedForBackwardsAOTOutput")
    return made(position)


def compile_id() -> str:
    """Which compilation of Dynamo is going on."""
    found = resolve("torch._guards", "CompileContext").current_compile_id()
    return str(found)


__all__ = ["aot_backend", "compile_id", "hint_of", "mutated_input", "saved_description", "torch"]
