"""A forward and a backward graph as one joint graph again: what a partition recomputes is then a node of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from neaptide.integrations.torch_compile.inductor.mutations import write_in_forward
from neaptide.integrations.torch_compile.joint.fx_values import is_number
from neaptide.integrations.torch_compile.joint.joint_graph import Sides
from neaptide.integrations.torch_compile.programs.partition import given_by, output_of


@dataclass(frozen=True)
class Joined:
    """Two graphs as one.

    Attributes:
        forward: by name of a node of the forward graph, the node here; `backward` alike.
    """

    module: fx.GraphModule
    sides: Sides
    forward: Mapping[str, fx.Node]
    backward: Mapping[str, fx.Node]


def joined(joint: fx.GraphModule, modules: tuple[fx.GraphModule, fx.GraphModule], outputs: int) -> Joined:
    """The graphs of a partition of a joint graph, whose forward has so many outputs. O(nodes)."""
    graph = fx.Graph()
    first, given = _copied(graph, modules[0], {})
    primals = tuple(node for node in graph.nodes if node.op == "placeholder")
    saved = given[outputs:]
    taken = [node for node in modules[1].graph.nodes if node.op == "placeholder"]
    numbers = sum(map(is_number, taken))
    there: dict[fx.Node, fx.Node] = {}
    for node, one in zip(
        taken, [*saved[len(saved) - numbers :], *saved[: len(saved) - numbers]], strict=False
    ):
        assert isinstance(one, fx.Node)
        there[node] = one
    tangents: list[fx.Node] = []
    with graph.inserting_after(primals[-1]):
        for node in reversed(taken[len(saved) :]):
            there[node] = graph.node_copy(node)
            tangents.insert(0, there[node])
    second, gradients = _copied(graph, modules[1], there)
    made = graph.output((*given[:outputs], *gradients))
    made.meta = dict(output_of(joint).meta)
    module = fx.GraphModule(joint, graph)
    sides = Sides(primals, tuple(tangents), tuple(given[:outputs]), tuple(gradients), {})
    return Joined(module, write_in_forward(module, sides), first, second)


def _copied(
    graph: fx.Graph, module: fx.GraphModule, there: Mapping[fx.Node, fx.Node]
) -> tuple[dict[str, fx.Node], list[Any]]:
    """Copy the nodes of a graph to the end of another; by name, and what the graph gives."""
    env = dict(there)
    for node in module.graph.nodes:
        if node.op == "output":
            break
        if node not in env:
            env[node] = graph.node_copy(node, env.__getitem__)
    given = [env[one] if isinstance(one, fx.Node) else one for one in given_by(module)]
    return {node.name: made for node, made in env.items()}, given
