"""The backward of a loss before the border: its tangent is a factor.

All gradients are linear in the tangent of a scalar loss. So some operations of the backward may take one in its place, and run in
the forward pass, as parts of a loss do that is computed with its gradient. What the rest uses of them is multiplied by the
tangent after the border.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import fx

from neaptide.integrations.torch_compile.joint.fx_values import is_number
from neaptide.integrations.torch_compile.joint.joint_graph import Sides
from neaptide.ir.registry import Trait
from neaptide.ops import registry

_ATEN: Final = torch.ops.aten
# Linear in one of their operands, where nothing else depends on the tangent; by the positions that it may have.
_PRODUCTS: Final = {
    _ATEN.mul: (0, 1),
    _ATEN.mm: (0, 1),
    _ATEN.bmm: (0, 1),
    _ATEN.dot: (0, 1),
    _ATEN.mv: (0, 1),
    _ATEN.div: (0,),
    _ATEN.masked_fill: (0,),
}
# Linear in all tensors together.
_SUMS: Final = frozenset(
    {
        _ATEN.add,
        _ATEN.sub,
        _ATEN.neg,
        _ATEN.sum,
        _ATEN.mean,
        _ATEN.clone,
        _ATEN._to_copy,  # noqa: SLF001 - no public name
        _ATEN.cat,
        _ATEN.stack,
    }
)
_GRADIENT: Final = ("_backward", "_backward_data")


def scalar_tangent(sides: Sides) -> fx.Node | None:
    """The tangent of a loss: the only one, a number in a tensor; None where there is no such."""
    if len(sides.tangents) != 1:
        return None
    value = sides.tangents[0].meta["val"]
    is_factor = isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point()
    return sides.tangents[0] if is_factor else None


def dependents(node: fx.Node) -> dict[fx.Node, None]:
    """What follows from a node, in the order of the graph; its output is no part. O(nodes)."""
    found = {node: None}
    for other in node.graph.nodes:
        if other.op != "output" and any(operand in found for operand in other.all_input_nodes):
            found[other] = None
    del found[node]
    return found


def closed(wanted: Collection[fx.Node], depending: Iterable[fx.Node]) -> list[fx.Node]:
    """Some of what depends on the tangent, with all of it that they follow from or take apart, in the order of the graph."""
    found = set(wanted)
    order = list(depending)
    for node in reversed(order):
        if any(user in found for user in node.users):
            found.add(node)
    found.update(node for node in order if node.target is operator.getitem and node.args[0] in found)
    return [node for node in order if node in found]


def is_linear(node: fx.Node, depending: Collection[fx.Node]) -> bool:
    """Whether an operation is linear in what depends on the tangent."""
    if node.target is operator.getitem:
        return True
    places = {k for k, argument in enumerate(node.args) if _has(argument, depending)}
    if any(_has(argument, depending) for argument in node.kwargs.values()):
        return False
    packet = getattr(node.target, "overloadpacket", None)
    row = registry().find(str(node.target))
    if row is not None and row.is_a(Trait.VIEW):
        return places == {0}
    if packet in _SUMS:
        others = [one for one in node.all_input_nodes if not is_number(one)]
        numbers = [
            one
            for one in node.args[1:2]
            if packet in (_ATEN.add, _ATEN.sub) and isinstance(one, (int, float))
        ]
        return not numbers and all(one in depending for one in others)
    if packet in _PRODUCTS:
        return len(places) == 1 and places <= set(_PRODUCTS[packet]) and _fills_zero(node, packet)
    return str(packet).endswith(_GRADIENT) and places == {0}


def _fills_zero(node: fx.Node, packet: Any) -> bool:
    return packet is not _ATEN.masked_fill or bool(node.args[2] == 0)


def _has(argument: Any, nodes: Collection[fx.Node]) -> bool:
    found: list[fx.Node] = []
    fx.map_arg(argument, found.append)
    return any(one in nodes for one in found)


def factored(
    module: fx.GraphModule, sides: Sides, early: Collection[fx.Node]
) -> tuple[fx.GraphModule, Sides]:
    """A copy of a joint graph in which some of what depends on the tangent (`closed`) does no more. O(nodes)."""
    graph, copies = fx.Graph(), dict[fx.Node, Any]()
    result = graph.graph_copy(module.graph, copies)
    told = next(iter(reversed(module.graph.nodes)))
    output = graph.output(result)
    output.meta = dict(told.meta)
    (tangent,) = (copies[node] for node in sides.tangents)
    moved = {copies[node]: None for node in early}
    first_late = next((node for node in dependents(tangent) if node not in moved), output)
    with graph.inserting_before(next(iter(moved))):
        options = {
            "dtype": tangent.meta["val"].dtype,
            "device": tangent.meta["val"].device,
            "pin_memory": False,
        }
        one = graph.call_function(_ATEN.full.default, ([], 1.0), options)
    one.meta["val"] = tangent.meta["val"]
    for node in moved:
        node.replace_input_with(tangent, one)
    _before(first_late, [*moved])
    for node in moved:
        outside = [user for user in node.users if user not in moved]
        if outside and isinstance(node.meta["val"], torch.Tensor):
            with graph.inserting_before(first_late):
                scaled = graph.call_function(_ATEN.mul.Tensor, (node, tangent))
            scaled.meta = dict(node.meta)
            for user in outside:
                user.replace_input_with(node, scaled)

    def mapped(given: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(copies[item] if isinstance(item, fx.Node) else item for item in given)

    gradients = tuple(output.args[0])[len(sides.outputs) :]
    return fx.GraphModule(module, graph), replace(
        sides,
        primals=mapped(sides.primals),
        tangents=(tangent,),
        outputs=mapped(sides.outputs),
        gradients=gradients,
        overwritten={copies[node]: copies[given] for node, given in sides.overwritten.items()},
        early=(one, *moved),
    )


def _before(place: fx.Node, nodes: Iterable[fx.Node]) -> None:
    """Put some nodes, with all that they follow from, before a place. O(nodes)."""
    needed = set(nodes)
    order = list(place.graph.nodes)
    for node in reversed(order):
        if node in needed:
            needed.update(node.all_input_nodes)
    for node in order[order.index(place) :]:
        if node in needed:
            place.prepend(node)
