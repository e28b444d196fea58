"""Recurrent layers as a card runs them: one call of cuDNN for all layers, as in aten/src/ATen/native/cudnn/RNN.cpp.

Weights of separate storages are taken to lie in one block, as `nn.RNNBase` arranges them on a card. What cuDNN reserves for the backward
pass only its library knows; here it is the gates and cells of all layers, and the report says that it is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from neaptide.frontends._torch_private import storage_key

aten = torch.ops.aten
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_LSTM = _MODES["lstm"]


def recurrent(name: str) -> Callable[..., Any]:
    """What `aten::{name}.input` does on a card."""
    mode = _MODES[name]

    def run(
        sequences: torch.Tensor,
        hidden: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        *form: bool,
    ) -> Any:
        bidirectional, batch_first = form
        state, cell = hidden if mode == _LSTM else (hidden, None)
        width = state.shape[2] if cell is None else cell.shape[2]
        projected = 0 if width == state.shape[2] else state.shape[2]
        each = (4 if has_biases else 2) + (1 if projected else 0)
        seeds = None
        if train and dropout:
            seeds = aten._cudnn_init_dropout_state(  # noqa: SLF001
                dropout, train, 0, dtype=torch.uint8, device=sequences.device
            )
        block = _block_of(weights)
        given = [sequences, state, cell]
        if torch.is_autocast_enabled("cuda"):
            given = [one.half() if one is not None and one.dtype != torch.float64 else one for one in given]
            if weights[0].dtype == torch.float32:
                block, weights = _in_one_block(weights)
        sizes: Any = (mode, width, projected, layers, batch_first, dropout, train, bidirectional, [])
        with torch.autocast("cuda", enabled=False):  # whose own wrapper asks cuDNN where the weights lie
            results = aten._cudnn_rnn(  # noqa: SLF001
                given[0], list(weights), each, block, *given[1:], *sizes, seeds
            )
        output, last, last_cell = results[:3]
        return (output, last, last_cell) if mode == _LSTM else (output, last)

    return run


def _block_of(weights: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The block that weights fill without a gap, as a vector; None where there is no such block."""
    first, end = weights[0].detach(), 0
    for weight in sorted(weights, key=torch.Tensor.storage_offset):
        if weight.storage_offset() != end or not weight.is_contiguous() or not _share_bytes(weight, first):
            return None
        end += weight.numel()
    return first.as_strided((end,), (1,), 0)


def _share_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return storage_key(one.untyped_storage()) == storage_key(other.untyped_storage())


def _in_one_block(weights: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Copies in float16, as aten/src/ATen/cudnn/AutocastRNN.cpp makes them under autocast to whatever dtype."""
    block = weights[0].new_zeros((sum(weight.numel() for weight in weights),), dtype=torch.float16)
    parts = torch.split(block, [weight.numel() for weight in weights])
    # A copy into what is no view of autograd's, as there: its gradient is converted, and goes through no block.
    return block, [
        part.detach().view(weight.shape).detach().copy_(weight)
        for part, weight in zip(parts, weights, strict=True)
    ]
