"""The joint graph after fusion: each kernel that Inductor makes of a partition is one operation.

Planners then see the buffers that exist, and recompute kernels whole. Nodes that no kernel names stay operations of their own.
"""

from __future__ import annotations

import graphlib
import heapq
import operator
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from neaptide.integrations.torch_compile.inductor._torch_private import Generated
from neaptide.integrations.torch_compile.inductor.joined import Joined
from neaptide.integrations.torch_compile.inductor.kernel_op import KERNEL, Body
from neaptide.integrations.torch_compile.joint.fx_values import is_number
from neaptide.integrations.torch_compile.joint.joint_graph import Sides
from neaptide.integrations.torch_compile.joint.rows import rows
from neaptide.integrations.torch_compile.programs.partition import given_by, output_of


@dataclass(frozen=True)
class Contracted:
    """A joint graph of kernels, what its sides are there, and what kernels compute, by number."""

    module: fx.GraphModule
    sides: Sides
    bodies: tuple[Body, ...]


def contracted(joint: Joined, programs: Sequence[Generated]) -> Contracted:
    """The graph with one operation for each kernel of its programs. O(nodes x rounds of cycles that are broken)."""
    return _Contraction(joint, programs).run()


@dataclass
class _Contraction:
    joint: Joined
    programs: Sequence[Generated]
    place: dict[fx.Node, int] = field(init=False)
    groups: list[list[fx.Node]] = field(default_factory=list)
    owner: dict[fx.Node, int] = field(default_factory=dict)
    graph: fx.Graph = field(default_factory=fx.Graph)
    env: dict[fx.Node, fx.Node] = field(default_factory=dict)
    bodies: list[Body] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = {node: position for position, node in enumerate(self.joint.module.graph.nodes)}

    def run(self) -> Contracted:
        self._group()
        for node in self.place:
            if node.op == "placeholder":
                self.env[node] = self.graph.node_copy(node)
        self._write_outputs()
        order, used = self._order(), self._used()
        for number in order:
            self._write(number, used)
            self._write_outputs()
        made = self.graph.output(fx.map_arg(given_by(self.joint.module), self._value))
        made.meta = dict(output_of(self.joint.module).meta)
        return Contracted(fx.GraphModule(self.joint.module, self.graph), self._sides(), tuple(self.bodies))

    def _sides(self) -> Sides:
        sides = self.joint.sides

        def new(nodes: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(self._value(node) if isinstance(node, fx.Node) else node for node in nodes)

        return Sides(
            new(sides.primals),
            new(sides.tangents),
            new(sides.outputs),
            new(sides.gradients),
            {self._value(primal): self._value(node) for primal, node in sides.overwritten.items()},
        )

    # -- groups

    def _group(self) -> None:
        """Nodes by kernel; a node that several kernels compute belongs to the first, and is a copy in the others."""
        for program, named in zip(self.programs, (self.joint.forward, self.joint.backward), strict=True):
            for kernel in program.kernels:
                nodes = {named[name] for name in kernel.origins if name in named}
                self._add(sorted(filter(may_be_inside, nodes), key=self.place.__getitem__))
        for node in self.place:
            if node.op == "call_function" and node not in self.owner and not _is_light(node):
                self._add([node])

    def _add(self, nodes: list[fx.Node]) -> None:
        if not any(node not in self.owner for node in nodes):
            return
        nodes += [user for node in nodes for user in node.users if user.target is operator.getitem]
        self.groups.append(nodes)
        for node in nodes:
            self.owner.setdefault(node, len(self.groups) - 1)

    def _order(self) -> list[int]:
        """Groups in an order in which they may run; one that waits for itself is taken apart."""
        while True:
            sorter = graphlib.TopologicalSorter(
                {number: self._waits_for(number) for number in range(len(self.groups))}
            )
            try:
                sorter.prepare()
                return self._as_early_as_before(sorter)
            except graphlib.CycleError as error:
                broken = max(error.args[1], key=lambda number: len(self.groups[number]))
            nodes, self.groups[broken] = self.groups[broken], []
            mine = [node for node in nodes if self.owner[node] == broken]
            for node in mine:
                del self.owner[node]
            for node in mine:
                if node not in self.owner and node.target is not operator.getitem:
                    self._add([node])

    def _as_early_as_before(self, sorter: graphlib.TopologicalSorter[int]) -> list[int]:
        """A kernel stands where the last of its nodes stood, or after what it waits for."""
        place = [max(map(self.place.__getitem__, group), default=0) for group in self.groups]
        ready: list[tuple[int, int]] = []
        order = []
        while sorter.is_active():
            for number in sorter.get_ready():
                heapq.heappush(ready, (place[number], number))
            order.append(heapq.heappop(ready)[1])
            sorter.done(order[-1])
        return order

    def _waits_for(self, number: int) -> set[int]:
        inside, found = set(self.groups[number]), set[int]()
        for node in self.groups[number]:
            for value in self._values_of(node.all_input_nodes):
                if value not in inside and (owner := self.owner.get(value)) is not None:
                    found.add(owner)
            if _writes(node):  # what reads the old contents comes first
                readers = self._users_of(node.args[0])
                found.update(self.owner[one] for one in readers if self.place[one] < self.place[node])
        return found - {number}

    def _values_of(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        """Nodes with the values that some nodes are, or are views of."""
        found: list[fx.Node] = []
        for node in nodes:
            found += self._values_of(node.all_input_nodes) if _is_light(node) else [node]
        return found

    def _users_of(self, node: Any) -> list[fx.Node]:
        found: list[fx.Node] = []
        for user in node.users:
            found += self._users_of(user) if _is_light(user) else [user] if user in self.owner else []
        return found

    # -- writing

    def _value(self, node: fx.Node) -> fx.Node:
        if node not in self.env:
            assert _is_light(node), node
            self.env[node] = self.graph.node_copy(node, self._value)
        return self.env[node]

    def _write_outputs(self) -> None:
        """Write views that the forward returns as soon as they may be: they belong before the border."""
        for node in self.joint.sides.outputs:
            is_waiting = isinstance(node, fx.Node) and _is_light(node) and node not in self.env
            if is_waiting and all(value in self.env for value in self._values_of([node])):
                self._value(node)

    def _write(self, number: int, used: Set[fx.Node]) -> None:
        group = self.groups[number]
        if sum(node.target is not operator.getitem for node in group) == 1:
            for node in group:
                self.env[node] = self.graph.node_copy(node, self._value)
        elif group:
            self._write_kernel(number, used)

    def _write_kernel(self, number: int, used: Set[fx.Node]) -> None:
        group = self.groups[number]
        inside, operands = self._closure(group)
        results = [node for node in group if self.owner[node] == number and node in used]
        call = self.graph.call_function(KERNEL, ([self._value(one) for one in operands], len(self.bodies)))
        call.meta = {**group[-1].meta, "val": [node.meta["val"] for node in results]}
        self.bodies.append(Body(inside, operands, tuple(results)))
        for position, node in enumerate(results):
            made = self.graph.create_node("call_function", operator.getitem, (call, position), name=node.name)
            made.meta = dict(node.meta)
            self.env[node] = made

    def _closure(self, group: list[fx.Node]) -> tuple[tuple[fx.Node, ...], tuple[fx.Node, ...]]:
        """What a kernel computes, views included, in an order in which it may; and what it is handed."""
        members = set(group)
        inside: dict[fx.Node, None] = {}
        operands: dict[fx.Node, None] = {}

        def need(node: fx.Node) -> None:
            if node in inside or node in operands:
                return
            if node in members or _is_light(node):
                for operand in node.all_input_nodes:
                    need(operand)
                inside[node] = None
            else:
                operands[node] = None

        for node in group:
            need(node)
        return tuple(inside), tuple(operands)

    def _used(self) -> set[fx.Node]:
        """Values that kernels are handed, or that the graph gives."""
        used = set(self._values_of(output_of(self.joint.module).all_input_nodes))
        for group in self.groups:
            used.update(self._closure(group)[1])
        return used


def may_be_inside(node: fx.Node) -> bool:
    """Whether a node may be part of a kernel here: it does nothing but compute its results."""
    if node.op != "call_function" or _is_light(node) or node.target is operator.getitem or _writes(node):
        return False
    spec = rows().find(str(node.target))
    return spec is not None and not spec.rng and spec.deterministic


def _is_light(node: fx.Node) -> bool:
    """Whether a node makes no bytes and no time: views, and numbers."""
    if node.op == "get_attr":
        return True
    return node.op == "call_function" and (is_number(node) or getattr(node.target, "is_view", False))


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable
