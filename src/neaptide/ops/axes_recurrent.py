"""Axes of recurrent layers: sequences of a batch are independent of one another, steps of a sequence are not.

A layer hands a workspace from forward to backward, in a form of the library's own, that nobody could cut. What the
forward makes of a part, the backward of the same part reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from neaptide.ir.axes import Merge, OpAxis
from neaptide.ir.registry import AxisRow, Call
from neaptide.ops.axes_forms import Axed, op_axis, operand, slot

_BATCH_SIZES = ()  # of a packed sequence there is one for each step


@dataclass(frozen=True, slots=True)
class _Form:
    """Which arguments and results of a layer are what.

    Attributes:
        sequences: positions of arguments of shape (time, batch, width).
        states: positions of arguments of shape (..., batch, width).
        made_sequences: such results.
        made_states: likewise.
        summed: results to which each sequence of a batch adds a term.
        packing: position of the argument that says which sequences a step has.
        given_workspace: position of the workspace; None where the layer makes it.
        made_workspace: the result that is the workspace; None where it is handed over.
    """

    sequences: tuple[int, ...]
    states: tuple[int, ...]
    made_sequences: tuple[int, ...]
    made_states: tuple[int, ...]
    summed: tuple[int, ...]
    packing: int
    given_workspace: int | None = None
    made_workspace: int | None = None

    @property
    def count(self) -> int:
        """Of the results."""
        made = (*self.made_sequences, *self.made_states, *self.summed)
        return len(made) + (self.made_workspace is not None)

    def axes(self, call: Call) -> Iterator[OpAxis]:
        """The batch, and time, which is needed whole."""
        if len(call.node.outputs) != self.count:
            return
        sequences = [s for p in self.sequences if (s := slot(call, p)) is not None]
        states = [s for p in self.states if (s := slot(call, p)) is not None]
        yield from self._batch(call, sequences, states)
        rest = (*self.made_states, *self.summed, *self._workspace())
        made: list[tuple[int | None, int | Merge]] = [(k, 0) for k in self.made_sequences]
        made += [(k, Merge.SAME) for k in rest]
        yield from op_axis(call, [(s, 0) for s in sequences], made, whole=True)

    def _batch(self, call: Call, sequences: list[int], states: list[int]) -> Iterator[OpAxis]:
        given = None if self.given_workspace is None else slot(call, self.given_workspace)
        own = () if given is None else (given,)
        made: list[tuple[int | None, int | Merge]] = [(k, 1) for k in self.made_sequences]
        made += [(k, len(call.output(k).shape) - 2) for k in self.made_states]
        made += [(k, Merge.SUM) for k in self.summed]
        made += [(k, Merge.OWN) for k in self._workspace()]
        held = [(s, len(operand(call, s).shape) - 2) for s in states]
        is_packed = call.arg(self.packing) != _BATCH_SIZES
        for axis in op_axis(call, [*((s, 1) for s in sequences), *held], made, whole=is_packed):
            yield replace(axis, private=self._workspace(), own=own)

    def _workspace(self) -> tuple[int, ...]:
        return () if self.made_workspace is None else (self.made_workspace,)


# (input, weights x 4, hx, cx, reverse, batch_sizes, ...) to the result, both states and the workspace.
_LAYER = _Form((0,), (5, 6), (0,), (1, 2), (), packing=8, made_workspace=3)
# (input, weights x 4, hx, cx, output, hy, cy, grad_output, grad_hy, grad_cy, reverse, mode, hidden_size, num_layers,
# has_biases, train, bidirectional, batch_sizes, batch_first, workspace) to gradients in the order of the operands.
_BACKWARD = _Form(
    (0, 7, 10), (5, 6, 8, 9, 11, 12), (0,), (5, 6), (1, 2, 3, 4), packing=20, given_workspace=22
)

_TABLE = (
    Axed("mkldnn_rnn_layer.default", AxisRow(_LAYER.axes)),
    Axed("mkldnn_rnn_layer_backward.default", AxisRow(_BACKWARD.axes)),
)


def rows() -> Iterator[Axed]:
    """Whole recurrent layers."""
    yield from _TABLE
