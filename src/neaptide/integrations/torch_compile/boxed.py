"""A graph of FX as a function that takes one list and empties it, so that its arguments can die while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The function of a graph. What FX writes lets go of each value at its last use."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    taken = graph.placeholder("args")
    for node in reversed([node for node in module.graph.nodes if node.op == "placeholder"]):
        env[node] = graph.call_method("pop", (taken,))
    for node in module.graph.nodes:
        if node.op != "placeholder":
            env[node] = graph.node_copy(node, env.__getitem__)
    run = fx.GraphModule(module, graph).forward

    def call(args: list[Any]) -> Any:
        return run(args)

    call._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001 - by this name AOTAutograd knows it
    return call
