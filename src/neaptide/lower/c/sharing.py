"""Which storages of a graph share bytes in C: windows, parts of joined results, results on top of operands.

A slice becomes a view of its operand where all kernels that read it take strides. An operand of Concat is made where it
belongs in the result. An element-wise result takes the bytes of an operand that dies. So each storage either has bytes of
its own, or lies in another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from neaptide.errors import LoweringError
from neaptide.ir.nodes import Node, operand_values
from neaptide.lower.c.operators.rows import row_of
from neaptide.lower.c.program import Program, result_values
from neaptide.lower.c.views import Place, View, product


@dataclass(frozen=True, slots=True)
class Same:
    """Lies where another value lies."""

    value: int


@dataclass(frozen=True, slots=True)
class Window:
    """Is what output `output` of a node looks at in the node's first operand."""

    node: int
    output: int


@dataclass(frozen=True, slots=True)
class Part:
    """Is the part of a node's result that its operand `position` makes up."""

    node: int
    position: int


Parent: TypeAlias = Same | Window | Part


class Sharing:
    """The parents of the storages of a program, and the lifetimes of those without.

    Attributes:
        parent: by storage that lies in another one.
        start: by storage with bytes of its own, the first position at which it is used; `end` is one past the last.
    """

    def __init__(
        self, program: Program, *, windows: bool = True, joins: Collection[int] | None = None
    ) -> None:
        """`joins`: nodes whose operands may be made in place; None for all."""
        self.program = program
        self.graph = program.graph
        self.parent: dict[int, Parent] = {}
        self.values: dict[int, list[int]] = {}
        self.touching: dict[int, list[Node]] = {}
        self.start: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        self._look_through()
        if windows:
            self._find_windows()
        self._find_parts(joins)
        self._find_in_place()
        self._join_lifetimes()

    def storage(self, value: int) -> int:
        storage = self.graph.values[value].storage
        if storage is None:
            raise LoweringError(f"{self.graph.values[value].name} is a number of the host, not a tensor")
        return storage

    def root(self, storage: int) -> int:
        """The storage with bytes of its own in which one lies; one outside the arena as well."""
        while (parent := self.parent.get(storage)) is not None:
            storage = self._storage_of(parent)
        return storage

    def roots(self) -> list[int]:
        """Storages that need bytes in the arena, ascending."""
        return sorted(s for s in self.start if s not in self.parent and s not in self.program.outside)

    def _storage_of(self, parent: Parent) -> int:
        if isinstance(parent, Same):
            return self.storage(parent.value)
        node = self.graph.nodes[parent.node]
        value = node.outputs[0] if isinstance(parent, Part) else operand_values(node)[0]
        assert value is not None
        return self.storage(value)

    def _look_through(self) -> None:
        program, after = self.program, len(self.program.order) + 1
        for value in self.graph.inputs:
            if self.graph.values[value].storage is not None:
                self.values[self.storage(value)] = [value]
        for storage in program.given:
            self.start[storage], self.end[storage] = 0, 1
        for position, number in enumerate(program.order):
            node = self.graph.nodes[number]
            for value in node.outputs:
                self.values.setdefault(self.storage(value), []).append(value)
            for storage in dict.fromkeys(self.storage(v) for v in (*node.inputs, *node.outputs)):
                self.touching.setdefault(storage, []).append(node)
                self.start.setdefault(storage, position)
                self.end[storage] = position + 1
        for storage in program.kept:
            self.end[storage] = after
            self.start.setdefault(storage, 0)

    def _is_own(self, storage: int) -> bool:
        """Whether it has bytes of its own so far, which may still be taken from it."""
        return storage not in self.parent and storage not in self.program.outside

    def _set(self, storage: int, parent: Parent) -> None:
        self.parent[storage] = parent
        self._children.setdefault(self._storage_of(parent), []).append(storage)

    def takes_strides(self, storage: int) -> bool:
        """Whether it may have holes: so say the kernels that make and read it, and what lies in it."""
        if storage in self.program.kept or storage in self.program.given or len(self.values[storage]) > 1:
            return False
        rows = [row_of(node) for node in self.touching.get(storage, ())]
        return all(row is not None and not row.dense for row in rows) and all(
            self.takes_strides(child) for child in self._children.get(storage, ())
        )

    def _find_windows(self) -> None:
        for number in self.program.order:
            node = self.graph.nodes[number]
            row = row_of(node)
            if row is None or row.views is None:
                continue
            source = operand_values(node)[0]
            if source is None or source in self.program.known:
                continue
            views = row.views(self.program.plain_call(node))
            for position, value in enumerate(result_values(node)):
                storage = None if value is None else self.storage(value)
                if storage is None or not self._is_own(storage) or storage in self.program.kept:
                    continue
                if self.takes_strides(storage) or (views[position].is_dense and self._is_dense(source)):
                    self._set(storage, Window(number, position))

    def _is_dense(self, value: int) -> bool:
        """Whether what holds a value can never get holes."""
        storage = self.storage(value)
        return storage not in self.program.outside and not self.takes_strides(storage)

    def _find_parts(self, joins: Collection[int] | None) -> None:
        for number in self.program.order:
            node = self.graph.nodes[number]
            row = row_of(node)
            values = operand_values(node)
            if row is None or row.parts is None or (joins is not None and number not in joins):
                continue
            parts = row.parts(self.program.plain_call(node))
            for position, value in enumerate(values):
                assert value is not None
                if not self._may_move(value) or values.count(value) > 1:
                    continue
                storage = self.storage(value)
                if self.takes_strides(storage) or (
                    parts[position].is_dense and self._is_dense(node.outputs[0])
                ):
                    self._set(storage, Part(number, position))

    def _may_move(self, value: int) -> bool:
        """Whether a value is made by a node, into bytes of its own, which are not handed to the caller."""
        storage = self.storage(value)
        program = self.program
        return self._is_own(storage) and storage not in program.kept and storage not in program.given

    def _find_in_place(self) -> None:
        for position, number in enumerate(self.program.order):
            node = self.graph.nodes[number]
            row = row_of(node)
            if row is None or not node.outputs:
                continue
            made = node.outputs[0]
            if self.storage(made) in {self.storage(v) for v in node.inputs}:
                continue
            if made in self.program.updates:
                self._update_in_place(node, made, position)
            values = operand_values(node)
            for place in row.in_place:
                value = values[place] if place < len(values) else None
                is_read_elsewhere = any(v == value and k not in row.in_place for k, v in enumerate(values))
                if (
                    value is not None
                    and not is_read_elsewhere
                    and self._take_over(node, made, value, position)
                ):
                    break

    def _update_in_place(self, node: Node, made: int, position: int) -> None:
        """The new numbers of a weight go where the old ones are, after their last use."""
        weight = self.program.updates[made]
        storage = self.storage(weight)
        row = row_of(node)
        assert row is not None
        values = operand_values(node)
        places = [
            place
            for place, value in enumerate(values)
            if value is not None and self.storage(value) == storage
        ]
        is_safe = all(place in row.in_place and values[place] == weight for place in places)
        if self.end.get(storage, 0) <= position + 1 and is_safe and self._is_own(self.storage(made)):
            self._set(self.storage(made), Same(weight))

    def _take_over(self, node: Node, made: int, value: int, position: int) -> bool:
        """Let a result and an operand of the same shape have the same bytes, where nobody needs the operand later."""
        graph, program = self.graph, self.program
        result, operand = graph.values[made], graph.values[value]
        if value in program.known or result.dtype != operand.dtype:
            return False
        if program.dims(result) != program.dims(operand):
            return False
        top, under = self.storage(made), self.root(self.storage(value))
        if not self._is_own(under) or under in program.kept or self._end(under) > position + 1:
            return False
        if not self._covers(value, under):
            return False
        others = {v for v in node.inputs if v != value and self.root(self.storage(v)) == under}
        if others:
            return False
        if self._is_own(top):
            # What is in the result's place must suit both; bytes of its own have no holes.
            self._set(top, Same(value))
            return True
        # Only the part of a joined result is free before the result is made: a weight is still read.
        is_part = isinstance(self.parent.get(top), Part)
        is_free = is_part and under not in program.given and self.takes_strides(under)
        if is_free and program.dims(graph.values[self.values[under][0]]) == program.dims(result):
            self._set(under, Same(made))
            return True
        return False

    def _covers(self, value: int, root: int) -> bool:
        """Whether a value fills the storage in which it lies, from its begin to its end."""
        storage = self.storage(value)
        while (parent := self.parent.get(storage)) is not None:
            if not isinstance(parent, Same):
                return False
            storage = self._storage_of(parent)
        whole, mine = self.graph.values[self.values[root][0]], self.graph.values[value]
        sizes = {product(self.program.dims(whole)), product(self.program.dims(mine))}
        return whole.dtype == mine.dtype and len(sizes) == 1

    def _end(self, root: int) -> int:
        """One past the last use of a storage and of all that lie in it."""
        ends = [self.end.get(root, 0)]
        ends += [self._end(child) for child in self._children.get(root, ())]
        return max(ends)

    def _join_lifetimes(self) -> None:
        for storage in list(self.parent):
            root = self.root(storage)
            if root in self.program.outside:
                continue
            self.start[root] = min(self.start[root], self.start[storage])
            self.end[root] = max(self.end[root], self.end[storage])


class Views:
    """Where each value of a program lies, under given sizes of its dims and given bases."""

    def __init__(
        self, sharing: Sharing, program: Program, given: Mapping[int, View], places: Mapping[int, Place]
    ) -> None:
        """`given`: views of values outside the arena; `places`: of storages with bytes of their own."""
        self.sharing, self.program = sharing, program
        self._views = dict(given)
        self._places = places
        self._storages: dict[int, View] = {}

    def __getitem__(self, value: int) -> View:
        if value not in self._views:
            dims = self.program.dims(self.program.graph.values[value])
            found = self._of_storage(self.sharing.storage(value))
            self._views[value] = found if found.dims == dims else found.reshaped(dims)
        return self._views[value]

    def _of_storage(self, storage: int) -> View:
        if storage not in self._storages:
            self._storages[storage] = self._find(storage)
        return self._storages[storage]

    def _find(self, storage: int) -> View:
        sharing, graph = self.sharing, self.program.graph
        parent = sharing.parent.get(storage)
        first = sharing.values[storage][0]
        if parent is None:
            if first in self._views:
                return self._views[first]
            value = graph.values[first]
            return View.dense(self._places[storage], value.dtype, self.program.dims(value))
        if isinstance(parent, Same):
            return self[parent.value]
        node = graph.nodes[parent.node]
        call, row = self.program.plain_call(node), row_of(node)
        assert row is not None
        operands, results = list(call.operands), list(call.results)
        if isinstance(parent, Window):
            source = operand_values(node)[0]
            assert source is not None
            assert row.views is not None
            operands[0] = self[source]
            return row.views(self.program.call(node, call.code, operands, results))[parent.output]
        assert row.parts is not None
        results[0] = self[node.outputs[0]]
        return row.parts(self.program.call(node, call.code, operands, results))[parent.position]
