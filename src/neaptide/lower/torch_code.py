"""Schedule -> readable Python that calls ATen, one line an operation, every storage freed at its last use.

No autograd objects, no hidden references: names are deleted directly behind the step that needs them last, so that
what is alive is what `analysis.liveness` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from types import MappingProxyType

from neaptide.analysis.liveness import compute_liveness, with_frees
from neaptide.analysis.loops import body_schedule, first_trip_writes
from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide.lower.dims import DimReader, parameters
from neaptide.lower.loops import added_text, handed_dims, part_lengths, write_loop
from neaptide.lower.names import Names
from neaptide.lower.places import NO_PLACES, PlaceNames, Places
from neaptide.lower.program import Program, Watch
from neaptide.lower.random_states import DrawnAgain, random_state, repeated_draws
from neaptide.lower.torch_calls import CallText, CallWriter, put_call
from neaptide.lower.torch_ops import resolve_operation
from neaptide.lower.transfers import host_pools, transfer_lines
from neaptide.lower.watches import copy_text, refuse_missed, watches_by_access
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.movers.waiting_state import WaitingState

__all__ = ["Watch", "lower", "resolve_operation"]

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
) -> Program:
    """Generate the program of a schedule. O(size of the schedule).

    Args:
        schedule: legal (see `analysis.legality`); `FREE` steps are put in anew.
        waiting: holds what is on the host between two runs; by default a holder of this program alone.
    """
    for step in schedule.steps:
        if not step.runs_node and not step.moves_bytes and step.kind is not StepKind.FREE:
            raise LoweringError(f"a step of the kind {step.kind.value!r} cannot be lowered to torch code")
    calls = CallWriter(Names(graph), registry)
    dims = {dim: calls.names.fresh(dim, "dim") for dim in DimReader(graph).dims}
    if dims and (places or schedule.has_transfers):
        raise LoweringError(
            f"{'an arena' if places else 'a stay on the host'} has one size, but this program takes {', '.join(dims)}",
            next_step="leave it out, or bind all dimensions before lowering",
        )
    pools = host_pools(graph, schedule, calls, slow)
    writer = _Writer(calls, places, PlaceNames(calls.names), pools, waiting or WaitingState())
    writer.function("program", graph, schedule, watches, dims)
    lines = writer.lines
    return Program(
        graph=graph,
        schedule=with_frees(graph, schedule),
        source="\n".join(line.text for line in lines) + "\n",
        line_nodes=tuple(None if line.path is None else line.path[0].id for line in lines),
        line_steps=tuple(line.step for line in lines),
        names=writer.calls.globals,
        body_nodes={n: line.path[-1] for n, line in enumerate(lines, 1) if line.path and len(line.path) > 1},
        watches=tuple(watches),
        places=writer.place_names.used,
        dims=dims,
    )


def body_lines(
    node: Node, schedule: Schedule, calls: CallWriter
) -> tuple[str, list[tuple[str, Node | None]]]:
    """The function of one trip of a loop: its name, and its lines with the innermost node that each runs."""
    if schedule.has_transfers:
        raise LoweringError("the body of a loop stores on the host, and its program has no pool for that")
    around = calls.dims
    writer = _Writer(calls, NO_PLACES, PlaceNames(calls.names), {}, WaitingState())
    name = writer.loop_body(node, schedule, around)
    calls.dims = around
    return name, [(line.text, None if line.path is None else line.path[-1]) for line in writer.lines]


@dataclass(frozen=True, slots=True)
class _Line:
    """`path` leads through loops to the node that the line runs; `step` is its step in the outermost graph."""

    text: str
    path: tuple[Node, ...] | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A step of a function that is being written."""

    graph: Graph
    node: Node
    position: int
    step: Step


@dataclass
class _Writer:
    calls: CallWriter
    places: Places
    place_names: PlaceNames
    pools: Mapping[str, str]
    waiting: WaitingState
    lines: list[_Line] = field(default_factory=list)
    outer: tuple[Node, ...] = ()
    functions: int = 0
    draws: dict[int, int] = field(default_factory=dict)

    def function(
        self,
        name: str,
        graph: Graph,
        schedule: Schedule,
        watches: Sequence[Watch] = (),
        dims: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Emit `def name(args)`, which takes some dims by keyword; the bodies of its loops are emitted before it."""
        self.calls.dims = dict(dims)
        parts = list(part_lengths(graph, self.calls)) if self.outer else []
        known = self.calls.dims
        bodies = {
            node.id: self.loop_body(node, body_schedule(node, schedule.bodies), known)
            for node in graph.nodes
            if node.regions
        }
        self.draws = repeated_draws(graph, schedule)
        variable = self.calls.names.variable
        overwritten = first_trip_writes(self.outer[-1].regions[0]) if self.outer else frozenset()
        first = self.calls.names.fresh("is_first") if overwritten else ""
        taken = ["args", *(["watched"] if watches else []), *([first] if first else [])]
        self._emit(f"def {name}({', '.join(taken)}{parameters(dims)}):", depth=0)
        inputs = [variable(graph.values[v]) for v in graph.inputs]
        if inputs:
            self._emit(f"[{', '.join(inputs)}] = args")
            self._emit("args.clear()")
        self.calls.dims = known
        for length, text in parts:
            self._emit(f"{length} = {text}")
        due = watches_by_access(graph, watches)
        for storage in graph.input_storages():
            self._watch(graph, None, due.pop(Access(storage, 0), ()))
        heading = ""
        liveness = compute_liveness(graph, schedule)
        transfers = transfer_lines(graph, schedule, liveness, self.calls, self.pools, self.waiting)
        for text in transfers.get(-1, ()):
            self._emit(text)
        for position, (step, dead) in enumerate(zip(liveness.steps, liveness.deaths, strict=True)):
            node = graph.nodes[step.target]
            here = f"{node.source.phase} {node.source.module}".strip()
            if here and here != heading:
                self._emit(f"# {here}")
            heading = here or heading
            place = _Place(graph, node, position, step)
            seen = [w for access in _versions_made(graph, step) for w in due.pop(access, ())]
            if node.regions:
                filled = self._places(place)
                write_loop(graph, node, bodies[node.id], self.calls, partial(self._at, place), filled)
                gone = [variable(graph.values[v]) for v in dead]
            elif overwritten.intersection(node.inputs):
                self._at(place, added_text(graph, node, variable, first) + _comment(node, again=False))
                gone = [variable(graph.values[v]) for v in dead]
            else:
                gone = self._operation(place, dead, keep_name=bool(seen))
            self._watch(graph, place, seen)
            if gone:
                self._at(place, f"del {', '.join(gone)}")
            for text in transfers.get(position, ()):
                self._emit(text)
        refuse_missed(due)
        outputs = "".join(f"{variable(graph.values[v])}, " for v in graph.outputs)
        self._emit(f"return ({outputs.strip()})" if outputs else "return ()")
        self._emit("", depth=0)

    def _operation(self, place: _Place, dead: Sequence[int], *, keep_name: bool) -> list[str]:
        """Emit one call; gives the variables to delete behind it."""
        graph, node = place.graph, place.node
        again = place.step.kind is StepKind.RECOMPUTE
        depth, gone_state = self._random_state(place, again=again)
        call, to_copy = self._call(place, again=again)
        text, comment = call.text, _comment(node, again=again)
        gone = list(dead)
        if not node.outputs:
            self._at(place, f"{text}{comment}", depth)
        elif call.results == Ref(0) and node.outputs[0] in dead and not keep_name:
            # Without a name there is nothing to delete.
            self._at(place, f"{text}{comment}", depth)
            gone.remove(node.outputs[0])
        else:
            self._at(place, f"{self._target(place, call.results)} = {text}{comment}", depth)
        for slot, where in to_copy.items():
            name = self.calls.names.variable(graph.values[node.outputs[slot]])
            self._at(place, f"{name} = {where}.copy_({name})")
        variables = [self.calls.names.variable(graph.values[v]) for v in gone]
        return [*variables, *(self.calls.names.fresh(extra) for extra in _extras(call.results)), *gone_state]

    def _random_state(self, place: _Place, *, again: bool) -> tuple[int, list[str]]:
        """See to the generator of a draw that is repeated: how deep its call stands, what to delete behind it."""
        stream, last = place.node.effects.rng, self.draws.get(place.node.id)
        if stream is None or last is None:
            return 0, []
        state, device = self.calls.names.fresh(f"random_{place.node.id}"), self.calls.device(stream)
        if not again:
            self._at(place, f"{state} = {self.calls.bind('random_state', random_state)}({device})")
            return 0, []
        self._at(place, f"with {self.calls.bind('drawn_again', DrawnAgain)}({device}, {state}):")
        return 1, [state] if place.position == last else []

    def _call(self, place: _Place, *, again: bool) -> tuple[CallText, dict[int, str]]:
        """A call, and the places of those outputs that must be copied there behind it."""
        graph, node, filled = place.graph, place.node, self._places(place)
        here = None if self.outer else self.places.get(place.position)
        out = None if here is None else here.out
        return put_call(graph, node, self.calls, out, filled, again=again)

    def _places(self, place: _Place) -> dict[int, str]:
        """Names of the places of a step's results, by output."""
        here = None if self.outer else self.places.get(place.position)
        values = place.graph.values
        return {
            slot: self.place_names.name(values[place.node.outputs[slot]], where)
            for slot, where in enumerate(() if here is None else here.places)
            if where is not None
        }

    def _target(self, place: _Place, results: Arg) -> str:
        names = self.calls.names
        if isinstance(results, Ref):
            return names.variable(place.graph.values[place.node.outputs[results.slot]])
        if isinstance(results, tuple):
            return f"[{', '.join(self._target(place, item) for item in results)}]"
        return names.fresh(results) if isinstance(results, str) else names.fresh("_")

    def _watch(self, graph: Graph, place: _Place | None, watches: Sequence[Watch]) -> None:
        for watch in watches:
            node = None if place is None else place.node
            text = f"watched[{watch.name!r}] = {copy_text(graph, node, watch, self.calls)}"
            if place is None:
                self._emit(text)
            else:
                self._at(place, text)

    def loop_body(self, node: Node, schedule: Schedule, known: Mapping[str, str]) -> str:
        """Emit the function of one trip; its name. `known` are the dims of the function around."""
        self.functions += 1
        name = self.calls.names.fresh(f"body_{self.functions}")
        outer, self.outer = self.outer, (*self.outer, node)
        loop = node.regions[0]
        handed = {dim: self.calls.names.fresh(dim, "dim") for dim in handed_dims(loop, known)}
        self.function(name, loop.body, schedule, dims=handed)
        self.outer = outer
        return name

    def _emit(self, text: str, depth: int = 1) -> None:
        self.lines.append(_Line(INDENT * depth + text if text else "", self.outer or None))

    def _at(self, place: _Place, text: str, depth: int = 0) -> None:
        path = (*self.outer, place.node)
        step = None if self.outer else place.position
        self.lines.append(_Line(INDENT * (depth + 1) + text, path, step))


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
    """Storage versions that exist for the first time behind a step."""
    if step.kind is StepKind.RECOMPUTE:
        return ()
    node = graph.nodes[step.target]
    return (*(Access(s, 0) for s in graph.created_storages(node)), *node.effects.writes)
