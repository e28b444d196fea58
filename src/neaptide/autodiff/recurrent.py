"""LSTM in steps of elementary operators, which have derivatives: the operator does not give its cells, which they need."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from neaptide.autodiff.call import Call
from neaptide.autodiff.emitter import Emitter, Tensor

_DIRECTIONS = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}


@dataclass(frozen=True, slots=True)
class _Step:
    """Weights of one direction: (4 H, I), (4 H, H), and the bias (4 H), in the order i, o, f, c."""

    inputs: Tensor
    recurrent: Tensor
    bias: Tensor | None
    hidden: int

    def __call__(self, x: Tensor, h: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden state and the cell after one element of the sequence."""
        gates = x.apply("Gemm", self.inputs, self.bias, transB=1)
        gates = h.apply("Gemm", self.recurrent, gates, transB=1)
        i, o, f, c = (
            gates.slice([k * self.hidden], [(k + 1) * self.hidden], [1], [1]).apply(
                "Tanh" if k == 3 else "Sigmoid"
            )
            for k in range(4)
        )
        cell = f * cell + i * c
        return o * cell.apply("Tanh"), cell


def unroll(graph: ir.Graph) -> bool:
    """Replaces each LSTM by its steps; whether there was one.

    Raises:
        GradientError: one has lengths of sequences, peepholes, a clip, its own activations, or a layout with the batch first.
    """
    nodes = [node for node in graph if node.op_type == "LSTM" and node.domain in {"", "ai.onnx"}]
    emitter = Emitter(graph)
    for node in nodes:
        with emitter.placing(before=node):
            results = _steps(Call(emitter, node, (), ()))
        for old, new in zip(node.outputs, results, strict=False):
            old.replace_all_uses_with(new.value, replace_graph_outputs=True)
            new.value.type = old.type
            new.value.name, old.name = old.name, None
        graph.remove(node, safe=True)
    emitter.remove_unused()
    return bool(nodes)


def _steps(c: Call) -> tuple[Tensor, Tensor, Tensor]:
    """The three results: all hidden states, the last ones, the last cells."""
    for name in ("activations", "clip", "input_forget", "layout"):
        if c.attribute(name):
            raise c.refusal(f"it has the attribute {name!r}")
    if c.optional(4) is not None or c.optional(7) is not None:
        raise c.refusal("it has lengths of sequences or peepholes")
    length, samples, features = c.a.shape
    hidden = c.input(2).shape[2]
    states: list[list[Tensor]] = []
    last: list[tuple[Tensor, Tensor]] = []
    for index, direction in enumerate(_DIRECTIONS[c.attribute("direction", "forward")]):
        step = _Step(
            _part(c.b, index, [4 * hidden, features]),
            _part(c.input(2), index, [4 * hidden, hidden]),
            _bias(c, index, hidden),
            hidden,
        )
        h, cell = (_initial(c, which, index, [samples, hidden]) for which in (5, 6))
        own = []
        for t in range(length)[::direction]:
            h, cell = step(c.a.slice([t], [t + 1], [1], [0]).reshape([samples, features]), h, cell)
            own.append(h.reshape([1, 1, samples, hidden]))
        states.append(own[::direction])
        last.append((h.reshape([1, samples, hidden]), cell.reshape([1, samples, hidden])))
    rows = [_joined(list(both), 1) for both in zip(*states, strict=True)]
    return _joined(rows, 0), _joined([h for h, _ in last], 0), _joined([cell for _, cell in last], 0)


def _part(tensor: Tensor, index: int, sizes: list[int]) -> Tensor:
    """What one direction has of a tensor with directions along axis 0."""
    return tensor.slice([index], [index + 1], [1], [0]).reshape(sizes)


def _bias(c: Call, index: int, hidden: int) -> Tensor | None:
    both = c.optional(3)
    return None if both is None else _part(both, index, [2, 4 * hidden]).sum([0], keep=False)


def _initial(c: Call, which: int, index: int, sizes: list[int]) -> Tensor:
    given = c.optional(which)
    return c.emitter.zeros(c.a, sizes) if given is None else _part(given, index, sizes)


def _joined(parts: list[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else parts[0].apply("Concat", *parts[1:], axis=axis)
