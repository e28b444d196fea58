"""Whether autograd could go back through what a step hands out, and where that would lead."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.recording.recording import Notes, Recording

_LEAF_GRADIENT = "AccumulateGrad"


class OpenResultError(CaptureError):
    """A result through which a backward pass outside of the step would go in eager, into the step's own graph."""


def open_end(tensor: torch.Tensor, notes: Notes) -> int | None:
    """The number of the autograd node that made a tensor, where no backward of the step has gone through its graph.

    None where one has: what autograd kept is gone then, and a second backward raises in eager as well.
    """
    if tensor.grad_fn is None:
        return None
    for node in private.autograd_nodes([tensor]):
        if private.sequence_of(node) in notes.consumed and _LEAF_GRADIENT not in node.name():
            return None
    return private.sequence_of(tensor.grad_fn)


def lines_of_ends(ends: Mapping[int, int], recording: Recording) -> dict[int, str]:
    """Where operations of autograd nodes, by position of the result, stand in the user's code; empty where nobody knows."""
    lines: dict[int, str] = {}
    for record in recording.records if ends else ():
        if record.sequence is not None and record.phase == "forward" and record.line is not None:
            lines.setdefault(record.sequence, record.line.location)  # later ones may be without a node
    return {position: lines.get(number, "") for position, number in ends.items()}


def refuse_open_results(open_results: Mapping[int, str]) -> None:
    """Refuse a step that returns what is differentiated outside of it: lines of such results, by position."""
    for position, line in open_results.items():
        raise OpenResultError(
            f"the step returns a tensor (result {position}) that requires a gradient, and no backward of the step goes through it",
            where=line or None,
            why="a program keeps nothing for a backward outside of it: what made this tensor would not be trained",
            next_step="put loss and backward inside the step, return it with .detach(), or call the step under torch.no_grad()",
        )


def refuse_kept_gradient(tensor: torch.Tensor, position: int) -> None:
    """Refuse a result that has a gradient of its own: it would be without one."""
    if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
        raise CaptureError(
            f"the step returns a tensor (result {position}) with its gradient",
            why="a program returns tensors, and what is in .grad of them only for parameters",
            next_step="return x.detach() and x.grad of it as two results",
        )
