"""What a prediction knows of a graph and a pass: what is live where the peak is, and how much of it the pass could change.

All are shares, counts and depths, so that they mean the same for a graph of kilobytes and one of gigabytes. None names a model
or an operator: operators come in by their traits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.planner.passes.space import Facts
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.transform.rewrite import Rewrite

_Floats: TypeAlias = npt.NDArray[np.float64]

_MAKERS: Final = (
    Trait.CONVOLUTION,
    Trait.CONTRACTION,
    Trait.POOLING,
    Trait.NORMALISATION,
    Trait.REDUCTION,
    Trait.GATHER,
    Trait.COPY,
    Trait.ELEMENTWISE,
)
_NEAR: Final = 0.98  # of the peak: steps that lie there have to fall with it
_LEAST: Final = 1e-3  # share of the peak below which a rest is as good as none

OF_PLACES: Final = (
    "places",  # logarithm of how many there are
    "share_of_nodes",  # that the places are about
    "taken_before",  # how often the pass was applied on the way here
    "live_at_peak",  # share of the bytes live at the peak that those nodes read or make
    "peaks_touched",  # share of the steps near the peak at which such bytes are live
    "rest_without_results",  # logarithm of the peak, relative to now, if what those nodes make took no bytes
    "rest_without_all",  # and what they read neither
    "largest_result",  # of those nodes, relative to the peak
)
OF_GRAPH: Final = (
    "nodes",  # logarithm
    "steps",  # passes on the way here
    "steps_near_peak",  # share of all steps
    "storages_at_peak",  # logarithm of how many are live
    "largest_at_peak",  # share of the bytes live at the peak
    "inputs_at_peak",
    *(f"{trait}_at_peak" for trait in _MAKERS),
)
NAMES: Final = (*OF_PLACES, *OF_GRAPH)
"""Features of one pass on one state, in the order of `Facts`."""


@dataclass(frozen=True, slots=True)
class Lives:
    """When each storage is live in an order: it is from step `first` to step `last`, both included."""

    sizes: _Floats
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    bytes_at: _Floats  # all that is live, by step

    @staticmethod
    def of(problem: OrderProblem, order: Sequence[int]) -> Lives:
        """O(accesses)."""
        position = {op: place for place, op in enumerate(order)}
        end = max(len(order) - 1, 0)
        first, last, sizes = [], [], []
        for number, storage in enumerate(problem.storages):
            uses = [position[op] for op in problem.accessors[number]]
            is_kept = storage.resident or storage.output
            first.append(0 if problem.from_start[number] else min(uses, default=0))
            last.append(end if is_kept else max(uses, default=0))
            # What is resident is there whatever is done, and what no operation uses is never there.
            sizes.append(storage.nbytes if uses and not storage.resident else 0)
        lives = Lives(np.array(sizes, float), np.array(first, int), np.array(last, int), np.zeros(end + 1))
        lives.bytes_at[:] = lives.of_some(range(len(sizes)))
        return lives

    def of_some(self, storages: Collection[int]) -> _Floats:
        """Bytes of some storages that are live, by step."""
        some = np.fromiter(storages, int, len(storages))
        change = np.zeros(len(self.bytes_at) + 1)
        np.add.at(change, self.first[some], self.sizes[some])
        np.subtract.at(change, self.last[some] + 1, self.sizes[some])
        return np.cumsum(change[:-1])

    def at(self, step: int) -> npt.NDArray[np.int64]:
        """Storages of some bytes that are live at a step."""
        return np.flatnonzero((self.first <= step) & (step <= self.last) & (self.sizes > 0))


def facts_of(
    graph: Graph,
    registry: OpRegistry,
    problem: OrderProblem,
    lives: Lives,
    places: Mapping[str, Sequence[Rewrite]],
    taken: Sequence[str],
) -> dict[str, Facts]:
    """Features by pass that finds places in a graph. O(size of it for each pass).

    Args:
        problem: the order problem of the graph, op by node, storage by storage.
        lives: of the best order found.
        places: by pass, what its rule finds.
        taken: passes on the way to the graph.
    """
    of_graph = _of_graph(graph, registry, lives, len(taken))
    return {
        name: (*_of_places(found, graph, problem, lives, taken.count(name)), *of_graph)
        for name, found in places.items()
        if found
    }


def at_the_peak(
    places: Sequence[Rewrite], problem: OrderProblem, lives: Lives, order: Sequence[int]
) -> tuple[Rewrite, ...]:
    """Of places that are alternatives, those to be taken together: one place seldom stands at every step near the peak.

    The first is the one after which the peak could be lowest: if what its nodes read and make took no bytes, then if what they
    make did not; the first of several. Others follow while a step near the peak is left as it was. Results in place of an
    operand are counted once.
    """
    rest = np.array(evaluate_order(problem, order).bytes_at, float)
    peak = float(rest.max(initial=0.0)) or 1.0
    left, chosen = list(places), list[Rewrite]()

    def could_be(place: Rewrite) -> tuple[float, float]:
        made, touched = _touched([place], problem)
        first, second = (_rest(rest - lives.of_some(some), peak) for some in (touched, made))
        return first, second

    while left and (not chosen or rest.max(initial=0.0) >= _NEAR * peak):
        best = min(left, key=could_be)
        spared = lives.of_some(_touched([best], problem)[1])
        if chosen and not spared[int(rest.argmax())]:
            left.remove(best)
            continue
        chosen.append(best)
        left.remove(best)
        rest = rest - spared
    return tuple(chosen)


def _touched(found: Sequence[Rewrite], problem: OrderProblem) -> tuple[set[int], set[int]]:
    """Storages that the nodes of some places make, and those that they read or make."""
    nodes = {node for one in found for node in (one.within[:1] or one.nodes)}
    made = {storage for node in nodes for storage in problem.ops[node].writes}
    return made, made | {storage for node in nodes for storage in problem.ops[node].reads}


def _of_places(
    found: Sequence[Rewrite], graph: Graph, problem: OrderProblem, lives: Lives, taken: int
) -> tuple[float, ...]:
    made, touched = _touched(found, problem)
    nodes = {node for one in found for node in (one.within[:1] or one.nodes)}
    peak = float(lives.bytes_at.max(initial=0.0)) or 1.0
    near = lives.bytes_at >= _NEAR * peak
    of_made, of_touched = lives.of_some(made), lives.of_some(touched)
    return (
        log(1 + len(found)),
        len(nodes) / max(len(graph.nodes), 1),
        float(taken),
        float(of_touched[int(lives.bytes_at.argmax())]) / peak,
        float((of_touched[near] > 0).mean()),
        _rest(lives.bytes_at - of_made, peak),
        _rest(lives.bytes_at - of_touched, peak),
        max((float(lives.sizes[storage]) for storage in made), default=0.0) / peak,
    )


def _rest(bytes_at: _Floats, peak: float) -> float:
    return log(max(float(bytes_at.max(initial=0.0)) / peak, _LEAST))


def _of_graph(graph: Graph, registry: OpRegistry, lives: Lives, taken: int) -> tuple[float, ...]:
    step = int(lives.bytes_at.argmax())
    peak = float(lives.bytes_at[step]) or 1.0
    live = lives.at(step)
    by_maker = dict.fromkeys(_MAKERS, 0.0)
    makers = _makers(graph)
    of_inputs = 0.0
    for storage in live.tolist():
        share = float(lives.sizes[storage]) / peak
        if storage not in makers:
            of_inputs += share
            continue
        spec = registry.find(makers[storage])
        trait = next((t for t in _MAKERS if spec is not None and t in spec.traits), None)
        if trait is not None:
            by_maker[trait] += share
    return (
        log(1 + len(graph.nodes)),
        float(taken),
        float((lives.bytes_at >= _NEAR * peak).mean()),
        log(1 + len(live)),
        float(lives.sizes[live].max(initial=0.0)) / peak,
        of_inputs,
        *by_maker.values(),
    )


def _makers(graph: Graph) -> dict[int, str]:
    """By storage that an operation makes, the name of the operation."""
    return {storage: node.op for node in graph.nodes for storage in graph.created_storages(node)}
