"""Geometry of what operations of a card give, for which PyTorch has no fake kernel, or leaves out what is reserved.

Without one PyTorch would run the real kernel on made-up tensors there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

_LSTM = 2  # as PyTorch counts the modes of cuDNN
_GATES = (1, 1, 4, 3)  # by mode
_STATE_BYTES = 1 << 20  # of the generators that drop elements; cuDNN's own size depends on the card


def _rnn(
    sequences: torch.Tensor, _weights: Sequence[torch.Tensor], *further: Any
) -> tuple[torch.Tensor, ...]:
    """What is reserved are the gates, the cells and the outputs of each layer, and what was dropped between layers."""
    _each, block, hidden, cell, mode, width, projected, layers, *flags, batch_sizes, _state = further
    batch_first, dropout, train, bidirectional = flags
    directions = 2 if bidirectional else 1
    made = (projected or width) * directions
    if batch_sizes:
        rows, shape = sequences.shape[0], (sequences.shape[0], made)
    else:
        rows, shape = sequences.shape[0] * sequences.shape[1], (*sequences.shape[:2], made)
    output = sequences.new_empty(shape)
    if batch_first and not batch_sizes:  # cuDNN has time first
        output = sequences.new_empty((shape[1], shape[0], made)).transpose(0, 1)
    kept = _GATES[mode] + (2 if mode == _LSTM else 1)
    elements = rows * width * directions * (kept * layers + (layers - 1 if dropout else 0))
    reserved = elements * sequences.element_size() if train else 0
    last_cell = hidden.new_empty((0,)) if cell is None else torch.empty_like(cell)
    return (
        output,
        torch.empty_like(hidden),
        last_cell,
        sequences.new_empty((reserved,), dtype=torch.uint8),
        sequences.new_empty((0,)) if block is None else block,
    )


def _rnn_backward(
    sequences: torch.Tensor,
    weights: Sequence[torch.Tensor],
    _each: int,
    _block: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor | None,
    *rest: Any,
) -> tuple[Any, ...]:
    """Gradients of all weights share one block, as the weights do."""
    wanted = rest[-1]
    block = sequences.new_empty((sum(weight.numel() for weight in weights) if wanted[3] else 0,))
    parts, begin = [], 0
    for weight in weights if wanted[3] else ():
        parts.append(block[begin : begin + weight.numel()].view(weight.shape))
        begin += weight.numel()
    return (
        torch.empty_like(sequences) if wanted[0] else None,
        torch.empty_like(hidden),
        torch.empty_like(hidden if cell is None else cell),
        parts,
    )


def _dropout_state(
    _dropout: float, _train: bool, _seed: int, *, device: Any = None, **_options: Any
) -> torch.Tensor:
    return torch.empty((_STATE_BYTES,), dtype=torch.uint8, device=device)


def _in_place(*_args: Any, **_kwargs: Any) -> None:
    """A fused update, which gives nothing."""


_FUSED = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")

CARD_RESULTS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        getattr(getattr(torch.ops.aten, name), overload): _in_place
        for name in _FUSED
        for overload in getattr(torch.ops.aten, name).overloads()
    }
    | {
        torch.ops.aten._cudnn_rnn.default: _rnn,  # noqa: SLF001
        torch.ops.aten._cudnn_rnn_backward.default: _rnn_backward,  # noqa: SLF001
        torch.ops.aten._cudnn_init_dropout_state.default: _dropout_state,  # noqa: SLF001
    }
)
"""By operation: a function of the same arguments that gives tensors of the right geometry."""
