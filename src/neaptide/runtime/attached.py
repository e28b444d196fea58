"""Results of a program for host code that runs behind it: attached to autograd as in eager, but with no way back."""

from __future__ import annotations

from typing import Any

import torch

from neaptide.errors import StepMismatch


def attached(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as a tensor that requires a gradient and is no leaf; a backward pass through it is refused."""
    result: torch.Tensor = _NoWayBack.apply(tensor.detach().requires_grad_())  # type: ignore[no-untyped-call]
    return result


class _NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        # Not a view: host code may add to a running loss in place.
        return tensor.new_empty(0).set_(tensor)  # type: ignore[call-overload, no-any-return]

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        raise StepMismatch(
            "a backward pass goes through a result of the planned program",
            why="host code behind the program calls it, and the program has let go of what it needs",
            next_step="call backward in front of the first statement that counts, logs or prints",
        )
