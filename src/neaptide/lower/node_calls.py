"""A graph as one Python function for each node, for running node by node in an order that is decided on the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.analysis.liveness import with_frees
from neaptide.errors import LoweringError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.lower.dims import DimReader
from neaptide.lower.names import Names
from neaptide.lower.places import NOWHERE, ToldPlaces
from neaptide.lower.program import Program, Watch
from neaptide.lower.torch_calls import CallWriter, put_call
from neaptide.lower.watches import copy_text

RUNNER = "run_nodes"
"""Global name that the program calls with its arguments; whoever runs it puts a function there."""


@dataclass(frozen=True, slots=True)
class NodeFunction:
    """A function of the program.

    Attributes:
        name: in the program's source; it returns the node's outputs as a tuple.
        arguments: values that it takes, in order.
        dims: that it takes behind them, in order.
        places: outputs of the node, for each of which it takes a tensor to put it in behind these, in order.
    """

    name: str
    arguments: tuple[int, ...]
    dims: tuple[str, ...] = ()
    places: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeCalls:
    """The functions of a graph.

    Attributes:
        program: their text; its `program(args)` hands everything on to `RUNNER`.
        first: by node, for its first execution.
        again: by node, for a repetition.
        watches: by node, copies what is watched there; takes the dict for the copies first. -1: at the beginning.
    """

    program: Program
    first: tuple[NodeFunction, ...]
    again: tuple[NodeFunction, ...]
    watches: dict[int, NodeFunction]


def node_calls(graph: Graph, registry: OpRegistry, watches: Sequence[Watch] = ()) -> NodeCalls:
    """Write the functions of all nodes. O(size of the graph).

    Args:
        graph: static shapes, without loops.
        registry: how an impure op is repeated.
        watches: values to copy on the way.

    Raises:
        LoweringError: a loop, an operation that torch does not have, symbolic dims, or a watch of something that never
            exists.
    """
    return _Writer(graph, registry, tuple(watches)).write()


class FunctionWriter:
    """Writes functions that run one node each.

    Args:
        graph: whose nodes.
        registry: how an impure op is repeated.

    Attributes:
        lines: of the text so far.
        nodes: by line, the node that it runs, or None.
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
        """Write the function of a node, or of its repetition.

        Args:
            node: without a loop.
            again: whether it is run again.
            told: results that lie where the function is told.

        Raises:
            LoweringError: a loop, an operation that torch does not have, or a size that no input tells.
        """
        if node.regions:
            raise LoweringError(
                "a loop cannot be run node by node, as eviction would have it",
                where=node.source.location or None,
                next_step="run the step without eviction, or without the loop",
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
        taken = [*self.variables(arguments), *(self.dims[dim] for dim in dims), *places.values()]
        self.define(node.id, name, taken, body)
        return NodeFunction(name, arguments, dims, tuple(places))

    def variables(self, values: Sequence[int]) -> list[str]:
        """Variables that hold values in these functions."""
        return [self.calls.names.variable(self.graph.values[v]) for v in values]

    def define(self, node: int | None, name: str, arguments: Sequence[str], body: Sequence[str]) -> None:
        """Emit a function."""
        self.emit(None, f"def {name}({', '.join(arguments)}):")
        self.emit(node, *(f"    {line}" for line in body))
        self.emit(None, "")

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


class _Writer(FunctionWriter):
    def __init__(self, graph: Graph, registry: OpRegistry, watches: tuple[Watch, ...]) -> None:
        super().__init__(graph, registry)
        self.watches = watches

    def write(self) -> NodeCalls:
        graph = self.graph
        runner = self.calls.names.fresh(RUNNER)
        taken = "args, watched" if self.watches else "args"
        if self.dims:
            raise LoweringError(
                f"the program takes {', '.join(self.dims)}, and what runs it node by node knows one shape",
                next_step="run it with points, as a program for all shapes, or bind all dimensions",
            )
        self.emit(None, f"def program({taken}):", f"    return {runner}({taken})", "")
        first, again = [], []
        for node in graph.nodes:
            first.append(self.function(node, again=False))
            again.append(self.function(node, again=True) if node.effects.writes else first[-1])
        copies = self._copies()
        program = Program(
            graph=graph,
            schedule=with_frees(graph, Schedule.program_order(graph)),
            source="\n".join(self.lines) + "\n",
            line_nodes=tuple(self.nodes),
            line_steps=(None,) * len(self.lines),  # in what order they run is not known here
            names={**self.calls.globals, runner: None},
            watches=self.watches,
        )
        return NodeCalls(program, tuple(first), tuple(again), copies)

    def _copies(self) -> dict[int, NodeFunction]:
        """Functions that copy, directly behind the node that makes the version."""
        graph = self.graph
        maker = {Access(storage, 0): -1 for storage in graph.input_storages()}
        for node in graph.nodes:
            maker.update((Access(s, 0), node.id) for s in graph.created_storages(node))
            maker.update((access, node.id) for access in node.effects.writes)
        due: dict[int, list[Watch]] = defaultdict(list)
        for watch in self.watches:
            storage = graph.values[watch.value].storage
            access = None if storage is None else Access(storage, watch.version)
            if access is None or access not in maker:
                raise LoweringError(
                    f"{watch.name} is to be copied at version {watch.version}, which is never made"
                )
            due[maker[access]].append(watch)
        return {place: self._copy(place, found) for place, found in sorted(due.items())}

    def _copy(self, place: int, watches: Sequence[Watch]) -> NodeFunction:
        graph = self.graph
        node = None if place < 0 else graph.nodes[place]
        bound = graph.inputs if node is None else (*node.outputs, *needed_inputs(graph, node))
        arguments = tuple(dict.fromkeys(bound))
        name = self.calls.names.fresh(f"copies_{place + 1}")
        body = [f"watched[{watch.name!r}] = {copy_text(graph, node, watch, self.calls)}" for watch in watches]
        self.define(None if node is None else place, name, ["watched", *self.variables(arguments)], body)
        return NodeFunction(name, arguments)
