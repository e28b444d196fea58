"""Bytes and seconds of a schedule as MAGIS's simulator counts them, played step by step; shares no code with planners.

Chen et al., MAGIS (ASPLOS 2024), section 3, and the released simulator (its `simulator.py`):

* What the step is called with is there from the start to its last use. An update makes a tensor of its own. What nobody
  uses stays to the end.
* A region in parts holds all its merged results while it runs. Each part holds a copy of every slice that it is handed
  until that is used for the last time. What it is handed whole costs nothing in it.
* A part holds its pieces of the results until it ends. Code that MAGIS generates adds a piece and drops it, so that the
  simulator is too high there; both can be asked for.
* A part takes the time of its operations. Slices and merges take none.
* One copy engine does copies to the host and back, beside the operations, in the order in which they are issued.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.analysis.loops import body_schedule, trips
from neaptide.cost.model import CostModel
from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import COPY_OP, Node
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide_peers.magis.seconds import CALL_S, LINK_BYTES_PER_S


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a schedule takes.

    Attributes:
        peak_bytes: most bytes while one operation runs.
        seconds: of all operations, one after another.
    """

    peak_bytes: int
    seconds: float


def footprint(graph: Graph, schedule: Schedule, cost: CostModel, *, holds_pieces: bool = True) -> Footprint:
    """What a schedule of a recorded step takes, loops and recomputations included. O(steps + uses).

    Args:
        graph: a recorded step; regions of it may have become loops.
        schedule: legal; of bodies without transfers.
        cost: of its nodes.
        holds_pieces: a part holds its pieces of the results until it ends, as in MAGIS's simulator; else a piece is gone
            when it is merged.

    Raises:
        UsageError: the schedule of a body has transfers.
    """
    if any(body.has_transfers for body in schedule.bodies.values()):
        raise UsageError("a footprint is counted of bodies without transfers")
    inputs = {value: graph.values[value].nbytes.evaluate() for value in graph.inputs}
    rules = _Rules(cost, holds_pieces)
    return _Play(graph, schedule, rules, {}, inputs, frozenset(graph.outputs)).run()


@dataclass(frozen=True, slots=True)
class _Rules:
    """What holds in all bodies."""

    cost: CostModel
    holds_pieces: bool


@dataclass(slots=True)
class _Instance:
    """A tensor from the step that makes it on; `end` is its last use."""

    nbytes: int
    begin: int
    end: int


class _Play:
    """One walk through a schedule.

    Args:
        graph: the graph, or the body of a loop.
        schedule: of it.
        rules: what is counted.
        sizes: values of symbolic dims.
        inputs: bytes by value that is there before the first step.
        kept: values that stay to the end.
    """

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        rules: _Rules,
        sizes: Mapping[str, int],
        inputs: Mapping[int, int],
        kept: frozenset[int],
    ) -> None:
        self.graph, self.schedule, self.rules, self.sizes = graph, schedule, rules, sizes
        self.cost = rules.cost.under(sizes) if sizes else rules.cost
        self.kept = kept
        self.there = {value: _Instance(nbytes, 0, 0) for value, nbytes in inputs.items()}
        self.all = list(self.there.values())
        self.inside: list[int] = []  # by step, bytes inside a part
        self.now = self.engine_s = 0.0
        self.under_way: dict[tuple[int, int], tuple[bool, float]] = {}

    def run(self) -> Footprint:
        for step in self.schedule.steps:
            if step.runs_node:
                self._run(self.graph.nodes[step.target])
            elif step.moves_bytes:
                self._copy(step)
        last = len(self.inside) - 1
        for value in self.kept & self.there.keys():
            self.there[value].end = last
        return Footprint(self._peak(), self.now)

    def _run(self, node: Node) -> None:
        position = len(self.inside)
        for value in node.inputs:
            if value in self.there:
                self.there[value].end = position
        if node.op == COPY_OP and node.inputs[0] in self.there and not self.graph.outputs:
            # A part is cut out of the whole by this copy: it is the slice.
            self.there[node.outputs[0]] = self.there[node.inputs[0]]
        else:
            for value in node.outputs:
                self._make(value, self.graph.values[value].nbytes.evaluate(self.sizes))
        part = self._parts(node) if node.regions else Footprint(0, self.cost.seconds(self.graph, node))
        self.inside.append(part.peak_bytes)
        self.now += part.seconds

    def _make(self, value: int, nbytes: int) -> None:
        position = len(self.inside)
        self.there[value] = _Instance(nbytes, position, position)
        self.all.append(self.there[value])

    def _copy(self, step: Step) -> None:
        """A copy begins when the engine is free; after the wait for one to the host its bytes are gone."""
        key = (step.target, step.occurrence)
        if step.kind is StepKind.WAIT:
            is_store, done = self.under_way.pop(key)
            self.now = max(self.now, done)
            if is_store:
                self.there[self._value(step.target)].end = len(self.inside) - 1
            return
        value = self._value(step.target)
        nbytes = self.there[value].nbytes
        self.engine_s = max(self.engine_s, self.now) + CALL_S + nbytes / LINK_BYTES_PER_S
        self.under_way[key] = step.kind is StepKind.STORE, self.engine_s
        if step.kind is StepKind.LOAD:
            self._make(value, nbytes)

    def _value(self, storage: int) -> int:
        """The value that lies in a storage: of what a node makes there is one."""
        return next(value for value in self.there if self.graph.values[value].storage == storage)

    def _parts(self, node: Node) -> Footprint:
        """Most bytes inside a part, and the seconds of all parts."""
        (loop,) = node.regions
        body, order = loop.body, body_schedule(node, self.schedule.bodies)
        peak, seconds = 0, 0.0
        destinations = set(loop.destinations())
        # What is written to a result was a piece of it before.
        pieces = frozenset(
            value
            for inner in body.nodes
            if self.rules.holds_pieces and inner.inputs and inner.inputs[0] in destinations
            for value in inner.inputs[1:]
        )
        for count, sizes in trips(self.graph, node, loop, self.sizes):
            handed = {
                number: body.values[number].nbytes.evaluate(sizes)
                for part in loop.slices
                for number in (body.inputs[part.input],)
            }
            made = _Play(body, order, self.rules, sizes, handed, pieces).run()
            peak, seconds = max(peak, made.peak_bytes), seconds + count * made.seconds
        return Footprint(peak, seconds)

    def _peak(self) -> int:
        changes = [0] * (len(self.inside) + 1)
        for instance in self.all:
            changes[instance.begin] += instance.nbytes
            changes[instance.end + 1] -= instance.nbytes
        most = total = 0
        for change, within in zip(changes, self.inside, strict=False):
            total += change
            most = max(most, total + within)
        return most
