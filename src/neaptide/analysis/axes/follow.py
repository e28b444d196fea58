"""From where an axis lies in a few values to what carries it in a whole graph. Rows of the op table decide."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from neaptide.analysis.axes.lines import Line, Lines
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Merge, Need
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import FILLING_OPS, Node
from neaptide.ir.registry import OpRegistry


class Why(StrEnum):
    """Why a node is a barrier."""

    WHOLE = "whole"  # it needs the whole axis
    COMPLETE = "complete"  # it needs a complete sum
    NO_ROW = "no_row"  # no row says what it does along an axis


@dataclass(frozen=True, slots=True)
class Barrier:
    """A node that does not run in parts although an operand of it depends on the axis."""

    node: int
    why: Why
    reason: str


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be seen to before a node may run in parts, and of which operands: sums that must be complete, addends."""

    node: int
    need: Need
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Carried:
    """An axis followed through a graph.

    Attributes:
        axes: by value that carries it, where. Some are made whole, by a barrier or outside, and can be cut into parts.
        sums: values of which each part makes a term. Where a node has `Need.MEAN`, only once that is seen to.
        maxima: the same of what the greatest, or the least, is to be taken of.
        members: by node that runs in parts, how. What it makes is in `axes`, in `sums` or `maxima`, or the same in
            each part.
        conditions: what must be seen to before all members may run in parts.
        barriers: nodes that depend on the axis and do not run in parts.
        private: values that mean something within their part only: they must neither enter nor leave the nodes that run
            in parts together. Some carry the axis, such as places counted from the start of the part; others have no dim
            that it could lie in, such as what a library keeps for the backward.
        after: values that depend on the axis and are made by barriers, or from what barriers make.
    """

    length: int
    axes: Mapping[int, Along]
    sums: frozenset[int]
    maxima: frozenset[int]
    members: Mapping[int, Line]
    conditions: tuple[Condition, ...]
    barriers: tuple[Barrier, ...]
    private: frozenset[int]
    behind: frozenset[int]
    untouched: frozenset[int]


def follow(
    graph: Graph,
    registry: OpRegistry,
    seeds: Mapping[int, Along],
    length: int,
    nodes: Collection[int] | None = None,
    lines: Lines | None = None,
) -> Carried:
    """Follow an axis from some values through a graph.

    A node runs in parts where its row has an axis that lies in its operands as they carry it. Operands that must be
    cut although nothing said so before, such as a mask, carry the axis from then on, and so does what makes them,
    where all who use it cut it. Where a row says nothing, a node is a barrier: its results are whole.

    Seeds are believed where nothing in the graph contradicts. `length` is the smallest number of elements that parts are
    counted in. O(passes * nodes); two to four passes, since most axes run forward from the inputs.
    """
    for number, along in seeds.items():
        value = graph.values[number]
        if not 0 <= along.dim < len(value.shape) or (
            value.shape[along.dim].constant_value() % (along.outer * length)
        ):
            raise RewriteError(f"an axis of {length} does not lie in dim {along.dim} of %{value.name}")
    here = range(len(graph.nodes)) if nodes is None else sorted(set(nodes))
    lines = Lines(graph, registry, length) if lines is None else lines
    pins, pulled = dict(seeds), set[int]()
    users = _users(graph, here)
    while True:
        walk = _Walk(graph, lines, dict(pins), frozenset(pulled))
        for number in here:
            walk.visit(graph.nodes[number])
        wanted = {value: along for value, along in walk.wanted.items() if value not in pins}
        more = _pullable(walk, users, {**pins, **wanted}, here)
        if not wanted and more <= pulled:
            return walk.carried()
        pins.update(wanted)
        pulled |= more


def _users(graph: Graph, here: Collection[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number in here:
        for value in dict.fromkeys(graph.nodes[number].inputs):
            found.setdefault(value, []).append(number)
    return found


def _pullable(
    walk: _Walk, users: Mapping[int, list[int]], pins: Mapping[int, Along], here: Collection[int]
) -> set[int]:
    """Nodes that depend on nothing that carries the axis, all of whose results are cut by everyone who uses them."""
    found = set()
    inside = set(here)
    for value in pins:
        number = walk.graph.producer(value)
        if number is None or number not in inside or number not in walk.untouched:
            continue
        node = walk.graph.nodes[number]
        cut = all(
            walk.cuts(user, result) for result in node.outputs for user in users.get(result, ())
        ) and all(result in pins or not users.get(result) for result in node.outputs)
        if cut and node.effects.is_pure and not set(node.outputs) & set(walk.graph.outputs):
            found.add(number)
    return found


@dataclass(frozen=True, slots=True)
class _Write:
    """The last write to a storage: the result that it made of it, if any, and what the node is that wrote."""

    output: int | None
    version: int
    by_member: bool
    by_barrier: bool


@dataclass
class _Walk:
    """One pass in program order."""

    graph: Graph
    lines: Lines
    pins: dict[int, Along]
    pulled: frozenset[int]
    axes: dict[int, Along] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)
    maxima: set[int] = field(default_factory=set)
    private: set[int] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)
    members: dict[int, Line] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)
    untouched: set[int] = field(default_factory=set)
    wanted: dict[int, Along] = field(default_factory=dict)
    last_write: dict[int, _Write] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for value, along in self.pins.items():
            if self.graph.producer(value) is None:
                self.axes[value] = along

    def carried(self) -> Carried:
        """What was found. Values that are cut but were made outside the nodes that were looked at count as well."""
        axes = {**{v: a for v, a in self.pins.items() if v not in self.sums | self.maxima}, **self.axes}
        return Carried(
            self.lines.length,
            axes,
            frozenset(self.sums),
            frozenset(self.maxima),
            self.members,
            tuple(self.conditions),
            tuple(self.barriers),
            frozenset(self.private),
            frozenset(self.behind),
            frozenset(self.untouched),
        )

    def cuts(self, number: int, value: int) -> bool:
        """Whether a node is a member that takes parts of a value."""
        line = self.members.get(number)
        node = self.graph.nodes[number]
        return line is not None and all(
            slot in line.operands for slot, operand in enumerate(node.inputs) if operand == value
        )

    def visit(self, node: Node) -> None:
        operands = [self._current(value) for value in node.inputs]
        if node.op in FILLING_OPS:  # what a destination has by now is not asked
            operands[0] = node.inputs[0]
        shape_only = self.lines.shape_only(node)
        carried = {s: self._along(v) for s, v in enumerate(operands)}
        seen = {s: along for s, along in carried.items() if along is not None}
        required = {s: along for s, along in seen.items() if s not in shape_only}
        optional = {s: along for s, along in seen.items() if s in shape_only}
        terms = frozenset(
            s for s, v in enumerate(operands) if s not in shape_only and (v in self.sums or v in self.maxima)
        )
        own = {s for s, v in enumerate(operands) if v in self.private and s not in shape_only}
        if -1 in operands:
            self._bar(node, Why.WHOLE, "reads what was written through a view")
        elif own and not required:
            self._bar_private(node)
        elif required or optional:
            self._member(node, operands, required, optional, terms)
        elif terms:
            self._linear(node, operands, terms)
        elif node.id in self.pulled:
            self._pulled(node)
        else:
            self._untouched(node, operands)
        self._note_writes(node)

    def _along(self, value: int) -> Along | None:
        if value < 0:
            return None
        found = self.axes.get(value)
        if found is None and value not in self.sums and value not in self.maxima:
            return self.pins.get(value)
        return found

    def _current(self, value: int) -> int:
        """The value whose numbers an operand has now: its storage may have been written to since it was made.

        -1 where that was done under another shape, by a node that runs in parts. What a barrier has written to is whole,
        and depends on the axis.
        """
        known = self.graph.values[value]
        found = None if known.storage is None else self.last_write.get(known.storage)
        if found is None or found.version <= known.version or found.output == value:
            return value
        if found.output is not None and self._lie_alike(found.output, value):
            return found.output
        if found.by_member:
            return value if found.output is None and value in self.axes else -1
        if found.by_barrier:
            self.behind.add(value)
        return value

    def _lie_alike(self, a: int, b: int) -> bool:
        one, other = self.graph.values[a], self.graph.values[b]
        return (one.shape, one.strides, one.offset) == (other.shape, other.strides, other.offset)

    def _note_writes(self, node: Node) -> None:
        by_member = node.id in self.members
        by_barrier = bool(self.barriers) and self.barriers[-1].node == node.id
        for access in node.effects.writes:
            output = next((v for v in node.outputs if self.graph.values[v].storage == access.storage), None)
            self.last_write[access.storage] = _Write(output, access.version, by_member, by_barrier)

    def _member(
        self,
        node: Node,
        operands: list[int],
        required: Mapping[int, Along],
        optional: Mapping[int, Along],
        terms: frozenset[int],
    ) -> None:
        if self.lines.row(node) is None:
            if required:
                self._bar(node, Why.NO_ROW, "no row says what it does along an axis")
            else:
                self._untouched(node, operands)
            return
        line = self.lines.find(node, required, optional, {})
        if line is None:
            if required:
                self._bar(node, Why.WHOLE, self._needed(node, required))
            elif terms:
                self._linear(node, operands, terms)
            else:
                self._untouched(node, operands)
            return
        if line.axis.whole:
            self._bar(node, Why.WHOLE, self._needed(node, required))
            for k, how in line.results.items():
                if isinstance(how, Along):
                    self.axes[node.outputs[k]] = how
            return
        shape_only = self.lines.shape_only(node)
        own = {s for s, v in enumerate(operands) if v in self.private and s not in shape_only}
        if own != set(line.axis.own):
            self._bar_private(node)
            return
        late = terms - set(line.axis.unread)
        blocked = [s for s in late if s in line.operands]
        if blocked:
            self._bar(node, Why.COMPLETE, f"cuts %{self._name(operands[blocked[0]])}, a sum over all parts")
            return
        if late:
            values = tuple(dict.fromkeys(operands[s] for s in sorted(late)))
            self.conditions.append(Condition(node.id, Need.COMPLETE, values))
        self._join(node, line, operands)

    def _join(self, node: Node, line: Line, operands: list[int]) -> None:
        """Make a node a member."""
        self.members[node.id] = line
        for need in line.axis.needs:
            about = tuple(node.inputs[s] for s in line.axis.addends) if need is Need.ADDEND else ()
            self.conditions.append(Condition(node.id, need, about))
        if node.effects.rng is not None and Need.RANDOM not in line.axis.needs:
            self.conditions.append(Condition(node.id, Need.RANDOM))
        for slot, along in line.operands.items():
            value = operands[slot]
            if value not in self.axes:
                self.wanted.setdefault(value, along)
                self.axes[value] = along
        for k, how in line.results.items():
            value = node.outputs[k]
            if isinstance(how, Along):
                self.axes[value] = how
                if k in line.axis.private:
                    self.private.add(value)
            elif how is Merge.SUM:
                self.sums.add(value)
            elif how is Merge.OWN:
                self.private.add(value)
            elif how is not Merge.SAME:
                self.maxima.add(value)

    def _linear(self, node: Node, operands: list[int], terms: frozenset[int]) -> None:
        if self.lines.is_linear(node, terms) and not any(operands[s] in self.maxima for s in terms):
            self.members[node.id] = Line({}, dict.fromkeys(range(len(node.outputs)), Merge.SUM))
            self.sums.update(node.outputs)
            return
        name = self._name(operands[min(terms)])
        self._bar(node, Why.COMPLETE, f"needs the complete %{name}")

    def _pulled(self, node: Node) -> None:
        results = {k: self.pins[v] for k, v in enumerate(node.outputs) if v in self.pins}
        line = self.lines.find(node, {}, {}, results)
        if line is None or line.axis.whole or any(need is not Need.HALO for need in line.axis.needs):
            self._untouched(node, list(node.inputs))
        else:
            self._join(node, line, list(node.inputs))

    def _untouched(self, node: Node, operands: list[int]) -> None:
        self.untouched.add(node.id)
        if not self.behind.isdisjoint(operands):
            self.behind.update(node.outputs)
        self._pin_results(node)

    def _bar(self, node: Node, why: Why, reason: str) -> None:
        self.barriers.append(Barrier(node.id, why, reason))
        self.behind.update(node.outputs)
        self._pin_results(node)

    def _bar_private(self, node: Node) -> None:
        self._bar(node, Why.WHOLE, f"needs what means something within a part only: {self._listed(node)}")

    def _pin_results(self, node: Node) -> None:
        """Whole values that somebody cuts."""
        for value in node.outputs:
            if value in self.pins:
                self.axes[value] = self.pins[value]

    def _needed(self, node: Node, required: Mapping[int, Along]) -> str:
        names = dict.fromkeys(f"dim {a.dim} of %{self._name(node.inputs[s])}" for s, a in required.items())
        return f"needs the whole axis: {', '.join(names)}"

    def _listed(self, node: Node) -> str:
        return ", ".join(f"%{self._name(v)}" for v in node.inputs)

    def _name(self, value: int) -> str:
        return self.graph.values[value].name
