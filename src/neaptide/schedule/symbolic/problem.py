"""The ordering problem of a graph whose sizes are expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device
from neaptide.errors import SymbolicError, UsageError
from neaptide.ir.graph import Graph
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.problem import OrderProblem
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

_ZERO = SizeExpr.const(0)


@dataclass(frozen=True, slots=True)
class SymbolicProblem:
    """Operations over storages whose sizes are expressions. What may come first does not depend on sizes.

    The sizes of `structure` are those of one shape. Storages on other devices have 0 bytes.
    """

    structure: OrderProblem
    store: SizeRelations
    sizes: tuple[SizeExpr, ...]
    workspace: tuple[SizeExpr, ...]

    def at(self, binding: Mapping[str, int]) -> OrderProblem:
        """The problem of one shape. O(size)."""
        full = self.store.binding(binding)
        return replace(
            self.structure,
            storages=tuple(
                replace(storage, nbytes=size.evaluate(full))
                for storage, size in zip(self.structure.storages, self.sizes, strict=True)
            ),
            ops=tuple(
                replace(op, workspace=size.evaluate(full))
                for op, size in zip(self.structure.ops, self.workspace, strict=True)
            ),
        )


def symbolic_problem(
    graph: Graph, *, workspace: Mapping[int, SizeExpr] | None = None, device: str | None = None
) -> SymbolicProblem:
    """What there is to order in a graph with symbolic sizes; op k is node k. O(size).

    Its numbers at a shape are those of `schedule.order.from_graph.order_problem` under that binding, without in-place
    takeovers.

    A loop needs a workspace, because its body's peak depends on the shape.
    """
    given = workspace or {}
    for node in graph.nodes:
        if node.regions and node.id not in given:
            raise UsageError(
                f"the loop at node {node.id} has no workspace",
                why="what its body needs depends on the shape",
                next_step="give the workspace of loops as expressions, or plan the graph of each shape",
            )
    store = SizeRelations(graph.dims or _open_dims(graph), graph.relations)
    samples = store.samples()
    if not samples:
        raise SymbolicError(
            "no shape was found that keeps the relations between dims", where=graph.name or None
        )
    middle = samples[len(samples) // 2]
    where = device if device is not None else main_device(graph, evaluate_storage_bytes(graph, middle))
    scratch = {node: size.evaluate(middle) for node, size in given.items()}
    structure = order_problem(graph, binding=middle, workspace=scratch, device=where)
    return SymbolicProblem(
        structure,
        store,
        tuple(storage.nbytes if storage.device == where else _ZERO for storage in graph.storages),
        tuple(
            given.get(node.id, _ZERO) if node_device(graph, node) == where else _ZERO for node in graph.nodes
        ),
    )


def _open_dims(graph: Graph) -> tuple[Dim, ...]:
    names = {name for storage in graph.storages for name in storage.nbytes.dims()}
    return tuple(map(Dim, sorted(names)))
