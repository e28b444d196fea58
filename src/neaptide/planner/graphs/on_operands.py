"""Results on top of operands in a plan that keeps the bits: counted by the search, written down as a rewrite after it.

While a graph is searched, every result that may take the bytes of an operand does so wherever the sequence permits it, and
every node may still run again. In the sequence that is found, the results that do lie on operands are a rewrite of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from neaptide.analysis.liveness import compute_liveness
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Offload, Schedule
from neaptide.planner.pricing import Pricing
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from neaptide.transform.rules import RULES

if TYPE_CHECKING:
    from neaptide.planner.graphs.plan_graph import GraphAsk

IN_PLACE: Final = "in_place"
"""The rule that keeps the bits and costs nothing."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Where results of a graph may lie on operands."""

    graph: Graph
    rewrite: Rewrite  # one of all of them, in program order
    seconds: dict[int, tuple[int, float]]  # by node, storage of its operand and seconds on top of it
    pricing: Callable[[Graph], Pricing]
    asked: Callable[[Edited], GraphAsk]

    @staticmethod
    def of(
        graph: Graph,
        pricing: Callable[[Graph], Pricing],
        asked: Callable[[Edited], GraphAsk],
        objection: Callable[[Edited], str | None],
    ) -> Operands | None:
        """Those of a graph; None where there are none, or `objection` says why its rewrite is not wanted. O(size of the graph)."""
        known = pricing(graph).registry
        found = (one for one in RULES[IN_PLACE].find(graph, known) if isinstance(one, Rewrite))
        rewrite = next(found, None)
        if rewrite is None:
            return None
        edited = apply_rewrite(graph, known, rewrite, RULES)
        if objection(edited) is not None:
            return None
        before = pricing(graph).prices(graph)
        after = pricing(edited.graph).prices(edited.graph)
        seconds = {
            node: (_overwritten(graph, edited, node), after.seconds[node])
            for node in rewrite.nodes
            # A kernel that needs more room there than beside its operand is left alone.
            if after.workspace.get(node, 0) <= before.workspace.get(node, 0)
        }
        return Operands(graph, rewrite, seconds, pricing, asked)

    def taken(self, nodes: Sequence[int]) -> tuple[Edited, Rewrite]:
        """The graph in which the results of these nodes lie on their operands; nodes keep their ids."""
        rewrite = replace(self.rewrite, nodes=tuple(sorted(nodes)))
        return apply_rewrite(self.graph, self.pricing(self.graph).registry, rewrite, RULES), rewrite


def offloads_after(
    graph: Graph, edited: Graph, sequence: Sequence[int], offloads: Sequence[Offload]
) -> tuple[Offload, ...]:
    """Stays in a sequence, each of the instance in which its bytes lie after such a rewrite. O(length of the sequence)."""
    if not offloads:
        return ()
    before, after = (compute_liveness(one, Schedule.from_nodes(one, sequence)) for one in (graph, edited))
    moved = {
        (old.storage, old.occurrence): (new.storage, new.occurrence)
        for one, other in zip(before.bindings, after.bindings, strict=True)
        if one.instance is not None and other.instance is not None
        for old, new in ((before.instances[one.instance], after.instances[other.instance]),)
    }
    found = []
    for offload in offloads:
        storage, occurrence = moved[offload.storage, offload.occurrence]
        found.append(replace(offload, storage=storage, occurrence=occurrence))
    return tuple(
        sorted(found, key=lambda offload: (offload.store_after, offload.storage, offload.occurrence))
    )


def _overwritten(graph: Graph, edited: Edited, node: int) -> int:
    """The storage of the graph whose bytes a node overwrites after the change."""
    after = edited.graph
    written = after.values[after.nodes[node].outputs[0]].storage
    operand = next(value for value in after.nodes[node].inputs if after.values[value].storage == written)
    storage = graph.values[edited.value_of[operand]].storage
    assert storage is not None
    return storage
