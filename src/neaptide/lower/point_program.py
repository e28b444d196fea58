"""A program with points: places between its operations where storages may be evicted, or must be there again.

Values that an action at a point may take, read or put back live in one list; all others are plain variables, which cost
less. A point at which there is nothing to do costs one comparison.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from neaptide.analysis.liveness import with_frees
from neaptide.analysis.loops import NO_BODIES, Bodies, body_schedule
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Value
from neaptide.lower.dims import parameters
from neaptide.lower.loops import write_loop
from neaptide.lower.names import Names
from neaptide.lower.node_functions import FunctionWriter, NodeFunction
from neaptide.lower.places import NOWHERE, ToldPlaces
from neaptide.lower.program import Program, Watch
from neaptide.lower.random_states import random_state
from neaptide.lower.torch_calls import CallWriter, put_call
from neaptide.lower.torch_code import body_lines
from neaptide.lower.watches import copy_text, refuse_missed, watches_by_access


@dataclass(frozen=True, slots=True)
class PointProgram:
    """A program with points.

    Attributes:
        program: its text. It calls `begin(held, sizes)` at its beginning: `held` is a list by value, in which are
            those that `held_values` names, and `sizes` has its dims. What that returns has an attribute `due`, the position of the first point at which
            there is something to do, a method `act(position)`, and a dict `states` for those of random generators.
        begin: global name of the function that it calls; whoever runs it puts one there.
        again: by node that may run again, its function.
    """

    program: Program
    begin: str
    again: dict[int, NodeFunction]


def point_program(
    graph: Graph,
    order: Sequence[int],
    registry: OpRegistry,
    *,
    points: Collection[int],
    repeatable: Collection[int],
    evictable: Collection[int],
    last_use: Sequence[int],
    bodies: Bodies = NO_BODIES,
    watches: Sequence[Watch] = (),
    told: Mapping[int, ToldPlaces] = MappingProxyType({}),
    told_again: Mapping[int, ToldPlaces] = MappingProxyType({}),
) -> PointProgram:
    """Write a program with points. O(size of the graph).

    Args:
        graph: its program takes the symbolic dims that its inputs tell, and those that calls choose. A loop is one
            operation: there are no points in it.
        points: positions directly before which there is one; the number of nodes for the end.
        last_use: by storage, the position behind which it is dropped; the number of nodes for what is handed back.
        told: by node, which of its results lie where `begin` says: what that returns then has a list `places` by value.
        told_again: the same of repetitions, whose functions take the places.
    """
    functions = FunctionWriter(graph, registry)
    again = {
        node: functions.function(
            graph.nodes[node],
            again=bool(graph.nodes[node].effects.writes),
            told=told_again.get(node, NOWHERE),
        )
        for node in sorted(repeatable)
    }
    held = held_values(graph, repeatable, evictable)
    writer = _Writer(graph, functions, frozenset(repeatable), held, told)
    writer.write_bodies(bodies)
    writer.write(order, frozenset(points), last_use, watches)
    schedule = replace(Schedule.from_nodes(graph, order), bodies=bodies)
    program = Program(
        graph=graph,
        schedule=with_frees(graph, schedule),
        source="\n".join(functions.lines) + "\n",
        line_nodes=tuple(functions.nodes),
        line_steps=tuple([None] * (len(functions.lines) - len(writer.steps)) + writer.steps),
        names={**functions.calls.globals, writer.begin: None},
        body_nodes=writer.body_nodes,
        watches=tuple(watches),
        dims=functions.dims,
    )
    return PointProgram(program, writer.begin, again)


def held_values(graph: Graph, repeatable: Collection[int], evictable: Collection[int]) -> frozenset[int]:
    """Values that actions at points take, read or put back. O(size of the graph).

    These are all values on evictable storages and on those that repeatable nodes return, and what these nodes read.
    """
    nodes = [graph.nodes[node] for node in repeatable]
    storages = {graph.values[value].storage for node in nodes for value in node.outputs} - {None}
    storages.update(evictable)
    found = {value for node in nodes for value in (*node.outputs, *needed_inputs(graph, node))}
    return frozenset(found.union(value.id for value in graph.values if value.storage in storages))


class _HeldNames(Names):
    """Names in a function some of whose values live in a list; everything else is named as around it."""

    def __init__(self, around: Names, held: str, values: frozenset[int]) -> None:
        self._around, self._held, self._values = around, held, values

    def variable(self, value: Value) -> str:
        return f"{self._held}[{value.id}]" if value.id in self._values else self._around.variable(value)

    def fresh(self, base: str, key: object = None) -> str:
        return self._around.fresh(base, key)


class _Writer:
    def __init__(
        self,
        graph: Graph,
        functions: FunctionWriter,
        repeatable: frozenset[int],
        held: frozenset[int],
        told: Mapping[int, ToldPlaces],
    ) -> None:
        names = functions.calls.names
        self.graph, self.functions, self.repeatable = graph, functions, repeatable
        self.held_values, self.told = held, told
        self.begin, self.held, self.point, self.place = map(names.fresh, ("begin", "held", "point", "place"))
        outer = functions.calls
        self.calls = CallWriter(
            _HeldNames(names, self.held, held), outer.registry, globals=outer.globals, dims=functions.dims
        )
        self.steps: list[int | None] = []
        self.bodies: dict[int, str] = {}
        self.body_nodes: dict[int, Node] = {}

    def write_bodies(self, bodies: Bodies) -> None:
        """The functions of loops, in front of the program."""
        for node in self.graph.nodes:
            if node.regions:
                schedule = body_schedule(node, bodies)
                self.bodies[node.id], lines = body_lines(node, schedule, self.functions.calls)
                for text, inner in lines:
                    self.functions.emit(None if inner is None else node.id, text)
                    if inner is not None:
                        self.body_nodes[len(self.functions.lines)] = inner

    def write(
        self, order: Sequence[int], points: frozenset[int], last_use: Sequence[int], watches: Sequence[Watch]
    ) -> None:
        graph, held = self.graph, self.held
        variable = self.calls.names.variable
        sizes = ", ".join(f"{dim!r}: {name}" for dim, name in self.functions.dims.items())
        taken = "args, watched" if watches else "args"
        self._emit(f"def program({taken}{parameters(self.functions.dims)}):", depth=0)
        self._emit(f"{held} = [None] * {len(graph.values)}")
        if graph.inputs:
            self._emit(f"[{', '.join(variable(graph.values[v]) for v in graph.inputs)}] = args")
            self._emit("args.clear()")
        self._emit(f"{self.point} = {self.begin}({held}, {{{sizes}}})")
        if self.told:
            self._emit(f"{self.place} = {self.point}.places")
        dying = self._dying(order, last_use)
        due = watches_by_access(graph, watches)
        for storage in graph.input_storages():
            self._watch(None, due.pop(Access(storage, 0), ()))
        for position, number in enumerate(order):
            self._point(position, points)
            node = graph.nodes[number]
            self._operation(node, position)
            for access in (*(Access(s, 0) for s in graph.created_storages(node)), *node.effects.writes):
                self._watch(node, due.pop(access, ()), position)
            if gone := dying.get(position):
                self._emit(f"{' = '.join(gone)} = None", node=number, step=position)
        refuse_missed(due)
        self._point(len(order), points)
        outputs = "".join(f"{variable(graph.values[v])}, " for v in graph.outputs)
        self._emit(f"return ({outputs.strip()})" if outputs else "return ()")

    def _watch(self, node: Node | None, watches: Sequence[Watch], step: int | None = None) -> None:
        number = None if node is None else node.id
        for watch in watches:
            text = f"watched[{watch.name!r}] = {copy_text(self.graph, node, watch, self.calls)}"
            self._emit(text, node=number, step=step)

    def _dying(self, order: Sequence[int], last_use: Sequence[int]) -> dict[int, list[str]]:
        """Values by the position behind which they are dropped.

        Held values go with all others on their storage, so that it can be recomputed from; the rest behind their last use.
        """
        graph = self.graph
        owned = set(graph.input_storages())
        position_of = {node: position for position, node in enumerate(order)}
        last = dict.fromkeys(graph.outputs, len(order))
        for position, number in enumerate(order):
            for operand in needed_inputs(graph, graph.nodes[number]):
                last[operand] = max(position, last.get(operand, -1))
        found: dict[int, list[str]] = defaultdict(list)
        for value in graph.values:
            maker = graph.producer(value.id)
            if maker is None or value.storage is None:
                continue
            if value.id not in self.held_values:
                found[last.get(value.id, position_of[maker])].append(self.calls.names.variable(value))
            elif value.storage not in owned and (position := last_use[value.storage]) >= 0:
                found[position].append(self.calls.names.variable(value))
        return found

    def _point(self, position: int, points: frozenset[int]) -> None:
        if position in points:
            self._emit(f"if {self.point}.due <= {position}: {self.point}.act({position})")

    def _operation(self, node: Node, position: int) -> None:
        told = self.told.get(node.id, NOWHERE)
        places = {slot: f"{self.place}[{node.outputs[slot]}]" for slot, has in enumerate(told.inside) if has}
        if node.regions:
            emit = partial(self._in_loop, node.id, position)
            write_loop(self.graph, node, self.bodies[node.id], self.calls, emit, places)
            return
        stream = node.effects.rng
        if stream is not None and node.id in self.repeatable:
            state = f"{self.calls.bind('random_state', random_state)}({self.calls.device(stream)})"
            self._emit(f"{self.point}.states[{node.id}] = {state}", node=node.id, step=position)
        call, to_copy = put_call(self.graph, node, self.calls, told.out, places, again=False)
        if not node.outputs:
            self._emit(call.text, node=node.id, step=position)
            return
        extras: list[str] = []
        target = self._target(node, call.results, extras)
        self._emit(f"{target} = {call.text}", node=node.id, step=position)
        for slot, place in to_copy.items():
            name = self.calls.names.variable(self.graph.values[node.outputs[slot]])
            self._emit(f"{name} = {place}.copy_({name})", node=node.id, step=position)
        if extras:
            self._emit(f"del {', '.join(extras)}", node=node.id, step=position)

    def _in_loop(self, node: int, position: int, text: str, deeper: int) -> None:
        self._emit(text, depth=1 + deeper, node=node, step=position)

    def _target(self, node: Node, results: Arg, extras: list[str]) -> str:
        names = self.calls.names
        if isinstance(results, Ref):
            return names.variable(self.graph.values[node.outputs[results.slot]])
        if isinstance(results, tuple):
            return f"[{', '.join(self._target(node, item, extras) for item in results)}]"
        name = names.fresh(results if isinstance(results, str) else f"unused_{len(extras)}")
        extras.append(name)
        return name

    def _emit(self, text: str, *, depth: int = 1, node: int | None = None, step: int | None = None) -> None:
        self.functions.emit(node, "    " * depth + text)
        self.steps.append(step)
