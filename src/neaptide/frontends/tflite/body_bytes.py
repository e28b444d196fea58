"""How the interpreter counts time, and the bytes that a subgraph needs while it runs, in the order of the file.

TensorFlow Lite Micro counts a *scope* for the inputs of a subgraph and one for each of its operators. Those of a subgraph that
an operator runs follow the operator's own. A tensor holds bytes from the scope of what makes it to that of its last reader; an
output to the end of its subgraph, and an input from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from neaptide.errors import UnsupportedModel
from neaptide.frontends.tflite.model import Subgraph, TfliteModel, placed
from neaptide.ops.tflite import ALIGNMENT

Span = tuple[int, int]
"""First and last scope, both included."""
_MOST_SCOPES: Final = 200_000  # a second


class CallScopes:
    """When tensors and scratch of all subgraphs hold bytes in a call, as the interpreter finds it before it places them.

    Attributes:
        tensors: by subgraph, the span of each tensor; tensors that nothing names are not there.
        operators: by subgraph, the span of each operator with all that it runs.
    """

    def __init__(self, model: TfliteModel, order: Sequence[int]) -> None:
        self._model, self._scope = model, 0
        self.tensors: list[dict[int, Span]] = [{} for _ in model.subgraphs]
        self.operators: list[dict[int, Span]] = [{} for _ in model.subgraphs]
        self._run(0, order)

    def _run(self, index: int, order: Sequence[int]) -> None:
        graph, tensors = self._model.subgraphs[index], self.tensors[index]
        _hold(graph, tensors, graph.inputs, self._scope)
        for number in order:
            operator = graph.operators[number]
            self._scope = begins = self._scope + 1
            if begins > _MOST_SCOPES:
                raise UnsupportedModel(
                    f"{self._model.name or 'the model'} runs more than {_MOST_SCOPES} operators in a call",
                    why="the interpreter goes through every subgraph anew wherever it is run",
                    next_step="convert the model with less nested control flow",
                )
            _hold(graph, tensors, operator.outputs, begins)
            for called in operator.called:
                self._scope += 1
                self._run(called, range(len(self._model.subgraphs[called].operators)))
            _hold(graph, tensors, (*operator.operands, *operator.outputs), self._scope)
            first, _ = self.operators[index].get(number, (begins, begins))
            self.operators[index][number] = (first, self._scope)
        _hold(graph, tensors, graph.outputs, self._scope)


def _hold(graph: Subgraph, spans: dict[int, Span], tensors: Iterable[int], scope: int) -> None:
    for tensor in placed(graph, tensors):
        spans[tensor] = (spans.get(tensor, (scope, scope))[0], scope)


def lifetimes(graph: Subgraph, order: Sequence[int]) -> dict[int, Span]:
    """The spans of a subgraph's tensors where each operator is one scope, with all that it runs."""
    spans: dict[int, Span] = {}
    _hold(graph, spans, (*graph.inputs, *graph.outputs), 0)
    for scope, number in enumerate(order, start=1):
        operator = graph.operators[number]
        spans.update(dict.fromkeys(placed(graph, operator.outputs), (scope, scope)))
        _hold(graph, spans, operator.operands, scope)
    _hold(graph, spans, graph.outputs, len(order))
    return spans


def aligned(nbytes: int) -> int:
    """A size as the interpreter rounds it up."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def body_bytes(model: TfliteModel, index: int, scratch: Sequence[Mapping[int, int]]) -> int:
    """Most bytes of a subgraph at one time, with the largest that each of its operators runs. O(size of all below).

    Args:
        scratch: by subgraph, bytes of kernels by operator.
    """
    peaks: dict[int, int] = {}
    pending = [index]
    while pending:
        at = pending[-1]
        called = {c for operator in model.subgraphs[at].operators for c in operator.called}
        if missing := [c for c in called if c not in peaks]:
            pending += missing
            continue
        peaks[pending.pop()] = _peak(model.subgraphs[at], scratch[at], peaks)
    return peaks[index]


def _peak(graph: Subgraph, scratch: Mapping[int, int], peaks: Mapping[int, int]) -> int:
    count = len(graph.operators)
    change = [0] * (count + 2)
    for tensor, (first, last) in lifetimes(graph, range(count)).items():
        nbytes = aligned(graph.tensors[tensor].nbytes)
        change[first] += nbytes
        change[last + 1] -= nbytes
    now = most = change[0]
    for number, operator in enumerate(graph.operators):
        now += change[number + 1]
        inside = max((peaks[called] for called in operator.called), default=0)
        most = max(most, now + scratch.get(number, 0) + inside)
    return most
