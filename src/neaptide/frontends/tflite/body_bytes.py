"""How the interpreter counts time, and the bytes that a subgraph needs while it runs, in the order of the file.

TensorFlow Lite Micro counts a *scope* for the inputs of a subgraph and one for each of its operators. A tensor holds bytes
from the scope of what makes it to that of its last reader; an output to the end; inputs of the model from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.frontends.tflite.model import Subgraph, TfliteModel, placed
from neaptide.ops.tflite import ALIGNMENT


def lifetimes(graph: Subgraph, order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """By tensor that has a place, its first and last scope, both included. Tensors that nothing names are not there."""
    found = dict.fromkeys(placed(graph, (*graph.inputs, *graph.outputs)), (0, 0))
    for scope, index in enumerate(order, start=1):
        operator = graph.operators[index]
        for tensor in placed(graph, operator.outputs):
            found[tensor] = (scope, scope)
        for tensor in placed(graph, operator.operands):
            found[tensor] = (found[tensor][0], scope)
    for tensor in placed(graph, graph.outputs):
        found[tensor] = (found[tensor][0], len(order))
    return found


def aligned(nbytes: int) -> int:
    """A size as the interpreter rounds it up."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def body_bytes(model: TfliteModel, index: int) -> int:
    """Most bytes of a subgraph at one time, with the largest that each of its operators runs. O(size of all below)."""
    peaks: dict[int, int] = {}
    pending = [index]
    while pending:
        graph = model.subgraphs[pending[-1]]
        called = {c for operator in graph.operators for c in operator.called}
        if missing := [c for c in called if c not in peaks]:
            pending += missing
            continue
        peaks[pending.pop()] = _peak(graph, peaks)
    return peaks[index]


def _peak(graph: Subgraph, peaks: dict[int, int]) -> int:
    count = len(graph.operators)
    change = [0] * (count + 2)
    for tensor, (first, last) in lifetimes(graph, range(count)).items():
        nbytes = aligned(graph.tensors[tensor].nbytes)
        change[first] += nbytes
        change[last + 1] -= nbytes
    now = most = change[0]
    for scope, operator in enumerate(graph.operators, start=1):
        now += change[scope]
        most = max(most, now + max((peaks[called] for called in operator.called), default=0))
    return most
