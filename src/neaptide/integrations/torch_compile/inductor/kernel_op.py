"""A kernel of Inductor as one operation of a joint graph: what is made and used inside of it takes no bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx

_NAME: Final = "neaptide::kernel"
torch.library.define(_NAME, "(Tensor[] operands, int number) -> Tensor[]")
KERNEL: Final = torch.ops.neaptide.kernel.default

_running: list[Sequence[Body]] = []


@dataclass(frozen=True)
class Body:
    """What a kernel computes.

    Attributes:
        nodes: nodes of FX in an order in which they may run; views of operands included.
        operands: nodes whose values it is handed.
        results: those of its nodes whose values others use.
    """

    nodes: tuple[fx.Node, ...]
    operands: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]


@torch.library.register_fake(_NAME)  # type: ignore[untyped-decorator]
def _fake(operands: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
    body = _running[-1][number]
    env: dict[fx.Node, Any] = dict(zip(body.operands, operands, strict=True))
    for node in body.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), env.__getitem__)
        assert callable(node.target)
        env[node] = node.target(*args, **kwargs)
    return [env[node] for node in body.results]


@contextlib.contextmanager
def running(bodies: Sequence[Body]) -> Iterator[None]:
    """Within, kernels are those of some bodies, by number."""
    _running.append(bodies)
    try:
        yield
    finally:
        _running.pop()


def expanded(module: fx.GraphModule, bodies: Sequence[Body]) -> fx.GraphModule:
    """The graph with what its kernels compute in their places. O(nodes)."""
    graph, env = fx.Graph(), dict[fx.Node, fx.Node]()
    results: dict[fx.Node, list[fx.Node]] = {}
    for node in module.graph.nodes:
        if node.target is KERNEL:
            body = bodies[node.args[1]]
            inside = {old: env[new] for old, new in zip(body.operands, node.args[0], strict=True)}
            for one in body.nodes:
                inside[one] = graph.node_copy(one, inside.__getitem__)
            results[node] = [inside[one] for one in body.results]
        elif node.op == "call_function" and node.args and node.args[0] in results:
            env[node] = results[node.args[0]][node.args[1]]
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    graph.eliminate_dead_code()
    return fx.GraphModule(module, graph)
