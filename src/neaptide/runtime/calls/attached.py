"""Results of a program as autograd sees them in eager: they require a gradient, but there is no way back through them."""

from __future__ import annotations

from typing import Any

import torch

from neaptide.errors import StepMismatch


def attached(tensor: torch.Tensor, *, is_leaf: bool) -> torch.Tensor:
    """The same bytes as a tensor that requires a gradient.

    Args:
        is_leaf: whether it is a leaf in eager; a backward pass through any other is refused.
    """
    leaf = tensor.detach().requires_grad_()
    if is_leaf:
        return leaf
    result: torch.Tensor = _NoWayBack.apply(leaf)  # type: ignore[no-untyped-call]
    return result


class _NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        # Not a view: host code may add to a running loss in place.
        return tensor.new_empty(0).set_(tensor)  # type: ignore[call-overload, no-any-return]

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        raise StepMismatch(
            "a backward pass outside of the planned program goes through one of its results",
            why="the program has done its own backward, and has let go of what another one needs",
            next_step="put loss and backward inside the step, in front of what counts, logs or prints; or use .detach()",
        )
