"""Pricing: a graph as integers, from a cost model and a binding. The one place where symbolic sizes become numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.loops import Binding
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.analysis.replay import Repeat, repeat_rule
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.model import CostModel, node_seconds, node_workspace
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.plans import AssumedBytes
from neaptide.schedule.problem import StepProblem, compile_problem

_RANDOM_STATE_SECONDS: Final = (
    2e-5  # two states read and two put back, about 15 µs, and the context around them
)
# A step has a few programs; what else is priced is looked at once.
_GRAPHS_REMEMBERED: Final = 8


@dataclass(frozen=True, slots=True)
class Prices:
    """What a cost model says of a graph, as plain numbers.

    Attributes:
        seconds: by node.
        workspace: scratch bytes by node id, where there are any.
        storage_bytes: sizes by storage id that replace the recorded ones.
    """

    seconds: tuple[float, ...]
    workspace: Mapping[int, int]
    storage_bytes: Mapping[int, int]

    @property
    def assumed(self) -> AssumedBytes:
        """What a plan has to say of bytes beside the graph."""
        return AssumedBytes(tuple(sorted(self.workspace.items())), tuple(sorted(self.storage_bytes.items())))


@dataclass(frozen=True, slots=True)
class NodePrice:
    """What a cost model says of one node.

    Attributes:
        seconds: of the first execution.
        repeat_seconds: of another one.
        workspace: scratch bytes.
    """

    seconds: float
    repeat_seconds: float
    workspace: int


@dataclass(slots=True)
class _Priced:
    graph: Graph
    prices: Prices
    problem: StepProblem | None = None


class Pricing:
    """Prices graphs. Programs of one step, and variants of them, share one.

    Args:
        cost: time and workspace of nodes; a measured one is prepared for a graph before the graph is priced.
        registry: what the operations mean.
        binding: values of symbolic dims; the same as the cost model's.
        allow_nondeterministic: repetitions may give other bits.
    """

    def __init__(
        self,
        cost: CostModel,
        registry: OpRegistry,
        *,
        binding: Binding | None = None,
        allow_nondeterministic: bool = False,
    ) -> None:
        self.cost = cost
        self.registry = registry
        self.binding: Binding = dict(binding or {})
        self.allow_nondeterministic = allow_nondeterministic
        self._known: dict[int, _Priced] = {}

    def prices(self, graph: Graph) -> Prices:
        """What the cost model says of a graph. O(nodes), once.

        Raises:
            SymbolicError: a dim has no value.
        """
        return self._priced(graph).prices

    def problem(self, graph: Graph) -> StepProblem:
        """The integer problem of a graph. O(size of the graph + nodes x storages / 64), once.

        Raises:
            SymbolicError: a dim has no value.
        """
        priced = self._priced(graph)
        if priced.problem is None:
            priced.problem = compile_problem(
                graph,
                self.registry,
                binding=self.binding,
                workspace=priced.prices.workspace,
                storage_bytes=priced.prices.storage_bytes,
                seconds=priced.prices.seconds,
                allow_nondeterministic=self.allow_nondeterministic,
                random_state_seconds=_RANDOM_STATE_SECONDS,
            )
        return priced.problem

    def after(self, before: Graph, edited: Edited) -> StepProblem:
        """The integer problem of an edited graph: what `problem(edited.graph)` is, but only what is new is priced.

        Compiling it is O(size of the graph); a change is judged without that by `planner.candidates`.

        Args:
            before: the graph that was edited.
            edited: what it became.

        Raises:
            SymbolicError: a dim has no value.
        """
        self.take_over(before, edited)
        return self.problem(edited.graph)

    def take_over(self, before: Graph, edited: Edited) -> Prices:
        """What the cost model says of an edited graph, asked for what is new alone. O(size of the graph).

        Args:
            before: the graph that was edited.
            edited: what it became.
        """
        known = self._known.get(id(edited.graph))
        return (known or self._remember(edited.graph, self._carried(before, edited))).prices

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

    def node_price(self, graph: Graph, node: Node) -> NodePrice:
        """Time and workspace of one node of a graph.

        Raises:
            SymbolicError: a dim has no value.
        """
        seconds = float(self.cost.seconds(graph, node))
        again = seconds
        if node.effects.rng is not None and self.repeat_rule(graph, node).random_stream is not None:
            again += _RANDOM_STATE_SECONDS
        workspace = self.cost.workspace_bytes(graph, node)
        if node.regions and not workspace:
            workspace = loop_workspace_bytes(graph, node, self.binding)
        return NodePrice(seconds, again, workspace)

    def created_bytes(self, graph: Graph, nodes: Iterable[Node]) -> dict[int, int]:
        """Sizes of the storages that some nodes create, by storage id.

        Raises:
            SymbolicError: a dim has no value.
        """
        chosen = tuple(nodes)
        found = {
            storage: graph.storages[storage].nbytes.evaluate(self.binding)
            for node in chosen
            for storage in graph.created_storages(node)
        }
        return {**found, **self.cost.storage_bytes(graph, chosen)}

    def repeat_rule(self, graph: Graph, node: Node) -> Repeat:
        """Whether a node may run again, as problems are made."""
        return repeat_rule(graph, node, self.registry, allow_nondeterministic=self.allow_nondeterministic)

    def storage_bytes(self, graph: Graph) -> tuple[int, ...]:
        """Bytes of each storage, those of the caller and of other devices as well."""
        return evaluate_storage_bytes(graph, self.binding, self.prices(graph).storage_bytes)

    def _priced(self, graph: Graph) -> _Priced:
        known = self._known.get(id(graph))
        if known is None:
            prices = Prices(
                tuple(node_seconds(self.cost, graph)),
                node_workspace(self.cost, graph),
                dict(self.cost.storage_bytes(graph)),
            )
            known = self._remember(graph, prices)
        return known

    def _remember(self, graph: Graph, prices: Prices) -> _Priced:
        while len(self._known) >= _GRAPHS_REMEMBERED:
            del self._known[next(iter(self._known))]
        # The graph is kept with its prices: else another one could get its id.
        known = self._known[id(graph)] = _Priced(graph, prices)
        return known

    def _carried(self, before: Graph, edited: Edited) -> Prices:
        """Prices of an edited graph: those of what is touched are asked for, all others are taken over."""
        old, graph = self.prices(before), edited.graph
        new_of = {node: new for new, node in enumerate(edited.node_of)}
        touched = self.repriced(edited, before.consumers(), lambda node: new_of.get(node, -1))
        seconds = [old.seconds[node] if node >= 0 else 0.0 for node in edited.node_of]
        workspace = {
            new: old.workspace[node] for new, node in enumerate(edited.node_of) if node in old.workspace
        }
        sizes = {
            new: old.storage_bytes[storage]
            for new, storage in enumerate(edited.storage_of)
            if storage in old.storage_bytes
        }
        for number in touched:
            node = graph.nodes[number]
            seconds[number] = self.cost.seconds(graph, node)
            workspace.pop(number, None)
            if scratch := self.cost.workspace_bytes(graph, node):
                workspace[number] = scratch
            for storage in graph.created_storages(node):
                sizes.pop(storage, None)
        sizes.update(self.cost.storage_bytes(graph, [graph.nodes[number] for number in touched]))
        return Prices(tuple(seconds), workspace, sizes)
