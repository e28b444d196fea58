"""What running a graph's operations alone showed that the graph does not say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from neaptide.cost.measured import MeasuredCost
from neaptide.cost.model import CostModel
from neaptide.cost.op_key import OutputFacts
from neaptide.errors import CaptureError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import Trait
from neaptide.units import format_bytes


def surprises(graph: Graph, cost: CostModel) -> tuple[str, ...]:
    """Sentences for a report: sizes and aliases that the graph has otherwise, and what was not run. O(nodes)."""
    if not isinstance(cost, MeasuredCost):
        return ()
    found = []
    # One sentence for each result of an operation and kind of difference: the sizes differ from layer to layer.
    counts: dict[tuple[str, int, str], Counter[str]] = defaultdict(Counter)
    sizes = cost.storage_bytes(graph)
    for node in graph.nodes:
        record = cost.record(graph, node)
        for position, facts in enumerate(() if record is None else record.outputs):
            if facts is not None:
                for kind, text in _differences(graph, node, position, facts, sizes):
                    counts[node.op, position, kind][text] += 1
    for texts in counts.values():
        text, total = next(iter(texts)), texts.total()
        more = f" ({total} nodes)" if len(texts) == 1 else f" (and {total - 1} more nodes alike)"
        found.append(text + (more if total > 1 else ""))
    for op, reason, count in cost.skipped(graph):
        found.append(f"{op} is estimated{f' ({count} calls)' if count > 1 else ''}: {reason}")
    for op in sorted({node.op for node in graph.nodes}):
        row = cost.registry.find(op)
        if row is not None and row.is_a(Trait.DATA_SIZED):
            found.append(
                f"how much scratch {op} takes depends on the numbers in its operands: "
                "the peak with workspace counts the most, a step may need less"
            )
    return tuple(found)


def _differences(
    graph: Graph, node: Node, position: int, facts: OutputFacts, sizes: Mapping[int, int]
) -> Iterator[tuple[str, str]]:
    value = graph.values[node.outputs[position]]
    if value.storage is None:
        return
    result = f"result {position} of {node.op}"
    is_fresh = value.storage in graph.created_storages(node)
    if is_fresh and facts.operand is not None:
        text = f"{result} lies in an operand's storage when run alone; the graph gives it bytes of its own"
        yield "alias", text
    elif not is_fresh and facts.operand is None:
        own = format_bytes(facts.nbytes)
        yield "alias", f"{result} has {own} of its own when run alone; in the graph it is an alias"
    elif value.storage in sizes:
        said, seen = graph.storages[value.storage].nbytes, format_bytes(facts.nbytes)
        yield "bytes", f"{result} lies in a storage of {seen}; the graph says {said} bytes"
    if value.dtype != facts.dtype:
        raise CaptureError(
            f"{result} is {facts.dtype}; the captured program says {value.dtype}",
            where=node.source.location if node.source.file else None,
            why="what follows would be computed in another precision than in eager",
            next_step="write the step without this operation, or cast its operands to one dtype",
        )
    shape, real = [str(n) for n in value.shape], [str(n) for n in facts.shape]
    if all(n.is_constant for n in value.shape) and shape != real:
        seen, stated = f"{facts.dtype}[{', '.join(real)}]", f"{value.dtype}[{', '.join(shape)}]"
        yield "shape", f"{result} is {seen} when run alone; the graph says {stated}"
