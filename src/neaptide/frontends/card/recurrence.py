"""Recurrent layers as a card runs them: one call of cuDNN for all layers, as in aten/src/ATen/native/cudnn/RNN.cpp.

Their weights are taken to lie in one block, as `nn.RNNBase` arranges them on a card. What cuDNN reserves for the backward
pass only its library knows; here it is the gates and cells of all layers, and the report says that it is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

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
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        state, cell = hidden if mode == _LSTM else (hidden, None)
        width = state.shape[2] if cell is None else cell.shape[2]
        projected = 0 if width == state.shape[2] else state.shape[2]
        each = (4 if has_biases else 2) + (1 if projected else 0)
        seeds = None
        if train and dropout:
            seeds = aten._cudnn_init_dropout_state(  # noqa: SLF001
                dropout, train, 0, dtype=torch.uint8, device=sequences.device
            )
        results = aten._cudnn_rnn(  # noqa: SLF001
            sequences,
            list(weights),
            each,
            None,
            state,
            cell,
            mode,
            width,
            projected,
            layers,
            batch_first,
            dropout,
            train,
            bidirectional,
            [],
            seeds,
        )
        output, last, last_cell = results[:3]
        return (output, last, last_cell) if mode == _LSTM else (output, last)

    return run
