"""Pricing: a graph as integers, from a cost model and a binding. The one place where symbolic sizes become numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from neaptide.analysis.loops import NO_BODIES, NOTHING_IN_BODIES, Binding, Bodies, InBodies, trips
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.analysis.replay import Repeat, repeat_rule
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.model import CostModel
from neaptide.cost.op_key import call_key
from neaptide.ir.body_orders import BodyOrder, body_orders
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.planner.body_copies import Links, body_copies, moves_storages
from neaptide.planner.prices import NodePrice, Prices
from neaptide.schedule.loop_copies import LoopCopies
from neaptide.schedule.problem import StepProblem, compile_problem

_RANDOM_STATE_SECONDS: Final = (
    2e-5  # two states read and two put back, about 15 µs, and the context around them
)
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
    """Prices graphs. Programs of one step, and variants of them, share one.

    Args:
        cost: time and workspace of nodes; a measured one is prepared for a graph before the graph is priced.
        registry: what the operations mean.
        binding: values of symbolic dims; the same as the cost model's. In the body of a loop those of a full part.
        links: what makes the copies in the bodies of loops; None where nothing is moved in them.
    """

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
        """What the cost model says of a graph. O(nodes), once; O(nodes in bodies) for other orders of these.

        Args:
            graph: what is priced.
            bodies: by loop, the order of its body; program order for those without one.

        Raises:
            SymbolicError: a dim has no value.
        """
        return self._scheduled(graph, bodies).prices

    def problem(self, graph: Graph, bodies: Bodies = NO_BODIES) -> StepProblem:
        """The integer problem of a graph. O(size of the graph + nodes x storages / 64), once.

        Args:
            graph: what is priced.
            bodies: by loop, the order of its body; program order for those without one.

        Raises:
            SymbolicError: a dim has no value.
        """
        made = self._scheduled(graph, bodies)
        if made.problem is None:
            made.problem = compile_problem(
                graph,
                self.registry,
                binding=self.binding,
                workspace=made.prices.own_workspace,
                storage_bytes=made.prices.storage_bytes,
                seconds=made.prices.seconds,
                random_state_seconds=_RANDOM_STATE_SECONDS,
                bodies=bodies,
                in_bodies=made.prices.in_bodies,
                body_copies=self._copies(graph, bodies),
            )
        return made.problem

    def within(self, graph: Graph, node: Node) -> Pricing:
        """Prices the body of a loop: seconds are those of all trips, bytes those of a full part.

        Args:
            graph: where the loop is.
            node: the loop.

        Raises:
            SymbolicError: a dim has no value.
        """
        known = self._priced(graph).inside
        if node.id not in known:
            known[node.id] = self._inside(graph, node)
        return known[node.id]

    def loop_bytes(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        """Most bytes that a trip of a loop needs beyond what it is handed and what it writes its results to.

        Args:
            graph: where the loop is.
            node: the loop.
            bodies: by loop, the order of its body.
        """
        return self._loop_bytes(graph, node, self.prices(graph).in_bodies.within(node.id), bodies)

    def after(self, before: Graph, edited: Edited, bodies: Bodies = NO_BODIES) -> StepProblem:
        """The integer problem of an edited graph: what `problem(edited.graph)` is, but only what is new is priced.

        Compiling it is O(size of the graph).

        Args:
            before: the graph that was edited.
            edited: what it became.
            bodies: by loop of the edited graph, the order of its body.

        Raises:
            SymbolicError: a dim has no value.
        """
        self.take_over(before, edited)
        return self.problem(edited.graph, bodies)

    def take_over(self, before: Graph, edited: Edited) -> Prices:
        """What the cost model says of an edited graph, asked for what is new alone. O(size of the graph).

        Args:
            before: the graph that was edited.
            edited: what it became.
        """
        known = self._known.get(id(edited.graph))
        return _plain(known or self._remember(edited.graph, self._carried(before, edited))).prices

    def repriced(
        self, edited: Edited, users: Sequence[Sequence[int]], new_of: Callable[[int], int]
    ) -> tuple[int, ...]:
        """Nodes of an edited graph whose prices may be others than before, ascending.

        They are those that are touched; where costs are measured, those that use what they make as well.

        Args:
            edited: the change.
            users: by value of the graph before, the nodes that name it as an input.
            new_of: what a node of the graph before is called now; -1 where it is gone.
        """
        if not self.cost.is_measured:
            return edited.touched
        made = {
            edited.value_of[value] for node in edited.touched for value in edited.graph.nodes[node].outputs
        }
        found = {new_of(user) for value in made - {-1} for user in users[value]}
        return tuple(sorted(found.union(edited.touched) - {-1}))

    def node_price(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> NodePrice:
        """Time and workspace of one node of a graph; `bodies` as for `prices`.

        Raises:
            SymbolicError: a dim has no value.
        """
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

    def _true_sizes(self, graph: Graph, nodes: Iterable[Node] | None = None) -> dict[int, int]:
        """Sizes of storages that are not what the graph says in some run; of all runs the most."""
        seen = [(run.binding, run.cost.storage_bytes(graph, nodes)) for run in self._runs]
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
            priced.by_orders[orders] = _Scheduled(self._in_orders(graph, _plain(priced).prices, bodies))
        return priced.by_orders[orders]

    def _in_orders(self, graph: Graph, plain: Prices, bodies: Bodies) -> Prices:
        seconds, workspace = list(plain.seconds), dict(plain.workspace)
        for number in plain.loops.intersection(bodies):
            node = graph.nodes[number]
            seconds[number] = self._seconds(graph, node, bodies)
            workspace[number] = self._loop_bytes(graph, node, plain.in_bodies.within(number), bodies)
        return replace(plain, seconds=tuple(seconds), workspace=workspace)

    def _priced(self, graph: Graph) -> _Priced:
        known = self._known.get(id(graph))
        return known or self._remember(graph, self._asked(graph, graph.nodes))

    def _asked(self, graph: Graph, nodes: Sequence[Node]) -> Prices:
        """Prices of some nodes of a graph, asked for; the seconds of all others are zero."""
        seconds = [0.0] * len(graph.nodes)
        workspace: dict[int, int] = {}
        in_bodies = NOTHING_IN_BODIES
        for node in nodes:
            if node.regions:
                seconds[node.id] = self._seconds(graph, node)
                known = self._inside(graph, node).known(node.regions[0].body)
                in_bodies = in_bodies.most(known.around(node.id))
                needed = self._loop_bytes(graph, node, known, NO_BODIES)
            else:
                price = self.node_price(graph, node)
                seconds[node.id], needed = price.seconds, price.workspace
            if needed:
                workspace[node.id] = needed
        loops = frozenset(node.id for node in nodes if node.regions)
        sizes = self._true_sizes(graph, None if nodes is graph.nodes else nodes)
        return Prices(tuple(seconds), workspace, sizes, in_bodies, loops)

    def _remember(self, graph: Graph, prices: Prices) -> _Priced:
        while len(self._known) >= _GRAPHS_REMEMBERED:
            del self._known[next(iter(self._known))]
        # The graph is kept with its prices: else another one could get its id.
        known = self._known[id(graph)] = _Priced(graph, {(): _Scheduled(prices)})
        return known

    def _carried(self, before: Graph, edited: Edited) -> Prices:
        """Prices of an edited graph: those of what is touched are asked for, all others are taken over."""
        old, graph = self.prices(before), edited.graph
        new_of = {node: new for new, node in enumerate(edited.node_of) if node >= 0}
        touched = self.repriced(edited, before.consumers(), lambda node: new_of.get(node, -1))
        asked = self._asked(graph, [graph.nodes[number] for number in touched])
        again = frozenset(touched)
        kept = {node: new for node, new in new_of.items() if new not in again}
        seconds = list(asked.seconds)
        for node, new in kept.items():
            seconds[new] = old.seconds[node]
        made = {storage for number in touched for storage in graph.created_storages(graph.nodes[number])}
        sizes = {
            new: old.storage_bytes[storage]
            for new, storage in enumerate(edited.storage_of)
            if storage in old.storage_bytes and new not in made
        }
        return Prices(
            tuple(seconds),
            {**asked.workspace, **{kept[n]: nbytes for n, nbytes in old.workspace.items() if n in kept}},
            {**sizes, **asked.storage_bytes},
            asked.in_bodies.most(old.in_bodies.renumbered(kept)),
            asked.loops.union(kept[node] for node in old.loops if node in kept),
        )


def _plain(priced: _Priced) -> _Scheduled:
    """With all bodies in program order."""
    return priced.by_orders[()]
