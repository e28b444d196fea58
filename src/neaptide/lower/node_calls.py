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
from neaptide.lower.names import Names
from neaptide.lower.program import Program, Watch
from neaptide.lower.torch_calls import CallWriter
from neaptide.lower.watches import copy_text

RUNNER = "run_nodes"
"""Global name that the program calls with its arguments; whoever runs it puts a function there."""


@dataclass(frozen=True, slots=True)
class NodeFunction:
    """A function of the program.

    Attributes:
        name: in the program's source; it returns the node's outputs as a tuple.
        arguments: values that it takes, in order.
    """

    name: str
    arguments: tuple[int, ...]


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
        LoweringError: a loop, an operation that torch does not have, a size that is not a number, or a watch of
            something that never exists.
    """
    return _Writer(graph, registry, tuple(watches)).write()


class _Writer:
    def __init__(self, graph: Graph, registry: OpRegistry, watches: tuple[Watch, ...]) -> None:
        self.graph = graph
        self.calls = CallWriter(Names(graph), registry)
        self.watches = watches
        self.lines: list[str] = []
        self.nodes: list[int | None] = []

    def write(self) -> NodeCalls:
        graph = self.graph
        runner = self.calls.names.fresh(RUNNER)
        taken = "args, watched" if self.watches else "args"
        self._emit(None, f"def program({taken}):", f"    return {runner}({taken})", "")
        first, again = [], []
        for node in graph.nodes:
            if node.regions:
                raise LoweringError(
                    "a loop cannot be run node by node, as eviction would have it",
                    where=node.source.location or None,
                    next_step="run the step without eviction, or without the loop",
                )
            first.append(self._function(node, again=False))
            again.append(self._function(node, again=True) if node.effects.writes else first[-1])
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

    def _function(self, node: Node, *, again: bool) -> NodeFunction:
        graph, calls = self.graph, self.calls
        name = calls.names.fresh(f"{'again' if again else 'node'}_{node.id}")
        arguments = tuple(dict.fromkeys(needed_inputs(graph, node)))
        call = calls.write(graph, node, again=again)
        outputs = [calls.names.variable(graph.values[v]) for v in node.outputs]
        if not outputs:
            body = [call.text, "return ()"]
        elif call.results == Ref(0):
            body = [f"return ({call.text},)"]
        else:
            body = [f"{self._target(node, call.results)} = {call.text}", f"return ({', '.join(outputs)},)"]
        self._define(node.id, name, self._variables(arguments), body)
        return NodeFunction(name, arguments)

    def _target(self, node: Node, results: Arg) -> str:
        names = self.calls.names
        if isinstance(results, Ref):
            return names.variable(self.graph.values[node.outputs[results.slot]])
        if isinstance(results, tuple):
            return f"[{', '.join(self._target(node, item) for item in results)}]"
        return names.fresh(results) if isinstance(results, str) else names.fresh("_")

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
        self._define(None if node is None else place, name, ["watched", *self._variables(arguments)], body)
        return NodeFunction(name, arguments)

    def _variables(self, values: Sequence[int]) -> list[str]:
        return [self.calls.names.variable(self.graph.values[v]) for v in values]

    def _define(self, node: int | None, name: str, arguments: Sequence[str], body: Sequence[str]) -> None:
        self._emit(None, f"def {name}({', '.join(arguments)}):")
        self._emit(node, *(f"    {line}" for line in body))
        self._emit(None, "")

    def _emit(self, node: int | None, *lines: str) -> None:
        self.lines += lines
        self.nodes += [node] * len(lines)
