"""The ordering problem of a model that is written as C: what is a window or a part there takes no bytes of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from neaptide.analysis.folded import folded_values
from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, operand_values
from neaptide.ir.registry import OpRegistry
from neaptide.lower.c.operators.node_call import Numbers
from neaptide.lower.c.operators.rows import row_of
from neaptide.lower.c.program import Program, model_inputs, storages_of
from neaptide.lower.c.sharing import Part, Same, Sharing, Window
from neaptide.lower.onnx.opset_forms import listed_numbers
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.of_model import model_problem
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage

MOST_NUMBERS: Final = 256
"""Elements of a weight that may be where a slice begins, or lengths of parts."""


def c_problem(graph: Graph, registry: OpRegistry, numbers: Mapping[str, Numbers]) -> OrderProblem:
    """What there is to order in a model for C; op k is node k. O(size of the graph).

    A window lies in the storage that it looks at, a part in the joined result, which is there from its first part on, and
    what may be written in place is what kernels of C write there. Parts of one result keep the order of the graph. Where
    copies need less in that order, they are copies.

    Args:
        numbers: of small weights, by name of the graph's value.
    """
    plain, program = model_problem(graph, registry), _program(graph, numbers)
    try:
        found = [
            _seen(program, plain, Sharing(program, windows=windows, joins=joins))
            for windows in (False, True)
            for joins in ((), None)
        ]
    except LoweringError:
        return plain  # whoever writes the program says what it cannot hold
    return min(found, key=lambda problem: evaluate_order(problem, range(problem.op_count)).peak_bytes)


def _seen(program: Program, plain: OrderProblem, sharing: Sharing) -> OrderProblem:
    """The same operations, on the storages that have bytes."""
    within = {
        storage: sharing.storage(parent.value)
        for storage, parent in sharing.parent.items()
        if isinstance(parent, Same) and _is_made_for(program.graph, sharing, storage, parent.value)
    }
    for storage, parent in sharing.parent.items():
        node = program.graph.nodes[parent.node] if isinstance(parent, Window | Part) else None
        value = (
            None
            if node is None
            else operand_values(node)[0]
            if isinstance(parent, Window)
            else node.outputs[0]
        )
        if value is not None:
            within[storage] = sharing.storage(value)

    def home(storage: int) -> int:
        while storage in within:
            storage = within[storage]
        return storage

    def moved(op: OrderOp, node: Node) -> OrderOp:
        windows = {s for s in op.writes if isinstance(sharing.parent.get(s), Window)}
        written = {home(s) for s in op.writes if s not in windows}
        read = {home(s) for s in (*op.reads, *windows)}
        pairs = _in_place(program.graph, node, {s for s in op.writes if s not in within})
        at_home = tuple((made, home(taken)) for made, taken in pairs if taken not in within)
        return OrderOp(op.name, tuple(sorted(read)), tuple(sorted(written)), op.workspace, at_home, op.after)

    kept = {home(k) for k, storage in enumerate(plain.storages) if storage.output}
    storages = tuple(
        OrderStorage(s.name, s.nbytes, s.resident, k in kept) for k, s in enumerate(plain.storages)
    )
    return OrderProblem(storages, tuple(map(moved, plain.ops, program.graph.nodes)), plain.name)


def _is_made_for(graph: Graph, sharing: Sharing, storage: int, value: int) -> bool:
    """Whether a storage lies in a part, in any order: only the node that overwrites it to make the part reads it."""
    is_part = isinstance(sharing.parent.get(sharing.storage(value)), Part)
    readers = {node.id for node in sharing.touching[storage] if storage not in graph.created_storages(node)}
    return is_part and readers == {graph.producer(value)}


def _in_place(graph: Graph, node: Node, written: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Pairs of the storage that a kernel makes and one that it may write to."""
    row, values = row_of(node), operand_values(node)
    if row is None or not node.outputs:
        return ()
    result, found = graph.values[node.outputs[0]], list[tuple[int, int]]()
    if result.storage is None or result.storage not in written:
        return ()
    for place in row.in_place:
        value = values[place] if place < len(values) else None
        if value is None or any(v == value and k not in row.in_place for k, v in enumerate(values)):
            continue
        operand = graph.values[value]
        is_like = (operand.dtype, operand.shape) == (result.dtype, result.shape)
        if is_like and operand.storage is not None:
            found.append((result.storage, operand.storage))
    return tuple(found)


def _program(graph: Graph, numbers: Mapping[str, Numbers]) -> Program:
    """All nodes that run, in the order of the graph."""
    weights = folded_values(graph)
    known = {v: numbers[name] for v in weights if (name := graph.values[v].name) in numbers}
    lists = ((node.outputs[0], listed_numbers(node)) for node in graph.nodes if not node.inputs)
    known |= {value: listed for value, listed in lists if listed is not None}
    given = storages_of(graph, model_inputs(graph))
    outside = storages_of(graph, weights.union(graph.inputs)) - given
    order = tuple(node.id for node in graph.nodes if not weights.issuperset(node.outputs))
    return Program(graph, order, known, outside, storages_of(graph, graph.outputs) - outside, given)
