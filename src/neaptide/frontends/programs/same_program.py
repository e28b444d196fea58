"""Whether two captures of a step are one program: at other sizes, or with numbers as inputs that the other has as constants.

A Python float that is traced as a symbol is no `float` any more. Code that asks for its type, or catches the error of
a comparison, takes another branch then, in silence. The capture with plain numbers took the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from neaptide.frontends.objects.values import exact, is_scalar
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.frontends.state.step_slots import NUMBER_TYPES
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.registry import Trait
from neaptide.ir.values import Value
from neaptide.ops import registry
from neaptide.ops.structural import HOST_FUNCTIONS, host_function
from neaptide.symbolic.size_expr import SizeExpr

_NEGATED = "aten._neg_view.default"
_ONE = SizeExpr.const(1)

Token = tuple[Any, ...]


def is_plain_program(
    symbolic: CapturedProgram,
    numbers: Mapping[str, Any],
    plain: CapturedProgram,
    after: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Whether a program whose inputs of those names hold those numbers is one of plain numbers. O(size).

    What the first gives as a number, the second may write or return as a plain value. `after` has, by name, what a step of
    plain numbers leaves in places.
    """
    here, there = _Rows(symbolic.graph, _by_value(symbolic, numbers)), _Rows(plain.graph, {})
    expected = iter(there.outputs)
    constants = plain.returned.constants
    for slot, token in zip(symbolic.outputs, here.outputs, strict=True):
        if slot in plain.written:
            its: Any = ("number", plain.written[slot])
        elif slot.role == "result" and slot.key[0] in constants:
            its = ("number", constants[slot.key[0]])
        else:
            its = next(expected, None)
        if token != its:
            return False
    agree = all(
        after.get(slot.name, plain.written.get(slot, content)) == content
        for slot, content in symbolic.written.items()
    )
    return agree and here.listed() == there.listed() and next(expected, None) is None


def leaves_numbers(program: CapturedProgram, numbers: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a program that is given `numbers` leaves in places the numbers in `after`; those that only the data knows aside."""
    given = _Rows(program.graph, _by_value(program, numbers)).outputs
    return all(
        token == ("number", after[slot.name])
        for slot, token in zip(program.outputs, given, strict=True)
        if slot.role == "number" and type(after.get(slot.name)) in NUMBER_TYPES
    )


def _by_value(program: CapturedProgram, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name of the value that is the input, instead of the name of its slot."""
    values = program.graph.values
    return {
        values[value].name: numbers[slot.name]
        for value, slot in zip(program.graph.inputs, program.inputs, strict=True)
        if slot.name in numbers
    }


def first_difference(
    program: CapturedProgram, other: CapturedProgram, binding: Mapping[str, int]
) -> str | None:
    """Where a program is another one first, in words, once dims that `other` lacks have given sizes; None where it is the same.

    Strides of axes that have one element are not compared: no element is reached through them. Nor are views that show
    what a value before shows, as an expand to the size that is there: no bytes are theirs. O(size).
    """
    mine, its = program.decisions, other.decisions
    if mine is not its and (mine is None or its is None or not mine.is_like(its)):
        return "other branches are taken by step counts or by the batch"
    one = _Rows(with_sizes(replace(program.graph, dims=(), relations=()), binding))
    two = _Rows(other.graph)
    for (row, node), (expected, also) in zip_longest(one.rows, two.rows, fillvalue=(None, None)):
        if row != expected:
            return _told(node, also)
    for (what, here), (_, there) in zip(_parts(program, one), _parts(other, two), strict=True):
        if here != there:
            return f"{what} differ"
    return None


def _parts(program: CapturedProgram, rows: _Rows) -> Iterator[tuple[str, Any]]:
    """What is compared of a program besides its operations."""
    graph, token, returned = rows.graph, rows.token, program.returned
    yield "inputs", (program.inputs, [_geometry(graph.values[value]) for value in graph.inputs])
    yield "storages", [(s.nbytes, s.device, s.kind) for s in graph.storages]
    yield "segments", [(part.name, rows.place(part.start), rows.place(part.end)) for part in graph.segments]
    constants = {at: _fact(item) for at, item in returned.constants.items()}
    form = returned.spec, returned.changes, constants, returned.borrowed, returned.attached
    yield "results", ([token[value] for value in graph.outputs], program.outputs, form)
    written = {slot: _fact(item) for slot, item in program.written.items()}
    patterns = [(p.gradients, p.optimizer_state, p.flags) for p in (program.entry, program.exit)]
    yield "gradients and state", (patterns, program.kept_gradients, program.ignores_gradients, written)
    seen = [(o.name, token[o.value], o.version) for o in program.observations]
    undone = [[rows.at[node] for node in nodes if node in rows.at] for nodes in program.checkpoints]
    yield "notes of the trace", (seen, program.unknown_ops, undone)


class _Rows:
    """A graph as rows that can be compared, without views that give back elements as a value before shows them.

    A trace in which such a view is no new value has none in its graph; where sizes are symbols it is new. Where
    `numbers` are given, by name of the input, host arithmetic on known numbers is folded away, and an argument of 1 is
    one of 1.0.

    Attributes:
        rows: an operation each, and its node.
        at: by node that has a row, its place among the rows.
        token: by value, what stands for it in the rows.
    """

    def __init__(self, graph: Graph, numbers: Mapping[str, float] | None = None) -> None:
        self.graph = graph
        self.rows: list[tuple[Token, Node]] = []
        self.at: dict[int, int] = {}
        self.token: dict[int, Token] = {}
        self._folds = numbers is not None
        self._negated: dict[int, bool] = {}
        self._shown: dict[Token, Token] = {}
        for value in graph.inputs:
            name = graph.values[value].name
            number = None if numbers is None else numbers.get(name)
            self._add(value, ("input", name) if number is None else ("number", number), is_negated=False)
        table = registry()
        for node in graph.nodes:
            spec = table.find(node.op)
            is_view = spec is not None and spec.is_a(Trait.VIEW)
            if not (is_view and self._gives_back(node)) and not self._is_folded(node):
                self._list(node)
        self.outputs = [self.token[value] for value in graph.outputs]

    def listed(self) -> list[Token]:
        """The rows alone."""
        return [row for row, _ in self.rows]

    def place(self, node: int) -> int:
        """Rows in front of a node."""
        return sum(1 for listed in self.at if listed < node)

    def _gives_back(self, node: Node) -> bool:
        """Whether a view shows what a value before shows; then that one stands for it."""
        if len(node.outputs) != 1 or not node.effects.is_pure:
            return False
        shown = self.graph.values[node.outputs[0]]
        if shown.dtype.startswith("complex"):  # whether it is conjugate is not in the graph
            return False
        is_negated = self._is_negated(node)
        found = self._shown.get((_place_of(shown), is_negated))
        if found is not None:
            self.token[shown.id], self._negated[shown.id] = found, is_negated
        return found is not None

    def _is_negated(self, node: Node) -> bool:
        """Whether the elements of a view are those of its storage with the other sign."""
        return self._negated.get(node.inputs[0], False) != (node.op == _NEGATED) if node.inputs else False

    def _is_folded(self, node: Node) -> bool:
        if not self._folds or node.op not in HOST_FUNCTIONS:
            return False
        args = [self._given(arg, node) for arg in node.args]
        if not all(arg[0] == "number" for arg in args):
            return False
        self.token[node.outputs[0]] = ("number", host_function(node.op)(*(arg[1] for arg in args)))
        return True

    def _list(self, node: Node) -> None:
        given = self._given(node.args, node), self._given(node.kwargs, node), _fact(node.results)
        for position, value in enumerate(node.outputs):
            self._add(value, ("made", len(self.rows), position), is_negated=self._is_negated(node))
        made = [_geometry(self.graph.values[value]) for value in node.outputs]
        self.at[node.id] = len(self.rows)
        self.rows.append(((node.op, given, node.effects, node.regions, made), node))

    def _add(self, value: int, token: Token, *, is_negated: bool) -> None:
        self.token[value], self._negated[value] = token, is_negated
        self._shown.setdefault((_place_of(self.graph.values[value]), is_negated), token)

    def _given(self, arg: Arg, node: Node) -> Any:
        """An argument with the value that it refers to."""
        if isinstance(arg, Ref):
            return self.token[node.inputs[arg.slot]]
        if isinstance(arg, tuple):
            return tuple(self._given(item, node) for item in arg)
        if self._folds and isinstance(arg, (int, float)) and not isinstance(arg, bool):
            return "number", arg
        return "constant", _fact(arg)


def _place_of(value: Value) -> Token:
    """The elements of a storage that a value shows, and how."""
    strides = tuple(stride for size, stride in zip(value.shape, value.strides, strict=True) if size != _ONE)
    return value.dtype, value.shape, strides, value.offset, value.storage


def _geometry(value: Value) -> Token:
    return *_place_of(value), value.version


def _fact(item: Any) -> Any:
    """Something of a program so that equal means the same: `1`, `1.0` and `True` are three arguments."""
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
