"""A joint graph after rewrites: a graph of FX again, in which loops, and what else was changed, are calls like any other."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import fx

from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph
from neaptide.integrations.torch_compile.joint.rows import rows
from neaptide.integrations.torch_compile.programs.emit import Side
from neaptide.integrations.torch_compile.programs.partition import output_descriptions
from neaptide.ir.edits.edited import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import BORDER_OP, Access, Effects, Node
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Value
from neaptide.kernels.fused import handed
from neaptide.lower.out_variants import resolve_operation
from neaptide.lower.torch_code import lower
from neaptide.ops.structural import CONSTANT_OP, HOST_FUNCTIONS
from neaptide.runtime.calls.executor import Compiled

_numbers: Final = itertools.count()


def rewritten(joint: JointGraph, edited: Edited, bodies: Mapping[int, Schedule]) -> JointGraph:
    """A joint graph after rewrites of its `Graph`, whose sizes are numbers. O(size)."""
    return _Writer(joint, edited, bodies).joint_graph()


class _Writer:
    def __init__(self, joint: JointGraph, edited: Edited, bodies: Mapping[int, Schedule]) -> None:
        self.joint, self.edited, self.bodies = joint, edited, bodies
        self.side = Side(joint, {})
        self.made: dict[int, fx.Node] = {}  # by value
        self.touched = set(edited.touched)

    def joint_graph(self) -> JointGraph:
        joint, side, graph = self.joint, self.side, self.edited.graph
        for node in joint.module.graph.nodes:
            if node.op == "placeholder":
                side.placeholder(node)
        node_of, border = {}, None
        for node in graph.nodes:
            if node.op == BORDER_OP:
                border = node.id
            elif self._is_as_it_was(node):
                old = self.edited.node_of[node.id]
                side.run([old])
                node_of[node.id] = side.env[joint.node_of[old]]
            else:
                node_of[node.id] = self._call(node)
        sides = joint.sides
        side.output([*sides.outputs, *sides.gradients], output_descriptions(joint))
        module = side.module()
        given = tuple(next(iter(reversed(module.graph.nodes))).args[0])
        count = len(sides.outputs)
        sides = replace(
            sides,
            primals=tuple(side.env[node] for node in sides.primals),
            tangents=tuple(side.env[node] for node in sides.tangents),
            outputs=given[:count],
            gradients=given[count:],
            overwritten={side.env[node]: side.value(other) for node, other in sides.overwritten.items()},
            early=(),
        )
        return JointGraph(module, sides, graph, border, node_of, {}, {}, joint.unknown_ops)

    def _is_as_it_was(self, node: Node) -> bool:
        old = self.edited.node_of[node.id]
        if old < 0 or node.id in self.touched:
            return False
        was = self.joint.graph.nodes[old]
        return tuple(self.edited.value_of[v] for v in node.inputs) == was.inputs

    def _holder(self, value: int) -> fx.Node:
        if value not in self.made:
            self.made[value] = self.side.value(self.joint.node_with[self.edited.value_of[value]])
        return self.made[value]

    def _call(self, node: Node) -> fx.Node:
        """Write a node by what the `Graph` says of it."""
        graph = self.edited.graph
        operands = [self._holder(value) for value in node.inputs]
        values = [self._fake(graph.values[value], operands) for value in node.outputs]
        is_plain = not (node.regions or node.results or node.op in (CONSTANT_OP, *HOST_FUNCTIONS))
        if is_plain:
            args = tuple(handed(arg, operands) for arg in node.args)
            kwargs = {key: handed(arg, operands) for key, arg in node.kwargs}
            made = self._written(resolve_operation(node.op), args, kwargs)
        else:
            distinct = [self._holder(value) for value in dict.fromkeys(node.inputs)]
            made = self._written(alone(graph, node, self.bodies.get(node.id)), tuple(distinct), {})
        is_one = is_plain and len(node.outputs) == 1
        made.meta["val"] = values[0] if is_one else tuple(values)
        for slot, (value, fake) in enumerate(zip(node.outputs, values, strict=True)):
            holder = made
            if not is_one:
                holder = self._written(operator.getitem, (made, slot), {})
                holder.meta["val"] = fake
            self.made[value] = holder
            old = self.edited.value_of[value]
            if old in self.joint.node_with:
                self.side.env[self.joint.node_with[old]] = holder
        return made

    def _written(self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        return self.side.graph.call_function(target, args, kwargs)

    def _fake(self, value: Value, operands: Sequence[fx.Node]) -> Any:
        old = self.joint.node_with.get(self.edited.value_of[value.id])
        if old is not None:
            return old.meta["val"]
        near = (*operands, *self.joint.sides.primals)
        tensor = next(one.meta["val"] for one in near if isinstance(one.meta["val"], torch.Tensor))
        shape = [extent.constant_value() for extent in value.shape]
        strides = [extent.constant_value() for extent in value.strides]
        return tensor.new_empty_strided(shape, strides, dtype=getattr(torch, value.dtype))


def alone(graph: Graph, node: Node, body: Schedule | None) -> Callable[..., tuple[Any, ...]]:
    """The function of one node, which takes its distinct inputs and gives its outputs. O(size of the node)."""
    taken = tuple(dict.fromkeys(node.inputs))
    place = {value: position for position, value in enumerate((*taken, *node.outputs))}
    used = dict.fromkeys(s for value in place if (s := graph.values[value].storage) is not None)
    storage = {number: position for position, number in enumerate(used)}

    def lies(value: Value) -> int | None:
        return None if value.storage is None else storage[value.storage]

    values = tuple(
        replace(graph.values[value], id=here, version=0, storage=lies(graph.values[value]))
        for value, here in place.items()
    )
    effects = Effects(
        tuple(Access(storage[one.storage], 0) for one in node.effects.reads),
        tuple(Access(storage[one.storage], 1) for one in node.effects.writes),
        node.effects.rng,
    )
    single = replace(
        node,
        id=0,
        inputs=tuple(place[value] for value in node.inputs),
        outputs=tuple(place[value] for value in node.outputs),
        effects=effects,
    )
    storages = tuple(replace(graph.storages[number], id=here) for number, here in storage.items())
    inputs, outputs = tuple(range(len(taken))), tuple(range(len(taken), len(place)))
    small = Graph((single,), values, storages, inputs, outputs)
    schedule = Schedule.from_nodes(small, [0], {} if body is None else {0: body})
    name = f"loop_{next(_numbers)}"
    compiled = Compiled(lower(small, schedule, rows()), name)

    def run(*args: Any) -> tuple[Any, ...]:
        return compiled.function(list(args))

    run.__name__ = run.__qualname__ = name
    return run
