"""Micro-batching as one writes it by hand: the batch in parts, gradients summed, one step of the optimizer.

The loss of each part counts by its share of the labels, so that the sum is the mean of the whole. The model, the loss and
the optimizer are those that the step itself closes over (`neaptide.zoo.training.make_step`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

LEFT_OUT = -100  # by the losses of torch and transformers
BATCH_DIMS = {"lstm": 1}  # time comes first there


class CannotSplitError(Exception):
    """Why parts of a batch would compute something else."""


def by_hand(
    spec: str, step: Callable[..., Any], batch: dict[str, torch.Tensor], parts: int
) -> Callable[[], Any]:
    """The same step in parts.

    Raises:
        CannotSplitError: a batch norm takes its statistics over the batch, or the batch is too short.
    """
    inner = inspect.getclosurevars(step).nonlocals
    model, optimizer, loss_of = inner["model"], inner["optimizer"], inner["loss_of"]
    # `_BatchNorm` is the base of all batch norms, and of no other norm but the instance norms, which have no batch.
    if any(isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)) for m in model.modules()):
        raise CannotSplitError("cannot split: batch norm")
    dim = BATCH_DIMS.get(spec.partition("@")[0], 0)
    length = next(iter(batch.values())).shape[dim]
    if parts > length:
        raise CannotSplitError(f"cannot split: {length} in a batch")

    def run() -> torch.Tensor:
        total = torch.zeros(())
        for part, share in _parts(batch, dim, length, parts):
            loss = loss_of(model, part) * share
            loss.backward()
            total += loss.detach()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return run


def _parts(
    batch: dict[str, torch.Tensor], dim: int, length: int, parts: int
) -> Iterator[tuple[dict[str, torch.Tensor], float]]:
    """Each part and its share of the loss; parts differ by one at most."""
    whole = _weight(batch, length)
    for rows in torch.arange(length).tensor_split(parts):
        begin, size = int(rows[0]), len(rows)
        part = {
            name: tensor.narrow(dim, begin, size)
            if tensor.dim() > dim and tensor.shape[dim] == length
            else tensor
            for name, tensor in batch.items()
        }
        yield part, _weight(part, size) / whole


def _weight(batch: dict[str, torch.Tensor], rows: int) -> float:
    """What a mean is taken over: labels that count, or rows."""
    labels = batch.get("labels")
    return float(rows) if labels is None else float((labels != LEFT_OUT).sum())
