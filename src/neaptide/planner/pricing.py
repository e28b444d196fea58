"""Pricing: a graph as integers, from a cost model and a binding. The one place where symbolic sizes become numbers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from neaptide.analysis.loops import NO_BODIES, NOTHING_IN_BODIES, Binding, Bodies, InBodies, trips
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.analysis.replay import Repeat, repeat_rule
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.model import CostModel
from neaptide.cost.op_key import call_key
from neaptide.ir.graph import Graph
from neaptide.ir.loops.orders import BodyOrder, body_orders
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.planner.bodies.copies import body_copies, moves_storages
from neaptide.planner.prices import NodePrice, Prices
from neaptide.schedule.copy_streams import LoopCopies
from neaptide.schedule.problem import StepProblem, compile_problem
from neaptide.schedule.timeline import Links

# Two states read and two put back, about 15 µs, and the context around them.
_RANDOM_STATE_SECONDS: Final = 2e-5
# A step has a few programs; what else is priced is looked at once.
_GRAPHS_REMEMBERED: Final = 8
# Variants of a step of 2,845 nodes have a few hundred distinct calls.
_CALLS_REMEMBERED: Final = 20_000


@dataclass(slots=True)
class _Scheduled:
    prices: Prices
    problem: StepProblem | None = None


@dataclass(slots=True)
class _Priced:
    """A graph, by the orders of its bodies; the first are those of program order."""

    graph: Graph
    by_orders: dict[tuple[BodyOrder, ...], _Scheduled]
    inside: dict[int, Pricing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Runs:
    """How often a graph runs under some sizes, and what its nodes cost then."""

    count: int
    binding: Binding
    cost: CostModel


class Pricing:
    """Prices graphs under the binding of its cost model. Programs of one step, and variants of them, share one."""

    def __init__(
        self,
        cost: CostModel,
        registry: OpRegistry,
        *,
        binding: Binding | None = None,
        links: Links | None = None,
    ) -> None:
        self.links = links
        self.cost = cost
        self.registry = registry
        self.binding: Binding = dict(binding or {})
        self._runs: tuple[_Runs, ...] = (_Runs(1, self.binding, cost),)
        self._is_inside = False
        self._known: dict[int, _Priced] = {}
        self._by_call: dict[Hashable, NodePrice] = {}

    def prices(self, graph: Graph, bodies: Bodies = NO_BODIES) -> Prices:
        """What the cost model says of a graph. O(nodes), once; O(nodes in bodies) for other orders of these."""
        return self._scheduled(graph, bodies).prices

    def problem(self, graph: Graph, bodies: Bodies = NO_BODIES) -> StepProblem:
        """The integer problem of a graph. O(size of the graph + nodes x storages / 64), once."""
        made = self._scheduled(graph, bodies)
        if made.problem is None:
            prices = made.prices
            made.problem = compile_problem(
                graph,
                self.registry,
                binding=self.binding,
                workspace=prices.own_workspace,
                seconds=prices.seconds,
                random_state_seconds=_RANDOM_STATE_SECONDS,
                bodies=bodies,
                in_bodies=prices.in_bodies.most(InBodies.here({}, prices.storage_bytes)),
            )
            if copies := self._copies(graph, bodies):
                made.problem = replace(made.problem, body_copies=copies)
        return made.problem

    def within(self, graph: Graph, node: Node) -> Pricing:
        """Prices the body of a loop: seconds are those of all trips, bytes those of a full part."""
        known = self._priced(graph).inside
        if node.id not in known:
            known[node.id] = self._inside(graph, node)
        return known[node.id]

    def node_price(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> NodePrice:
        """Time and workspace of one node of a graph; `bodies` as for `prices`."""
        if self.cost.is_measured or node.regions or node.effects.rng is not None:
            return self._node_price(graph, node, bodies)
        key = call_key(graph, node)
        known = self._by_call.get(key)
        if known is None:
            if len(self._by_call) >= _CALLS_REMEMBERED:
                self._by_call.clear()
            known = self._by_call[key] = self._node_price(graph, node, bodies)
        return known

    def _node_price(self, graph: Graph, node: Node, bodies: Bodies) -> NodePrice:
        again = seconds = self._seconds(graph, node, bodies)
        if node.effects.rng is not None and self.repeat_rule(graph, node).random_stream is not None:
            again += _RANDOM_STATE_SECONDS
        if node.regions:
            workspace = self._loop_bytes(
                graph, node, self._inside(graph, node).known(node.regions[0].body), bodies
            )
        else:
            workspace = self._workspace(graph, node)
        return NodePrice(seconds, again, workspace)

    def repeat_rule(self, graph: Graph, node: Node) -> Repeat:
        """Whether a node may run again, as problems are made."""
        return repeat_rule(graph, node, self.registry)

    def storage_bytes(self, graph: Graph) -> tuple[int, ...]:
        """Bytes of each storage, those of the caller and of other devices as well."""
        return evaluate_storage_bytes(graph, self.binding, self.prices(graph).storage_bytes)

    # -- the bodies of loops

    def runs(self) -> tuple[tuple[int, tuple[tuple[str, int], ...]], ...]:
        """How often a priced graph runs, and under which values of dims; once, where it is no body."""
        return tuple((run.count, tuple(sorted(run.binding.items()))) for run in self._runs)

    def _inside(self, graph: Graph, node: Node) -> Pricing:
        loop = node.regions[0]
        runs = tuple(
            _Runs(outer.count * count, sizes, self.cost.under(sizes))
            for outer in self._runs
            for count, sizes in trips(graph, node, loop, outer.binding)
        )
        found = Pricing(
            runs[0].cost,
            self.registry,
            binding=runs[0].binding,
            links=self.links,
        )
        found._runs, found._is_inside = runs, True
        return found

    def known(self, graph: Graph) -> InBodies:
        """What is known of bytes in a graph and in the bodies of its loops beside them, by path. O(nodes)."""
        scratch = {
            node.id: nbytes
            for node in graph.nodes
            if not node.regions and (nbytes := self._workspace(graph, node))
        }
        found = InBodies.here(scratch, self._true_sizes(graph))
        for node in graph.nodes:
            if node.regions:
                found = found.most(self._inside(graph, node).known(node.regions[0].body).around(node.id))
        return found

    def _loop_bytes(self, graph: Graph, node: Node, known: InBodies, bodies: Bodies) -> int:
        """Most bytes that a trip of a loop needs beyond what it is handed and what it writes its results to."""
        return max(loop_workspace_bytes(graph, node, run.binding, known, bodies) for run in self._runs)

    # -- prices

    def _seconds(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        """Of all runs; a loop that moves storages waits for them as where no other copies are under way."""
        seconds = float(sum(run.count * run.cost.seconds(graph, node, bodies) for run in self._runs))
        if moves_storages(node, bodies):
            copies = (
                (run.count, body_copies(graph, node, run.cost, bodies, run.binding, self.links))
                for run in self._runs
            )
            seconds += sum(count * one.alone.waited_s for count, one in copies)
        return seconds

    def _copies(self, graph: Graph, bodies: Bodies) -> dict[int, LoopCopies]:
        """The copies in the bodies of a graph's loops; none in a body, whose seconds are of all trips together."""
        if self._is_inside:
            return {}
        return {
            number: body_copies(graph, graph.nodes[number], self.cost, bodies, self.binding, self.links)
            for number in sorted(bodies)
            if moves_storages(graph.nodes[number], bodies)
        }

    def _workspace(self, graph: Graph, node: Node) -> int:
        return max(run.cost.workspace_bytes(graph, node) for run in self._runs)

    def _true_sizes(self, graph: Graph) -> dict[int, int]:
        """Sizes of storages that are not what the graph says in some run; of all runs the most."""
        seen = [(run.binding, run.cost.storage_bytes(graph)) for run in self._runs]
        return {
            storage: max(
                sizes[storage] if storage in sizes else graph.storages[storage].nbytes.evaluate(binding)
                for binding, sizes in seen
            )
            for storage in dict.fromkeys(s for _, sizes in seen for s in sizes)
        }

    def _scheduled(self, graph: Graph, bodies: Bodies) -> _Scheduled:
        priced, orders = self._priced(graph), body_orders(bodies)
        if orders not in priced.by_orders:
            priced.by_orders[orders] = _Scheduled(self._in_orders(graph, priced.by_orders[()].prices, bodies))
        return priced.by_orders[orders]

    def _in_orders(self, graph: Graph, plain: Prices, bodies: Bodies) -> Prices:
        seconds, workspace = list(plain.seconds), dict(plain.workspace)
        for number in plain.loops.intersection(bodies):
            node = graph.nodes[number]
            seconds[number] = self._seconds(graph, node, bodies)
            workspace[number] = self._loop_bytes(graph, node, plain.in_bodies.within(number), bodies)
        return replace(plain, seconds=tuple(seconds), workspace=workspace)

    def _priced(self, graph: Graph) -> _Priced:
        """A graph with all bodies in program order."""
        if id(graph) not in self._known:
            prices = self._asked(graph)
            while len(self._known) >= _GRAPHS_REMEMBERED:
                del self._known[next(iter(self._known))]
            # The graph is kept with its prices: else another one could get its id.
            self._known[id(graph)] = _Priced(graph, {(): _Scheduled(prices)})
        return self._known[id(graph)]

    def _asked(self, graph: Graph) -> Prices:
        seconds: list[float] = []
        workspace: dict[int, int] = {}
        in_bodies = NOTHING_IN_BODIES
        for node in graph.nodes:
            price = self.node_price(graph, node)
            seconds.append(price.seconds)
            if price.workspace:
                workspace[node.id] = price.workspace
            if node.regions:
                known = self._inside(graph, node).known(node.regions[0].body)
                in_bodies = in_bodies.most(known.around(node.id))
        loops = frozenset(node.id for node in graph.nodes if node.regions)
        return Prices(tuple(seconds), workspace, self._true_sizes(graph), in_bodies, loops)
