"""An axis that sliding windows read, such as the height of an image, followed through a graph.

After a window the axis has other elements than in front of it: fewer after a stride, more after an enlargement, and at
the border as many as padding decides. So it has no one length. It has a *scale* in each value: how many elements stand
for one unit of it. What a part of a value is, and what it reads of its neighbours, follows from the windows after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from neaptide.analysis.axes.follow import Carried
from neaptide.analysis.axes.lines import Line, Lines
from neaptide.ir.axes import Along, Merge, Need, OpAxis
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry

# More rounds than this mean that two operands tie an axis to each other; nets take two.
_MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Scaled:
    """Where an axis lies in a value, and how many elements it has there for one unit."""

    dim: int
    scale: Fraction


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """An axis with windows, followed through some nodes.

    Attributes:
        values: those that carry it; some are made outside, and can be cut.
        members: by node that may run on parts, what its row says; a view has nothing but operand and result.
        private: values whose numbers count from the start of a part, as the places of a maximum do.
        sums: values of which each part makes a term, of its own elements alone.
        means: nodes that take a mean along the axis: to be members, they must take a sum first.
    """

    values: Mapping[int, Scaled]
    members: Mapping[int, OpAxis]
    private: frozenset[int]
    sums: frozenset[int] = frozenset()
    means: frozenset[int] = frozenset()

    def side_by_side(self, graph: Graph) -> Carried:
        """As if parts did not overlap: at least one element of all that carries the axis, for a bound. O(values)."""
        axes = {value: Along(at.dim) for value, at in self.values.items()}
        lines = {
            number: Line(
                {slot: Along(dim) for slot, dim in axis.operands.items()},
                {k: at if isinstance(at, Merge) else Along(at) for k, at in axis.results.items()},
                axis,
            )
            for number, axis in self.members.items()
        }
        length = max((graph.values[v].shape[a.dim].constant_value() for v, a in axes.items()), default=1)
        none: frozenset[int] = frozenset()
        return Carried(length, axes, self.sums, none, lines, (), (), self.private, none, none)


def follow_windows(
    graph: Graph, registry: OpRegistry, seeds: Mapping[int, Scaled], nodes: Collection[int]
) -> WindowAxis:
    """Follow an axis from some values through nodes whose rows know a window, or an axis that stays as it is.

    A node that does not depend on the seeds, needs the whole axis or draws random numbers is no member, and neither is one
    that adds up over it beside what it makes in parts: what two parts make would be added twice.
    Operands beside those that carry the axis are cut where the row says so, and carry it from then on. O(rounds * nodes).
    """
    here = sorted(set(nodes))
    lines = Lines(graph, registry, 1)
    pins = dict(seeds)
    refused: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        walk = _Walk(graph, registry, lines, dict(pins), frozenset(refused))
        for number in here:
            walk.visit(graph.nodes[number])
        # A value cannot be handed to one node in parts and to another whole.
        both = {n for n in walk.members if walk.takes_whole(graph.nodes[n])}
        if not both and walk.pinned == pins:
            return WindowAxis(
                walk.values,
                walk.members,
                frozenset(walk.private),
                frozenset(walk.sums),
                frozenset(walk.means),
            )
        pins, refused = walk.pinned, refused | both
    return WindowAxis({}, {}, frozenset())


@dataclass
class _Walk:
    """One pass in program order. `values` begins with the seeds and what is cut beside them."""

    graph: Graph
    registry: OpRegistry
    lines: Lines
    values: dict[int, Scaled]
    refused: frozenset[int]
    pinned: dict[int, Scaled] = field(init=False)
    members: dict[int, OpAxis] = field(default_factory=dict)
    private: set[int] = field(default_factory=set)
    sums: set[int] = field(default_factory=set)
    means: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pinned = dict(self.values)

    def takes_whole(self, node: Node) -> bool:
        """Whether a member takes an operand whole that carries the axis."""
        axis = self.members[node.id]
        skipped = self.lines.shape_only(node)
        return any(
            value in self.values and slot not in axis.operands and slot not in skipped
            for slot, value in enumerate(node.inputs)
        )

    def visit(self, node: Node) -> None:
        if node.id in self.refused or node.regions:
            return
        effects = node.effects
        if effects.rng is not None or effects.host or effects.collective is not None:
            return
        skipped = self.lines.shape_only(node)
        seen = {s: self.values[v] for s, v in enumerate(node.inputs) if v in self.values and s not in skipped}
        if not seen or any(node.inputs[s] in self.private for s in seen):
            return
        row = self.lines.row(node)
        axes = () if row is None else self._view(node, seen) if row.regroups else self.lines.axes_of(node)
        for axis in axes:
            scale = self._scale(node, axis, seen)
            if scale is not None and self._writes_parts(node, axis):
                self._join(node, axis, scale)
                return

    def _view(self, node: Node, seen: Mapping[int, Scaled]) -> tuple[OpAxis, ...]:
        found = self.lines.through_view(node, seen[0].dim) if set(seen) == {0} else None
        return () if found is None else (found,)

    def _scale(self, node: Node, axis: OpAxis, seen: Mapping[int, Scaled]) -> Fraction | None:
        """Elements of the results for one unit; None where the row does not fit what the operands carry."""
        if any(axis.operands.get(slot) != at.dim for slot, at in seen.items()):
            return None
        if axis.whole or axis.own or axis.addends or set(axis.needs) - {Need.HALO}:
            if axis.needs == (Need.MEAN,):
                self.means.add(node.id)
            return None
        if not _merges_apart(axis):
            return None
        if axis.window is None and not self._has_one_extent(node, axis):
            return None
        scales = {at.scale * times_of(axis, slot) for slot, at in seen.items()}
        return scales.pop() if len(scales) == 1 else None

    def _has_one_extent(self, node: Node, axis: OpAxis) -> bool:
        values = self.graph.values
        extents = {values[node.inputs[slot]].shape[dim] for slot, dim in axis.operands.items()}
        extents |= {
            values[node.outputs[k]].shape[dim]
            for k, dim in axis.results.items()
            if not isinstance(dim, Merge)
        }
        return len(extents) == 1

    def _writes_parts(self, node: Node, axis: OpAxis) -> bool:
        """Whether all that a node overwrites are operands that it takes in parts."""
        cut = {self.graph.values[node.inputs[slot]].storage for slot in axis.operands}
        return all(access.storage in cut for access in node.effects.writes)

    def _join(self, node: Node, axis: OpAxis, scale: Fraction) -> None:
        self.members[node.id] = axis
        for slot, dim in axis.operands.items():
            value = node.inputs[slot]
            if value not in self.values:
                self.values[value] = self.pinned[value] = Scaled(dim, scale / times_of(axis, slot))
        for k, at in axis.results.items():
            if not isinstance(at, Merge):
                self.values[node.outputs[k]] = Scaled(at, scale)
                if k in axis.private:
                    self.private.add(node.outputs[k])
            elif at is Merge.SUM:
                self.sums.add(node.outputs[k])


def _merges_apart(axis: OpAxis) -> bool:
    """Whether results are all sums, of operands some of which each element is met once, or none is merged."""
    found = set(axis.results.values())
    if found == {Merge.SUM}:
        return bool(counted(axis))
    return all(how is Merge.SAME for how in found if isinstance(how, Merge))


def counted(axis: OpAxis) -> tuple[int, ...]:
    """Of a node that adds up over the axis, slots of the operands whose elements each part must have for itself."""
    windowed = () if axis.window is None else axis.window.operands
    return tuple(slot for slot in axis.operands if slot not in windowed)


def times_of(axis: OpAxis, slot: int) -> Fraction:
    """Elements of the results for one of an operand."""
    window = axis.window
    if window is None or slot not in window.operands:
        return Fraction(1)
    return Fraction(window.stride) if window.inverse else Fraction(1, window.stride)
