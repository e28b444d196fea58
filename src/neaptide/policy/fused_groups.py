"""Which groups of operations run as one kernel: those whose kernel is measured to be no slower than they are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.planner.prices import Prices
from neaptide.runtime.steps.planned_graph import PlannedGraph
from neaptide.transform.fusion.contract import contract
from neaptide.transform.fusion.find import find_groups
from neaptide.transform.fusion.group import Group, rewrite_of


def with_faster_kernels(
    planned: PlannedGraph,
    registry: OpRegistry,
    prices: Callable[[Graph], Prices],
    say: Callable[[str], None],
) -> PlannedGraph:
    """A graph with fused operations for all groups that are found, but for those that are faster apart.

    A group may count on the place of another. Where what is left has no place without those that are slower, all are fused.
    """
    groups = find_groups(planned.graph, registry)
    if not groups:
        say("no operations can run as one kernel")
        return planned
    say(f"compiling {len(groups)} groups of operations, equal ones once")
    edited = contract(planned.graph, registry, groups)
    if planned.objection(edited) is not None:
        groups = _beside_observed(planned, groups)
        edited = contract(planned.graph, registry, groups)
    faster = _faster(groups, edited, prices(planned.graph).seconds, prices(edited.graph).seconds)
    if len(faster) < len(groups):
        say(f"{len(groups) - len(faster)} of {len(groups)} groups are faster apart")
        try:
            groups, edited = faster, contract(planned.graph, registry, faster)
        except RewriteError as error:
            say(f"all groups are fused all the same: {error.what}")
    return planned.rewritten(edited, (rewrite_of(groups),)) if groups else planned


def _beside_observed(planned: PlannedGraph, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Groups that make nothing which verify runs observe."""
    graph = planned.graph
    seen = {graph.values[one.value].storage for one in planned.observations}
    makers = {node.id for node in graph.nodes if any(graph.values[v].storage in seen for v in node.outputs)}
    return tuple(group for group in groups if makers.isdisjoint(group.nodes))


def _faster(
    groups: Sequence[Group], edited: Edited, apart_s: Sequence[float], together_s: Sequence[float]
) -> tuple[Group, ...]:
    """Groups whose kernels take no longer than their operations, those included that a kernel computes for itself."""
    node_of = {old: new for new, old in enumerate(edited.node_of) if old >= 0}
    found = []
    for group in groups:
        node = node_of.get(group.place)
        alone_s = sum(apart_s[member] for member in (*group.nodes, *group.copies))
        if node is None or together_s[node] <= alone_s:
            found.append(group)
    return tuple(found)
