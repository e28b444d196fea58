"""Schedule -> readable Python that calls ATen, one line an operation, every storage freed at its last use.

No autograd objects, no hidden references: names are deleted directly after the step that needs them last, so that
what is live is what `analysis.liveness` says.

Between the operations of a program with points, values that an action may take, read or put back live in one list; all
others are plain variables, which cost less. A point at which there is nothing to do costs one comparison.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from neaptide.analysis.liveness import compute_liveness, with_frees
from neaptide.analysis.loops import body_schedule, first_trip_writes
from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.copy_engines.waiting_state import WaitingState
from neaptide.cost.random_states import drawn_again, random_state
from neaptide.errors import LoweringError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide.lower.dims import DimReader
from neaptide.lower.loops import handed_dims, part_lengths, write_loop
from neaptide.lower.names import Names
from neaptide.lower.out_variants import resolve_operation
from neaptide.lower.places import NO_PLACES, NOWHERE, OutVariant, Place, Places, ToldPlaces
from neaptide.lower.program import NodeFunction, Points, Program, Watch
from neaptide.lower.torch_calls import CallWriter, copy_text, refuse_missed, watches_by_access
from neaptide.lower.transfers import host_pools, transfer_lines

__all__ = ["FunctionWriter", "Watch", "lower", "resolve_operation"]

INDENT = "    "


def lower(
    graph: Graph,
    schedule: Schedule,
    registry: OpRegistry,
    *,
    watches: Sequence[Watch] = (),
    places: Places = NO_PLACES,
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    waiting: WaitingState | None = None,
    points: Points | None = None,
) -> Program:
    """Generate the program of a legal schedule (see `analysis.legality.schedule`); `FREE` steps are put in anew. O(size of the schedule).

    It takes the symbolic dims that the graph's inputs tell, and with points those that calls choose; then the schedule
    runs each node once, and a loop is one operation. `waiting` holds what is on the host between two runs, by default of
    this program alone.
    """
    for step in schedule.steps:
        if not step.runs_node and not step.moves_bytes and step.kind is not StepKind.FREE:
            raise LoweringError(f"a step of the kind {step.kind.value!r} cannot be lowered to torch code")
    writer = _Writer(graph, registry, points, places)
    if writer.dims and (places or schedule.has_transfers):
        raise LoweringError(
            f"{'an arena' if places else 'an offload on the host'} has one size, but this program takes "
            f"{', '.join(writer.dims)}",
            next_step="leave it out, or bind all dimensions before lowering",
        )
    writer.pools = host_pools(graph, schedule, writer.calls, slow)
    writer.waiting = waiting or WaitingState()
    again = writer.repetitions()
    writer.program(graph, schedule, watches)
    lines = writer.lines
    return Program(
        graph=graph,
        schedule=with_frees(graph, schedule),
        source="\n".join(line.text for line in lines) + "\n",
        line_nodes=tuple(line.node for line in lines),
        line_steps=tuple(line.step for line in lines),
        names=writer.calls.globals,
        watches=tuple(watches),
        places=writer.used_places,
        dims=writer.dims,
        begin=writer.begin,
        again=again,
    )


@dataclass(frozen=True, slots=True)
class Line:
    """`node` is what the line runs, the innermost one; `step` is its step in the outermost graph."""

    text: str
    node: Node | None = None
    step: int | None = None


class FunctionWriter:
    """Writes functions that run one node each; `dims` are the variables of those that the program takes."""

    def __init__(self, graph: Graph, registry: OpRegistry, *, chosen: bool = False) -> None:
        self.graph = graph
        self.calls = CallWriter(Names(graph), registry)
        reader = DimReader(graph)
        known = (*reader.dims, *reader.chosen) if chosen else reader.dims
        self.dims = {dim: self.calls.names.fresh(dim, "dim") for dim in known}
        self.calls.dims = dict(self.dims)
        self.lines: list[Line] = []

    def function(self, node: Node, *, again: bool, told: ToldPlaces = NOWHERE) -> NodeFunction:
        """Write the function of a node, or of its repetition; results lie where it is told."""
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
        call, to_copy = calls.put(graph, node, told.out, places, again=again)
        dims = tuple(calls.dims_used)
        outputs = [calls.names.variable(graph.values[v]) for v in node.outputs]
        if not outputs:
            body = [call.text, "return ()"]
        elif call.results == Ref(0):
            body = [f"return ({call.text},)"]
        else:
            body = [f"{self.target(graph, node, call.results)} = {call.text}"]
            body += [f"{outputs[slot]} = {place}.copy_({outputs[slot]})" for slot, place in to_copy.items()]
            body.append(f"return ({', '.join(outputs)},)")
        variables = [calls.names.variable(graph.values[v]) for v in arguments]
        taken = [*variables, *(self.dims[dim] for dim in dims), *places.values()]
        self.lines.append(Line(f"def {name}({', '.join(taken)}):"))
        self.lines += [Line(INDENT + line, node) for line in body]
        self.lines.append(Line(""))
        return NodeFunction(name, arguments, dims, tuple(places))

    def target(self, graph: Graph, node: Node, results: Arg) -> str:
        """What the results of a node are assigned to."""
        names = self.calls.names
        if isinstance(results, Ref):
            return names.variable(graph.values[node.outputs[results.slot]])
        if isinstance(results, tuple):
            return f"[{', '.join(self.target(graph, node, item) for item in results)}]"
        return names.fresh(results) if isinstance(results, str) else names.fresh("_")


@dataclass(frozen=True, slots=True)
class _Place:
    """A step of a function that is being written."""

    graph: Graph
    node: Node
    position: int
    step: Step


class _Writer(FunctionWriter):
    """Writes a program, the bodies of its loops as functions before it."""

    def __init__(self, graph: Graph, registry: OpRegistry, points: Points | None, places: Places) -> None:
        super().__init__(graph, registry, chosen=points is not None)
        self.points, self.places = points, places
        self.used_places: dict[str, Place] = {}
        self.pools: Mapping[str, str] = {}
        self.waiting = WaitingState()
        self.outer: tuple[Node, ...] = ()
        self.bodies = 0
        self.draws: dict[int, int] = {}
        self.held_values: frozenset[int] = frozenset() if points is None else points.held(graph)
        self.begin = self.held = self.point = self.place = ""
        if points is not None:
            fresh = self.calls.names.fresh
            self.begin, self.held, self.point, self.place = map(fresh, ("begin", "held", "point", "place"))

    def repetitions(self) -> dict[int, NodeFunction]:
        if self.points is None:
            return {}
        told, nodes = self.points.told_again, self.graph.nodes
        return {
            node: self.function(
                nodes[node], again=bool(nodes[node].effects.writes), told=told.get(node, NOWHERE)
            )
            for node in sorted(self.points.repeatable)
        }

    def program(
        self,
        graph: Graph,
        schedule: Schedule,
        watches: Sequence[Watch] = (),
        name: str = "program",
        dims: Mapping[str, str] | None = None,
    ) -> None:
        """Emit `def name(args)`, which takes some dims by keyword, by default those of the program."""
        dims = self.dims if dims is None else dims
        self.calls.dims = dict(dims)
        parts = list(part_lengths(graph, self.calls)) if self.outer else []
        known = self.calls.dims
        bodies = {
            node.id: self.loop_body(node, body_schedule(node, schedule.bodies), known)
            for node in graph.nodes
            if node.regions
        }
        if self.points is not None and not self.outer:
            self.calls.names.hold(self.held, self.held_values)
        self.draws = repeated_draws(graph, schedule)
        variable = self.calls.names.variable
        overwritten = first_trip_writes(self.outer[-1].regions[0]) if self.outer else frozenset()
        first = self.calls.names.fresh("is_first") if overwritten else ""
        taken = ["args", *(["watched"] if watches else []), *([first] if first else [])]
        taken += ["*", *dims.values()] if dims else []
        self._emit(f"def {name}({', '.join(taken)}):", depth=0)
        self._take_inputs(graph)
        self.calls.dims = known
        for length, text in parts:
            self._emit(f"{length} = {text}")
        due = watches_by_access(graph, watches)
        for storage in graph.input_storages():
            self._watch(graph, None, due.pop(Access(storage, 0), ()))
        heading = ""
        liveness = compute_liveness(graph, schedule)
        dropped = {} if self.points is None or self.outer else self._dropped()
        transfers = transfer_lines(graph, schedule, liveness, self.calls, self.pools, self.waiting)
        for text in transfers.get(-1, ()):
            self._emit(text)
        for position, (step, dead) in enumerate(zip(liveness.steps, liveness.deaths, strict=True)):
            node = graph.nodes[step.target]
            self._at_point(position)
            here = f"{node.source.phase} {node.source.module}".strip()
            if here and here != heading:
                self._emit(f"# {here}")
            heading = here or heading
            place = _Place(graph, node, position, step)
            seen = [w for access in _versions_made(graph, step) for w in due.pop(access, ())]
            last = [v for v in dead if self.outer or v not in self.held_values]
            if node.regions:
                filled, _ = self._filled(place)
                write_loop(graph, node, bodies[node.id], self.calls, partial(self._at, place), filled)
                gone = [variable(graph.values[v]) for v in last]
            elif overwritten.intersection(node.inputs):
                # The addition of a part to a sum that the first trip begins by overwriting it.
                into, part = (variable(graph.values[v]) for v in node.inputs)
                text = f"{into}.copy_({part}) if {first} else {into}.add_({part})"
                self._at(place, text + _comment(node, again=False))
                gone = [variable(graph.values[v]) for v in last]
            else:
                gone = self._operation(place, last, keep_name=bool(seen))
            self._watch(graph, place, seen)
            if gone:
                self._at(place, f"del {', '.join(gone)}")
            if position in dropped:
                self._at(place, f"{' = '.join(dropped[position])} = None")
            for text in transfers.get(position, ()):
                self._emit(text)
        refuse_missed(due)
        self._at_point(len(liveness.steps))
        outputs = "".join(f"{variable(graph.values[v])}, " for v in graph.outputs)
        self._emit(f"return ({outputs.strip()})" if outputs else "return ()")
        self._emit("", depth=0)

    def loop_body(self, node: Node, schedule: Schedule, known: Mapping[str, str]) -> str:
        """Emit the function of one trip; its name. `known` are the dims of the function around."""
        if self.points is not None and schedule.has_transfers:
            raise LoweringError("the body of a loop stores on the host, and its program has no pool for that")
        self.bodies += 1
        name = self.calls.names.fresh(f"body_{self.bodies}")
        outer, self.outer = self.outer, (*self.outer, node)
        loop = node.regions[0]
        handed = {dim: self.calls.names.fresh(dim, "dim") for dim in handed_dims(loop, known)}
        self.program(loop.body, schedule, name=name, dims=handed)
        self.outer = outer
        return name

    # -- points

    def _take_inputs(self, graph: Graph) -> None:
        has_points = self.points is not None and not self.outer
        if has_points:
            self._emit(f"{self.held} = [None] * {len(graph.values)}")
        inputs = [self.calls.names.variable(graph.values[v]) for v in graph.inputs]
        if inputs:
            self._emit(f"[{', '.join(inputs)}] = args")
            self._emit("args.clear()")
        if has_points:
            sizes = ", ".join(f"{dim!r}: {name}" for dim, name in self.dims.items())
            self._emit(f"{self.point} = {self.begin}({self.held}, {{{sizes}}})")
            if self.points is not None and self.points.told:
                self._emit(f"{self.place} = {self.point}.places")

    def _at_point(self, position: int) -> None:
        if self.points is not None and not self.outer and position in self.points.at:
            self._emit(f"if {self.point}.due <= {position}: {self.point}.act({position})")

    def _dropped(self) -> dict[int, list[str]]:
        """Held values by the position after which they go: with all others on their storage, so that it can be recomputed from."""
        assert self.points is not None
        graph, owned = self.graph, set(self.graph.input_storages())
        found: dict[int, list[str]] = defaultdict(list)
        for value in map(graph.values.__getitem__, sorted(self.held_values)):
            if value.storage is None or value.storage in owned or graph.producer(value.id) is None:
                continue
            position = self.points.last_use[value.storage]
            if 0 <= position < len(graph.nodes):
                found[position].append(self.calls.names.variable(value))
        return found

    # -- one operation

    def _operation(self, place: _Place, dead: Sequence[int], *, keep_name: bool) -> list[str]:
        """Emit one call; gives the variables to delete after it."""
        graph, node = place.graph, place.node
        again = place.step.kind is StepKind.RECOMPUTE
        depth, gone_state = self._random_state(place, again=again)
        filled, out = self._filled(place)
        call, to_copy = self.calls.put(graph, node, out, filled, again=again)
        text, comment = call.text, _comment(node, again=again)
        gone = list(dead)
        if not node.outputs:
            self._at(place, f"{text}{comment}", depth)
        elif call.results == Ref(0) and node.outputs[0] in dead and not keep_name:
            # Without a name there is nothing to delete.
            self._at(place, f"{text}{comment}", depth)
            gone.remove(node.outputs[0])
        else:
            self._at(place, f"{self.target(graph, node, call.results)} = {text}{comment}", depth)
        for slot, where in to_copy.items():
            name = self.calls.names.variable(graph.values[node.outputs[slot]])
            self._at(place, f"{name} = {where}.copy_({name})")
        variables = [self.calls.names.variable(graph.values[v]) for v in gone]
        return [*variables, *(self.calls.names.fresh(extra) for extra in _extras(call.results)), *gone_state]

    def _random_state(self, place: _Place, *, again: bool) -> tuple[int, list[str]]:
        """See to the generator of a draw that is repeated: how deep its call stands, what to delete after it."""
        node, stream = place.node, place.node.effects.rng
        last = self.draws.get(node.id)
        at_points = self.points is not None and not self.outer and node.id in self.points.repeatable
        if stream is None or not (at_points or last is not None):
            return 0, []
        state, device = self.calls.names.fresh(f"random_{node.id}"), self.calls.device(stream)
        if not again:
            kept = f"{self.point}.states[{node.id}]" if at_points else state
            self._at(place, f"{kept} = {self.calls.bind('random_state', random_state)}({device})")
            return 0, []
        self._at(place, f"with {self.calls.bind('drawn_again', drawn_again)}({device}, {state}):")
        return 1, [state] if place.position == last else []

    def _filled(self, place: _Place) -> tuple[dict[int, str], OutVariant | None]:
        """Names of the places of a step's results, by output, and what writes straight there."""
        node, values = place.node, place.graph.values
        if self.outer:
            return {}, None
        if self.points is not None:
            told = self.points.told.get(node.id, NOWHERE)
            inside = enumerate(told.inside)
            return {slot: f"{self.place}[{node.outputs[slot]}]" for slot, has in inside if has}, told.out
        here = self.places.get(place.position)
        if here is None:
            return {}, None
        names: dict[int, str] = {}
        for slot, where in enumerate(here.places):
            if where is not None:
                base = f"place_of_{values[node.outputs[slot]].name}"
                names[slot] = self.calls.names.fresh(base, ("place", where))
                self.used_places[names[slot]] = where
        return names, here.out

    def _watch(self, graph: Graph, place: _Place | None, watches: Sequence[Watch]) -> None:
        for watch in watches:
            node = None if place is None else place.node
            text = f"watched[{watch.name!r}] = {copy_text(graph, node, watch, self.calls)}"
            if place is None:
                self._emit(text)
            else:
                self._at(place, text)

    def _emit(self, text: str, depth: int = 1) -> None:
        self.lines.append(Line(INDENT * depth + text if text else "", self.outer[-1] if self.outer else None))

    def _at(self, place: _Place, text: str, depth: int = 0) -> None:
        step = None if self.outer else place.position
        self.lines.append(Line(INDENT * (depth + 1) + text, place.node, step))


def _comment(node: Node, *, again: bool) -> str:
    where = f"{PurePath(node.source.file).name}:{node.source.line}" if node.source.file else ""
    words = ", ".join(filter(None, ("again" if again else "", where)))
    return f"  # {words}" if words else ""


def _extras(results: Arg) -> Iterator[str]:
    if isinstance(results, str):
        yield results
    elif isinstance(results, tuple):
        for item in results:
            yield from _extras(item)


def _versions_made(graph: Graph, step: Step) -> tuple[Access, ...]:
    """Storage versions that exist for the first time after a step."""
    if step.kind is StepKind.RECOMPUTE:
        return ()
    node = graph.nodes[step.target]
    return (*(Access(s, 0) for s in graph.created_storages(node)), *node.effects.writes)


def repeated_draws(graph: Graph, schedule: Schedule) -> dict[int, int]:
    """Nodes that draw random numbers and run more than once, with the position of their last execution. O(steps)."""
    return {
        step.target: position
        for position, step in enumerate(schedule.node_steps())
        if step.kind is StepKind.RECOMPUTE and graph.nodes[step.target].effects.rng is not None
    }
