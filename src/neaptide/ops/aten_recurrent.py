"""ATen's whole recurrent layers and fused cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.effects import advanced_dropout_state, tensors_present, training_dropout
from neaptide.ops.formulas import per_input, rnn_layer
from neaptide.ops.table import declare

_CELLS = """
    _thnn_fused_lstm_cell.default,out=out0+out1+out2 _thnn_fused_gru_cell.default,out=out0+out1
    _thnn_fused_lstm_cell_backward_impl.default,out=out0+out1+out2
    _thnn_fused_gru_cell_backward.default,out=out0+out1+out2+out3+out4
"""
_CELL_INPUT = {"aten._thnn_fused_lstm_cell_backward_impl": 4, "aten._thnn_fused_gru_cell_backward": 1}


def rows() -> Iterator[OpSpec]:
    """LSTM, GRU and RNN layers (oneDNN, cuDNN, MIOpen) and the pointwise part of their cells.

    The size of the workspace that `mkldnn_rnn_layer` returns is oneDNN's secret: the shape that its meta kernel
    reports is empty, and only an audit on real tensors knows it.
    """
    recurrent = Trait.RECURRENT
    yield from declare("mkldnn_rnn_layer.default", recurrent, flops=rnn_layer(1, (1, 2)))
    # The backward pass scribbles on that workspace. Run again it gave the same gradients, but nothing promises it.
    yield from declare(
        "mkldnn_rnn_layer_backward.default",
        recurrent,
        writes_if=tensors_present(22),
        flops=rnn_layer(2, (1, 2)),
    )
    # In training with dropout the kernel advances the generator that lives in the tensor `dropout_state`.
    for name, state in (("_cudnn_rnn.default", 15), ("miopen_rnn.default", 13)):
        yield from declare(
            name,
            recurrent,
            writes_if=advanced_dropout_state(state - 4, state - 3, state),
            rng=True,
            rng_if=training_dropout(state - 4, state - 3),
            flops=rnn_layer(1, (1,)),
            deterministic=False,
        )
    yield from declare(
        "_cudnn_rnn_backward.default miopen_rnn_backward.default",
        recurrent,
        flops=rnn_layer(2, (1,)),
        deterministic=False,
    )
    yield from declare("_cudnn_rnn_flatten_weight.default", Trait.COPY)
    for row in declare(_CELLS, recurrent):
        position = _CELL_INPUT.get(row.name.rsplit(".", 1)[0], 0)
        yield replace(row, flops=per_input(10, position))
