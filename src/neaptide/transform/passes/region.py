"""Regions that run in parts: what carries an axis from where it begins to where one value leaves, found node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neaptide.analysis.folded import folded_values
from neaptide.ir.axes import Merge, OpAxis
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.transform.part_reading import AxisFinder


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that run in parts.

    Attributes:
        axes: by node, the axis along which it runs in parts; ascending.
        dims: by value that carries the axis, or is handed over in parts, its dim.
        result: the value that leaves, made by the last node: a join of parts, or a sum over them.
        seeds: values with whose parts it begins, with their dim; none where it begins with parts of weights.
    """

    axes: Mapping[int, OpAxis]
    dims: Mapping[int, int]
    result: int
    seeds: Mapping[int, int] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self.axes)

    @property
    def is_sum(self) -> bool:
        """Whether parts make terms of the result."""
        return self.result not in self.dims


class Growth:
    """A region while it grows over the nodes behind it; `region` is there whenever one value leaves."""

    def __init__(self, finder: AxisFinder, users: list[list[int]], seeds: Mapping[int, int]) -> None:
        """`seeds`: values that are handed over in parts, and whose users must all be in the region, with their dim."""
        self.finder, self.users = finder, users
        self.graph: Graph = finder.graph
        self.seeds, self.dims = seeds, dict(seeds)
        self.axes: dict[int, OpAxis] = {}
        self.open: set[int] = set()  # made inside, with users that are not (yet)
        self._waiting = {value: set(users[value]) for value in seeds}
        self._sums: set[int] = set()
        self._inside: set[int] = set()
        self._outputs = set(self.graph.outputs)

    def begin(self, node: Node) -> bool:
        """Begin with a node that makes parts of its result of parts of weights alone."""
        weights = folded_values(self.graph)
        for axis in self.finder.axes(node):
            operands = [node.inputs[slot] for slot in axis.operands]
            whole = [v for slot, v in enumerate(node.inputs) if slot not in axis.operands]
            is_split = bool(operands) and weights.issuperset(operands) and not weights.issuperset(whole)
            if is_split and all(not isinstance(how, Merge) for how in axis.results.values()):
                return self._add(node, axis)
        return False

    def absorb(self, node: Node) -> bool:
        """Take a node into the region; False, and nothing changed, where it does not run in parts."""
        carried = {s: self.dims[v] for s, v in enumerate(node.inputs) if v in self.dims and self._is_ours(v)}
        axis = self.finder.find(node, carried)
        return axis is not None and self._add(node, axis)

    def _is_ours(self, value: int) -> bool:
        return value in self._inside or value in self._waiting

    def _add(self, node: Node, axis: OpAxis) -> bool:
        if not _is_whole(node, axis) or any(value in self._sums for value in node.inputs):
            return False
        for slot, value in enumerate(node.inputs):
            dim = axis.operands.get(slot)
            if dim is None and self._is_ours(value):
                return False
            if dim is not None and self.dims.get(value, dim) != dim:
                return False
        for slot, dim in axis.operands.items():
            self.dims.setdefault(node.inputs[slot], dim)
        self.axes[node.id] = axis
        for slot, made in enumerate(node.outputs):
            self._make(made, axis.results[slot])
        for value in node.inputs:
            if value in self._waiting:
                self._waiting[value].discard(node.id)
            if (
                value in self.open
                and value not in self._outputs
                and self.axes.keys() >= set(self.users[value])
            ):
                self.open.discard(value)
        return True

    def _make(self, made: int, how: int | Merge) -> None:
        self._inside.add(made)
        if isinstance(how, Merge):
            self._sums.add(made)
        else:
            self.dims[made] = how
        if self.users[made] or made in self._outputs:
            self.open.add(made)

    @property
    def region(self) -> Region | None:
        """The region so far, if one value leaves it that its last node makes, and all users of its seeds are in it."""
        last = next(reversed(self.axes), None)
        if last is None or len(self.open) != 1 or any(self._waiting.values()):
            return None
        (result,) = self.open
        if self.graph.producer(result) != last or any(user < last for user in self.users[result]):
            return None
        if self._sums - {result}:
            return None
        return Region(dict(self.axes), dict(self.dims), result, self.seeds)

    def next_node(self) -> int | None:
        """The first user of what is open, or of a seed, that is not inside."""
        values = [*self.open, *(value for value, left in self._waiting.items() if left)]
        users = (user for value in values for user in self.users[value] if user not in self.axes)
        return min(users, default=None)


def _is_whole(node: Node, axis: OpAxis) -> bool:
    """Whether an axis says of all results of a node how they are made; several carry it in one dim, without windows."""
    if len(node.outputs) == 1:
        return len(axis.results) == 1
    if node.results is not None:
        return False
    first = axis.results.get(0)
    is_same = all(axis.results.get(slot) == first for slot in range(len(node.outputs)))
    return is_same and isinstance(first, int) and axis.window is None


def region_of(finder: AxisFinder, nodes: tuple[int, ...], seed: tuple[int, int] | None) -> Region | None:
    """The region of some nodes, which begins with a split of weights, or with parts of a value along a dim; None where there is none."""
    graph = finder.graph
    growth = Growth(finder, graph.consumers(), {} if seed is None else {seed[0]: seed[1]})
    for position, number in enumerate(nodes):
        node = graph.nodes[number]
        if not (growth.begin(node) if seed is None and position == 0 else growth.absorb(node)):
            return None
    return growth.region
