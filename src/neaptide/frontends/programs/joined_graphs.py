"""Whether two programs of one step, traced at different sizes, are one: same operations, same sizes as expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from neaptide.frontends.objects.values import exact, is_scalar
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import Trait
from neaptide.ir.values import Value
from neaptide.ir.with_sizes import with_sizes
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr

_NEGATED = "aten._neg_view.default"
_ONE = SizeExpr.const(1)


def first_difference(
    program: CapturedProgram, other: CapturedProgram, binding: Mapping[str, int]
) -> str | None:
    """Where a program that is given some sizes is another one first, in words; None where it is the same. O(size).

    Strides of axes that have one element are not compared: no element is reached through them. Nor are views that show
    what a value before shows, as an expand to the size that is there: no bytes are theirs.

    Args:
        program: with symbolic dims.
        other: of the same step, with fewer dims or the same.
        binding: values of the dims that `other` does not have.
    """
    mine, its = program.decisions, other.decisions
    if mine is not its and (mine is None or its is None or not mine.is_like(its)):
        return "other branches are taken by step counts or by the batch"
    one = _Listing(with_sizes(replace(program.graph, dims=(), relations=()), binding))
    two = _Listing(other.graph)
    for (row, node), (expected, also) in zip_longest(one.rows, two.rows, fillvalue=(None, None)):
        if row != expected:
            return _told(node, also)
    for what, mine, its in zip(_PARTS, _parts(program, one), _parts(other, two), strict=True):
        if mine != its:
            return f"{what} differ"
    return None


_PARTS = ("inputs", "storages", "segments", "results", "gradients and state", "notes of the trace")


def _parts(program: CapturedProgram, listed: _Listing) -> Iterator[Any]:
    """What is compared of a program besides its operations, in the order of `_PARTS`."""
    graph, token = listed.graph, listed.token
    yield program.inputs, [_geometry(graph.values[value]) for value in graph.inputs]
    yield [(s.nbytes, s.device, s.kind) for s in graph.storages]
    yield [(part.name, listed.place(part.start), listed.place(part.end)) for part in graph.segments]
    constants = {at: _fact(item) for at, item in program.constants.items()}
    returned = [token[value] for value in graph.outputs]
    form = program.result_spec, program.changes
    yield returned, program.outputs, form, constants, program.borrowed, program.attached
    written = {slot: _fact(item) for slot, item in program.written.items()}
    patterns = [(p.gradients, p.optimizer_state, p.flags) for p in (program.entry, program.exit)]
    yield patterns, program.kept_gradients, program.ignores_gradients, written
    seen = [(o.name, token[o.value], o.version) for o in program.observations]
    undone = [[listed.at[node] for node in nodes if node in listed.at] for nodes in program.checkpoints]
    yield seen, program.unknown_ops, undone


class _Listing:
    """A graph as rows that can be compared, without views that give back elements as a value before shows them.

    A trace in which such a view is no new value has none in its graph; where sizes are symbols it is new.

    Attributes:
        graph: that is listed.
        rows: an operation each, and its node.
        at: by node that has a row, its place among the rows.
        token: by value, what stands for it in the rows.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.rows: list[tuple[tuple[Any, ...], Node]] = []
        self.at: dict[int, int] = {}
        self.token: dict[int, int] = {}
        self._made = 0
        self._negated: dict[int, bool] = {}
        self._shown: dict[tuple[Any, ...], int] = {}
        table = registry()
        for value in graph.inputs:
            self._add(value, is_negated=False)
        for node in graph.nodes:
            spec = table.find(node.op)
            if spec is None or not spec.is_a(Trait.VIEW) or not self._gives_back(node):
                self._list(node)

    def place(self, node: int) -> int:
        """Rows in front of a node."""
        return sum(1 for listed in self.at if listed < node)

    def _gives_back(self, node: Node) -> bool:
        """Whether a view shows what a value before shows; then that one stands for it."""
        if len(node.outputs) != 1 or not node.effects.is_pure:
            return False
        (value,) = node.outputs
        if self.graph.values[value].dtype.startswith(
            "complex"
        ):  # whether it is conjugate is not in the graph
            return False
        is_negated = self._is_negated(node)
        found = self._shown.get((_place_of(self.graph.values[value]), is_negated))
        if found is None:
            return False
        self.token[value], self._negated[value] = found, is_negated
        return True

    def _is_negated(self, node: Node) -> bool:
        """Whether the elements of a view are those of its storage with the other sign."""
        return self._negated.get(node.inputs[0], False) != (node.op == _NEGATED) if node.inputs else False

    def _list(self, node: Node) -> None:
        given = self._given(node.args, node), self._given(node.kwargs, node), _fact(node.results)
        for value in node.outputs:
            self._add(value, is_negated=self._is_negated(node))
        made = [_geometry(self.graph.values[value]) for value in node.outputs]
        self.at[node.id] = len(self.rows)
        self.rows.append(((node.op, given, node.effects, node.regions, made), node))

    def _add(self, value: int, *, is_negated: bool) -> None:
        self.token[value] = self._made = self._made + 1
        self._negated[value] = is_negated
        self._shown.setdefault((_place_of(self.graph.values[value]), is_negated), self.token[value])

    def _given(self, arg: Any, node: Node) -> Any:
        """An argument with the value that it refers to; `1`, `1.0` and `True` are three arguments."""
        if isinstance(arg, Ref):
            return Ref, self.token[node.inputs[arg.slot]]
        if isinstance(arg, tuple):
            return tuple(self._given(item, node) for item in arg)
        return _fact(arg)


def _place_of(value: Value) -> tuple[Any, ...]:
    """The elements of a storage that a value shows, and how."""
    strides = tuple(stride for size, stride in zip(value.shape, value.strides, strict=True) if size != _ONE)
    return value.dtype, value.shape, strides, value.offset, value.storage


def _geometry(value: Value) -> tuple[Any, ...]:
    return *_place_of(value), value.version


def _fact(item: Any) -> Any:
    """Something of a program so that equal means the same: plain values with their type, what is no value by identity."""
    if isinstance(item, tuple):
        return tuple(map(_fact, item))
    if is_scalar(item):
        return type(item), exact(item)
    return item


def _told(node: Node | None, other: Node | None) -> str:
    """The operation that differs, with its line."""
    found = node or other
    assert found is not None
    at = f" at {found.source.location}" if found.source.location else ""
    if node is None or other is None or node.op == other.op:
        return f"{found.op} differs{at}"
    return f"{other.op} stands in place of {node.op}{at}"
