"""Nodes as Python functions of their own: for those that points run again, and for asking single ones."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.errors import LoweringError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.lower.dims import DimReader
from neaptide.lower.names import Names
from neaptide.lower.places import NOWHERE, ToldPlaces
from neaptide.lower.torch_calls import CallWriter, put_call


@dataclass(frozen=True, slots=True)
class NodeFunction:
    """A function of the program.

    Attributes:
        name: in the program's source; it returns the node's outputs as a tuple.
        dims: that it takes behind them, in order.
        places: outputs of the node, for each of which it takes a tensor to put it in behind these, in order.
    """

    name: str
    arguments: tuple[int, ...]
    dims: tuple[str, ...] = ()
    places: tuple[int, ...] = ()


class FunctionWriter:
    """Writes functions that run one node each.

    Attributes:
        dims: by dim that the inputs of the graph tell, its variable.
    """

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph = graph
        self.calls = CallWriter(Names(graph), registry)
        reader = DimReader(graph)
        self.dims = {dim: self.calls.names.fresh(dim, "dim") for dim in (*reader.dims, *reader.chosen)}
        self.calls.dims = self.dims
        self.lines: list[str] = []
        self.nodes: list[int | None] = []

    def function(self, node: Node, *, again: bool, told: ToldPlaces = NOWHERE) -> NodeFunction:
        """Write the function of a node, or of its repetition."""
        if node.regions:
            raise LoweringError(
                "a loop cannot be run again",
                where=node.source.location or None,
                next_step="run the step without points, or without the loop",
            )
        graph, calls = self.graph, self.calls
        name = calls.names.fresh(f"{'again' if again else 'node'}_{node.id}")
        arguments = tuple(dict.fromkeys(needed_inputs(graph, node)))
        calls.dims_used.clear()
        places = {
            slot: calls.names.fresh("place", (node.id, slot)) for slot, has in enumerate(told.inside) if has
        }
        call, to_copy = put_call(graph, node, calls, told.out, places, again=again)
        dims = tuple(calls.dims_used)
        outputs = [calls.names.variable(graph.values[v]) for v in node.outputs]
        if not outputs:
            body = [call.text, "return ()"]
        elif call.results == Ref(0):
            body = [f"return ({call.text},)"]
        else:
            body = [f"{self._target(node, call.results)} = {call.text}"]
            body += [f"{outputs[slot]} = {place}.copy_({outputs[slot]})" for slot, place in to_copy.items()]
            body.append(f"return ({', '.join(outputs)},)")
        variables = [calls.names.variable(graph.values[v]) for v in arguments]
        taken = [*variables, *(self.dims[dim] for dim in dims), *places.values()]
        self.emit(None, f"def {name}({', '.join(taken)}):")
        self.emit(node.id, *(f"    {line}" for line in body))
        self.emit(None, "")
        return NodeFunction(name, arguments, dims, tuple(places))

    def emit(self, node: int | None, *lines: str) -> None:
        """Emit lines that run a node, or None."""
        self.lines += lines
        self.nodes += [node] * len(lines)

    def _target(self, node: Node, results: Arg) -> str:
        names = self.calls.names
        if isinstance(results, Ref):
            return names.variable(self.graph.values[node.outputs[results.slot]])
        if isinstance(results, tuple):
            return f"[{', '.join(self._target(node, item) for item in results)}]"
        return names.fresh(results) if isinstance(results, str) else names.fresh("_")
