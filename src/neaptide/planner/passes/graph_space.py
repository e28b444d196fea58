"""Graphs and passes as what a search looks through: applied at all places at once, measured by the best order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.folded import folded_values
from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.outcome import Limits
from neaptide.planner.passes.features import Lives, at_the_peak, facts_of
from neaptide.planner.passes.space import Measurement
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.transform.rewrite import Rewrite, Rule, apply_rewrite, apply_rule

ORDER_WORK: Final = 300
"""Units of work of one measurement: states and cuts of the search for an order. A measurement is the same on every machine."""


@dataclass(frozen=True, slots=True)
class PassState:
    """A graph after some passes.

    Attributes:
        taken: the passes.
        rewrites: all that they did, to be replayed from the graph that the search began with.
    """

    graph: Graph
    taken: tuple[str, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()


class GraphSpace:
    """The graphs that passes make of one graph."""

    def __init__(
        self,
        graph: Graph,
        registry: OpRegistry,
        passes: Mapping[str, Rule],
        problem_of: Callable[[Graph], OrderProblem],
        order_work: int = ORDER_WORK,
    ) -> None:
        """A space that starts with a graph.

        Args:
            graph: what the search begins with.
            registry: of its operations.
            passes: by name, in the order in which equal ones are preferred.
            problem_of: the order problem of a graph, op by node: which storages count, and what may be made in place.
            order_work: limit of one measurement.
        """
        self.start = PassState(graph)
        self._registry = registry
        self.passes = tuple(passes)
        self._rules = passes
        self._problem_of = problem_of
        self._limits = Limits(work=order_work)
        self._places: dict[str, dict[str, tuple[Rewrite, ...]]] = {}  # by key of the state, then by pass
        self._best_places: dict[tuple[str, str], tuple[Rewrite, ...]] = {}

    def key(self, state: PassState) -> str:
        """States of one graph are one, whatever passes made it."""
        return fingerprint(state.graph)

    def measure(self, state: PassState) -> Measurement:
        """Footprint by the best order within the limit, and what predictions need of it."""
        graph, key = state.graph, self.key(state)
        problem = self._problem_of(graph)
        found = best_order(problem, self._limits).require()
        lives = Lives.of(problem, found.order)
        places = {name: self._found(graph, rule) for name, rule in self._rules.items()}
        for name, rule in self._rules.items():
            if rule.are_alternatives and len(places[name]) > 1:
                self._best_places[key, name] = at_the_peak(places[name], problem, lives, found.order)
        self._places[key] = {name: some for name, some in places.items() if some}
        facts = facts_of(graph, self._registry, problem, lives, places, state.taken)
        return Measurement(found.peak_bytes, facts, (len(graph.inputs), len(graph.outputs), len(graph.nodes)))

    def _found(self, graph: Graph, rule: Rule) -> tuple[Rewrite, ...]:
        """Places of a rule, but for those about weights alone, which take no bytes that count."""
        folded = folded_values(graph)

        def is_about_weights(place: Rewrite) -> bool:
            nodes = place.within[:1] or place.nodes
            return all(folded.issuperset(graph.nodes[node].outputs) for node in nodes)

        return tuple(place for place in rule.find(graph, self._registry) if not is_about_weights(place))

    def after(self, state: PassState, name: str) -> PassState | None:
        """The graph with a pass at all its places; at those that stand at the peak where they are alternatives."""
        rule, key = self._rules[name], self.key(state)
        edited, rewrites = self._applied(state.graph, rule, key)
        if not rewrites:
            return None
        return PassState(edited.graph, (*state.taken, name), (*state.rewrites, *rewrites))

    def _applied(self, graph: Graph, rule: Rule, key: str) -> tuple[Edited, Sequence[Rewrite]]:
        if not rule.are_alternatives:
            return apply_rule(graph, self._registry, rule)
        places = self._places[key][rule.name]
        best = self._best_places.get((key, rule.name), places)
        for together in (best, *((place,) for place in places if place not in best)):
            edited, rewrites = Edited.unchanged(graph), list[Rewrite]()
            for place in together:
                here = place.moved(edited)
                if here is None:
                    continue
                try:
                    edited = edited.then(apply_rewrite(edited.graph, self._registry, here, self._rules))
                except RewriteError:
                    continue  # `find` promises no more than that it looks legal
                rewrites.append(here)
            if rewrites:
                return edited, rewrites
        return Edited.unchanged(graph), ()
