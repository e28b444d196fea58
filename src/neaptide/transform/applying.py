"""Applies all that a rule finds in a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neaptide.errors import RewriteError
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.rewrite import Refusal, Rewrite, Rule, apply_rewrite


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A graph after everything that was found in it.

    Attributes:
        edited: the graph that came out, and where its parts come from.
        rewrites: what was done, to be replayed from the graph that went in.
        refusals: what was left alone; nodes are those of the graph of its time.
    """

    edited: Edited
    rewrites: tuple[Rewrite, ...]
    refusals: tuple[Refusal, ...]


def found_rewrites(graph: Graph, registry: OpRegistry, rule: Rule) -> tuple[Rewrite, ...]:
    """What a rule finds in a graph, without what it refuses."""
    return tuple(found for found in rule.find(graph, registry) if isinstance(found, Rewrite))


def apply_rule(
    graph: Graph,
    registry: OpRegistry,
    rule: Rule,
    objection: Callable[[Edited], str | None] = lambda _: None,
    is_meant: Callable[[Graph, Rewrite], bool] = lambda _graph, _rewrite: True,
) -> Rewritten:
    """Apply a rule wherever it finds that it can be, again and again as long as nodes go. O(rewrites times size).

    Args:
        objection: why a changed graph (beside `graph`) is not wanted, for reasons that the graph does not tell; None
            where it is.
    """
    made = Edited.unchanged(graph)
    rewrites: list[Rewrite] = []
    refusals: dict[Refusal, None] = {}
    count = len(graph.nodes) + 1
    while len(made.graph.nodes) < count:
        count = len(made.graph.nodes)
        refusals.clear()
        now = Edited.unchanged(made.graph)  # changes since the rule looked
        for found in rule.find(made.graph, registry):
            if isinstance(found, Refusal):
                refusals[found] = None
                continue
            here = found.moved(now) if is_meant(made.graph, found) else None
            if here is None:
                continue  # not meant, or one before it took a node away; the next round looks again
            try:
                later = now.then(apply_rewrite(now.graph, registry, here, {rule.name: rule}))
                reason = objection(made.then(later))
            except RewriteError as error:  # legal before others in this round, not behind them
                reason = error.what
            if reason is None:
                now = later
                rewrites.append(here)
            else:
                refusals[Refusal(rule.name, found.nodes, reason)] = None
        made = made.then(now)
    return Rewritten(made, tuple(rewrites), tuple(refusals))
