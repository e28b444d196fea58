"""Axes of recurrent layers: they run through, and are needed whole.

A layer hands a workspace from forward to backward that has no shape which anybody could cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.axes import Merge, OpAxis
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import Axed, op_axis, operand, slot

# By position of an argument, or of a result, those of shape (time, batch, width), and states (..., batch, width).
_SEQUENCES, _STATES = (0,), (5, 6)
_MADE_SEQUENCES, _MADE_STATES = (0,), (1, 2)
_BACK_SEQUENCES, _BACK_STATES = (0, 7, 10), (5, 6, 8, 9)
_BACK_MADE_SEQUENCES, _BACK_MADE_STATES = (0,), (5, 6)


def _layer(call: Call) -> Iterator[OpAxis]:
    """`(input, weights x 4, hx, cx, ...)` to the result, both states and the workspace."""
    yield from _time_and_batch(call, _SEQUENCES, _STATES, _MADE_SEQUENCES, _MADE_STATES)


def _layer_backward(call: Call) -> Iterator[OpAxis]:
    """`(input, weights x 4, hx, cx, output, hy, cy, grad_output, ...)` to gradients in the order of the operands."""
    yield from _time_and_batch(call, _BACK_SEQUENCES, _BACK_STATES, _BACK_MADE_SEQUENCES, _BACK_MADE_STATES)


def _time_and_batch(
    call: Call,
    sequences: tuple[int, ...],
    states: tuple[int, ...],
    made_sequences: tuple[int, ...],
    made_states: tuple[int, ...],
) -> Iterator[OpAxis]:
    others = [k for k in range(len(call.node.outputs)) if k not in {*made_sequences, *made_states}]
    same: list[tuple[int | None, int | Merge]] = [(k, Merge.SAME) for k in others]
    here = [s for p in sequences if (s := slot(call, p)) is not None]
    made: list[tuple[int | None, int | Merge]] = [(k, 1) for k in made_sequences]
    made += [(k, len(call.output(k).shape) - 2) for k in made_states]
    held = [(s, len(operand(call, s).shape) - 2) for p in states if (s := slot(call, p)) is not None]
    yield from op_axis(call, [*((s, 1) for s in here), *held], [*made, *same], whole=True)
    in_time: list[tuple[int | None, int | Merge]] = [(k, 0) for k in made_sequences]
    rest: list[tuple[int | None, int | Merge]] = [(k, Merge.SAME) for k in made_states]
    yield from op_axis(call, [(s, 0) for s in here], [*in_time, *rest, *same], whole=True)


_TABLE = (
    Axed("mkldnn_rnn_layer.default", AxisRow(_layer)),
    Axed("mkldnn_rnn_layer_backward.default", AxisRow(_layer_backward)),
)


def rows() -> Iterator[Axed]:
    """Whole recurrent layers."""
    yield from _TABLE
