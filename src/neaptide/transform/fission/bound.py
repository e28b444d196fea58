"""How low regions in parts can bring a program: whole operations, what the caller owns, and parts of the rest are left.

Rewrites that cost nothing are done to programs with parts as well: results lie on top of operands, copies are made once, and
products add what a sum would have added. A bound for such programs must not count what they leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from neaptide.analysis.alias import view_base
from neaptide.analysis.axes.follow import Carried
from neaptide.analysis.axes.lines import Line
from neaptide.analysis.bounds import lower_bound_bytes
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.ir.axes import Along, Merge
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value
from neaptide.ops.aten.dialect import ADD, CAST, CLONE, JOINS, PRODUCTS, plain_terms

_Direction = tuple[int, int, int]  # dim, outer runs, length


def parts_lower_bound_bytes(
    graph: Graph,
    axes: Sequence[Carried],
    *,
    workspace: Mapping[int, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    rewritten: OpRegistry | None = None,
) -> int:
    """No plan whose regions run in parts along some axes has a lower peak, in any order, with any recomputation.

    Regions may be any nodes, side by side or inside one another. While an operation runs, its operands and results are
    there: of what carries an axis along which the operation may run in parts, one part at least; of all else the whole.
    What only adds two terms of a sum is left to the loop, which adds each by itself. What a part needs of scratch is not
    known, and is not counted. O(axes * size of the graph).

    Args:
        axes: followed through it. What must be seen to before a node may run in parts counts as seen to.
        storage_bytes: as really made, where an operation makes another size than the graph says.
        rewritten: what operations mean, where `in_place`, `redundant_copies` and `accumulate_in_gemm` may be done as well, before or
            after parts: a result that may lie on an operand takes nothing beside it, and what may go is not counted.
    """
    sizes = evaluate_storage_bytes(graph, None, storage_bytes)
    in_parts: dict[tuple[int, int], int] = {}
    split: set[int] = set()
    for node in graph.nodes:
        lines = [(axis.length, line) for axis in axes if (line := axis.members.get(node.id)) is not None]
        directions = _directions(node, lines)
        split.update([node.id] if directions else [])
        if _is_left_to_a_loop(graph, node, lines) or (rewritten and _may_go(graph, node)):
            in_parts |= dict.fromkeys(_touched(graph, node), 0)
            continue
        used = {*needed_inputs(graph, node), *node.outputs}
        shown = [graph.values[v] for v in used if graph.values[v].storage is not None]
        for storage, values in groupby(sorted(shown, key=_storage), key=_storage):
            in_parts[node.id, storage] = max(
                min(sizes[storage], _bytes(value)) // _most_parts(value, directions) for value in values
            )
        if rewritten:
            for storage in _on_operands(graph, node, rewritten):
                in_parts[node.id, storage] = 0
    whole = {number: nbytes for number, nbytes in (workspace or {}).items() if number not in split}
    return lower_bound_bytes(graph, workspace=whole, storage_bytes=storage_bytes, in_parts=in_parts)


def _may_go(graph: Graph, node: Node) -> bool:
    """Whether a rewrite may leave a node out: a copy beside another one, or the sum of a product and something else."""
    if node.op in {CLONE, CAST, *JOINS}:
        return True
    bases = (graph.producer(view_base(graph, value)) for value in node.inputs)
    return node.op == ADD and any(n is not None and graph.nodes[n].op in PRODUCTS for n in bases)


def _on_operands(graph: Graph, node: Node, registry: OpRegistry) -> list[int]:
    """Storages of results that may take the bytes of an operand, if nothing needs that any more."""
    spec = registry.find(node.op)
    if spec is None or not spec.in_place or not node.effects.is_pure or len(node.outputs) != 1:
        return []
    result = graph.values[node.outputs[0]]
    alike = [
        value
        for value in map(graph.values.__getitem__, node.inputs)
        if (value.shape, value.dtype) == (result.shape, result.dtype) and value.storage != result.storage
    ]
    return [] if result.storage is None or not alike else [result.storage]


def _is_left_to_a_loop(graph: Graph, node: Node, lines: Sequence[tuple[int, Line]]) -> bool:
    """Whether a node adds terms that parts may add one by one (`transform.fission.body`)."""
    is_term = any(how is Merge.SUM for _, line in lines for how in line.results.values())
    return is_term and bool(plain_terms(graph, node))


def _touched(graph: Graph, node: Node) -> list[tuple[int, int]]:
    """The storages of a node's operands and results, each with the node."""
    found = (graph.values[v].storage for v in (*node.inputs, *node.outputs))
    return [(node.id, storage) for storage in found if storage is not None]


def _directions(node: Node, lines: Sequence[tuple[int, Line]]) -> dict[int, set[_Direction]]:
    """By value that a node uses or makes, the directions in which it may do so part by part."""
    found: dict[int, set[_Direction]] = {}
    for length, line in lines:
        for slot, along in line.operands.items():
            found.setdefault(node.inputs[slot], set()).add((along.dim, along.outer, length))
        for slot, how in line.results.items():
            if isinstance(how, Along):
                found.setdefault(node.outputs[slot], set()).add((how.dim, how.outer, length))
    return found


def _most_parts(value: Value, directions: Mapping[int, set[_Direction]]) -> int:
    """Parts of a value, one of which is needed at a time."""
    by_dim: dict[int, int] = {}
    for dim, _, length in directions.get(value.id, ()):
        by_dim[dim] = by_dim.get(dim, 1) * length
    parts = 1
    for dim, number in by_dim.items():
        parts *= min(number, max(value.shape[dim].constant_value(), 1))
    return parts


def _storage(value: Value) -> int:
    assert value.storage is not None
    return value.storage


def _bytes(value: Value) -> int:
    return value.nbytes.constant_value()
