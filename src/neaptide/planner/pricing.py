"""Pricing: a graph as integers, from a cost model and a binding. The one place where symbolic sizes become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.loops import Binding
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.model import CostModel, node_seconds, node_workspace
from neaptide.ir.graph import Graph
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

    def storage_bytes(self, graph: Graph) -> tuple[int, ...]:
        """Bytes of each storage, those of the caller and of other devices as well."""
        return evaluate_storage_bytes(graph, self.binding, self.prices(graph).storage_bytes)

    def _priced(self, graph: Graph) -> _Priced:
        known = self._known.get(id(graph))
        if known is None:
            while len(self._known) >= _GRAPHS_REMEMBERED:
                del self._known[next(iter(self._known))]
            prices = Prices(
                tuple(node_seconds(self.cost, graph)),
                node_workspace(self.cost, graph),
                dict(self.cost.storage_bytes(graph)),
            )
            # The graph is kept with its prices: else another one could get its id.
            known = self._known[id(graph)] = _Priced(graph, prices)
        return known
