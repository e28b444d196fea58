"""Judges a changed graph in the sequence of the graph before: is it legal, how high is it, how long does it take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from neaptide.analysis.loops import Bodies
from neaptide.analysis.sizes import main_device, node_device
from neaptide.ir.dependencies import ordered_effects
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.planner.prices import NodePrice
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide_peers.candidates.change import Change
from neaptide_peers.candidates.places import Places
from neaptide_peers.candidates.replay import NotLegalError, StorageReplay, plain_span
from neaptide_peers.candidates.standing import Ints, Standing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A changed graph in the sequence that stood before.

    Attributes:
        refusal: why the sequence is not legal any more; empty when it is.
        peak_with_workspace_bytes: of the sequence; 0 when it is refused.
        seconds: of all executions; 0 when it is refused.
    """

    refusal: str
    peak_with_workspace_bytes: int
    seconds: float
    _change: Change = field(repr=False, compare=False)
    _places: Places = field(repr=False, compare=False)

    def bodies(self) -> Bodies:
        """Orders of the bodies of loops that are as they were; those of others are program order."""
        return self._change.bodies()

    def sequence(self) -> tuple[int, ...]:
        """Node ids of the changed graph in running order. O(its length)."""
        return _mapped(self._change, self._places)


def check_candidate(standing: Standing, edited: Edited) -> Candidate:
    """Judge a change without compiling the changed graph.

    Nodes that are not touched keep their places and prices; touched ones are priced, and the storages that they use are
    played again. New and moved nodes get places (see `Places`). The answer is that of `Evaluator` and
    `analysis.legality.schedule.check_schedule` for `Candidate.sequence`.

    O(touched nodes and the uses of their storages) in Python, O(steps) in numpy. Links of a random stream, a process
    group or the host among the touched nodes cost O(such links), segments O(nodes), and several devices O(storages).

    Args:
        standing: the graph that `edited` was made from, in a legal sequence.
        edited: the change.
    """
    change = Change(standing, edited)
    places = Places(change)
    check = _Check(change, places)
    try:
        check.run()
    except NotLegalError as error:
        return Candidate(str(error), 0, 0.0, change, places)
    return Candidate("", check.peak(), check.seconds(), change, places)


class _Check:
    def __init__(self, change: Change, places: Places) -> None:
        self.change, self.places, self.standing = change, places, change.standing
        graph, pricing = change.graph, self.standing.pricing
        self.bodies = change.bodies()
        self.prices: dict[int, NodePrice] = {
            node: pricing.node_price(graph, graph.nodes[node], self.bodies) for node in change.touched
        }
        self.bytes_of = _created_bytes(pricing, graph, [graph.nodes[node] for node in change.touched])
        self.device = self.standing.problem.device
        self.traffic: Ints = self.standing.traffic.copy()
        self.new_traffic = {node: [0, 0, self._workspace(node)] for node in change.placed}

    def run(self) -> None:
        """Check the steps, and charge the storages anew."""
        self._check_repetitions()
        self._check_values()
        self._check_chains()
        self._check_segments()
        self._discharge()
        for storage in self.change.storages:
            if not self.change.only_hands_on(storage):
                self._charge(storage)
        self._charge_workspace()

    def peak(self) -> int:
        """Highest bytes, workspace included."""
        if not self._keeps_device():
            step = self.standing.pricing.problem(self.change.graph, self.bodies)
            return Evaluator(step, _mapped(self.change, self.places)).peak
        allocated, freed, workspace = self.traffic
        before = np.zeros(len(allocated) + 1, dtype=np.int64)  # held in front of each position
        np.cumsum(allocated - freed, out=before[1:])
        most = 0
        for gap, node in self.places.gaps:
            made, dropped, scratch = self.new_traffic[node]
            most = max(most, int(before[gap]) + made + scratch)
            before[gap:] += made - dropped
        held = before[:-1] + allocated + workspace
        return max(most, int(held.max(initial=0))) + self.standing.problem.persistent_bytes

    def seconds(self) -> float:
        """Of all executions: those before, with what is no more taken back and what is new added, rounded once."""
        parts = list(self.standing.exact_seconds)
        for old in self.change.dropped:
            parts += [-self.standing.seconds[position] for position in self.standing.runs[old]]
        for node, price in self.prices.items():
            if node in self.new_traffic:
                parts.append(price.seconds)
                continue
            for number, position in enumerate(self.change.runs(node)):
                parts.append(-self.standing.seconds[position])
                parts.append(price.repeat_seconds if number else price.seconds)
        return math.fsum(parts)

    # -- is it legal

    def _check_repetitions(self) -> None:
        pricing, graph = self.standing.pricing, self.change.graph
        for node in self.change.touched:
            if len(self.places.moments(node)) > 1:
                rule = pricing.repeat_rule(graph, graph.nodes[node])
                if not rule.is_allowed:
                    raise NotLegalError(f"node {node} must not be repeated: it {rule.refusal}")

    def _check_values(self) -> None:
        """Numbers of the host, which have no storage to play, exist when they are needed."""
        change, first = self.change, self.places.first
        for node in change.touched:
            for value in change.operands[node]:
                producer = change.graph.producer(value)
                if producer is not None and first(producer) > first(node):
                    raise NotLegalError(f"node {node} would run before what it needs is made")
            for value in change.graph.nodes[node].outputs:
                if any(first(user) < first(node) for user in change.users(value)):
                    raise NotLegalError(f"node {node} would run after a node that needs it")

    def _check_chains(self) -> None:
        """Links of a random stream, a process group or the host run in program order."""
        change = self.change
        links = {
            chain: [node] for node in change.touched for chain in ordered_effects(change.graph.nodes[node])
        }
        for chain in links:
            kept = (change.new_node(old) for old in self.standing.chains.get(chain, ()))
            own = [n for n in change.touched if chain in ordered_effects(change.graph.nodes[n])]
            nodes = sorted({*own, *(n for n in kept if n >= 0 and not change.is_touched(n))})
            firsts = [self.places.first(node) for node in nodes]
            if firsts != sorted(firsts):
                raise NotLegalError(f"the order of {chain} would be another")

    def _check_segments(self) -> None:
        """Nothing of a segment runs before all of the segment before it has."""
        ended = -1
        for segment in self.change.graph.segments:
            firsts = [self.places.first(node) for node in range(segment.start, segment.end)]
            if firsts and min(firsts) < ended:
                raise NotLegalError(f"the segment {segment.name} would begin before the one before it ends")
            ended = max(firsts, default=ended)

    # -- what it holds

    def _discharge(self) -> None:
        """Take the bytes of all storages that are played again, and the steps that are no more, out of the traffic."""
        standing, problem = self.standing, self.standing.problem
        places = standing.evaluator.places
        for old in self.change.old_storages:
            size = problem.storage_bytes[old]
            for start, end in standing.evaluator.spans[old]:
                self.traffic[0, places[start]] -= size
                if end >= 0:
                    self.traffic[1, places[end]] -= size
        for old in self.change.dropped:
            self.traffic[2, list(standing.runs[old])] = 0

    def _charge(self, storage: int) -> None:
        """Charge the instances of a storage, which is played for that where it is more than made once and read."""
        size, plain = self._size(storage), plain_span(self.change, self.places, storage)
        if plain is not None:
            spans = [plain]
        else:
            instances = StorageReplay(self.change, self.places, storage).instances
            spans = [(i.start, i.end) for i in instances if i.start is not None]
        for start, end in spans:
            if size:
                self._add(0, start, size)
                if end is not None:
                    self._add(1, end, size)

    def _add(self, row: int, moment: int, size: int) -> None:
        position, node = self.places.position(moment)
        if node < 0:
            self.traffic[row, position] += size
        else:
            self.new_traffic[node][row] += size

    def _charge_workspace(self) -> None:
        for node in self.change.touched:
            if node not in self.new_traffic:
                workspace = self._workspace(node)
                for position in self.change.runs(node):
                    self.traffic[2, position] = workspace

    def _workspace(self, node: int) -> int:
        graph = self.change.graph
        on_device = node_device(graph, graph.nodes[node]) == self.device
        return self.prices[node].workspace if on_device else 0

    def _size(self, storage: int) -> int:
        """Bytes of a storage that the program makes on the device."""
        if self.change.graph.storages[storage].device != self.device:
            return 0
        known = self.bytes_of.get(storage)
        old = self.change.edited.storage_of[storage]
        return known if known is not None else self.standing.problem.storage_bytes[old]

    def _keeps_device(self) -> bool:
        """Whether the device with the most bytes is still the same."""
        graph, standing = self.change.graph, self.standing
        if standing.has_one_device and all(
            graph.storages[storage].device == self.device for storage in self.bytes_of
        ):
            return True
        return main_device(graph, standing.pricing.storage_bytes(graph)) == self.device


def _mapped(change: Change, places: Places) -> tuple[int, ...]:
    """The old sequence in the names of the changed graph."""
    dropped = frozenset(change.dropped)
    found: list[int] = []
    gaps = list(reversed(places.gaps))
    for position, old in enumerate(change.standing.sequence):
        while gaps and gaps[-1][0] <= position:
            found.append(gaps.pop()[1])
        if old not in dropped:
            found.append(change.new_node(old))
    found.extend(node for _, node in reversed(gaps))
    return tuple(found)


def _created_bytes(pricing: Pricing, graph: Graph, nodes: Iterable[Node]) -> dict[int, int]:
    """Sizes of the storages that some nodes create, by storage id."""
    chosen = tuple(nodes)
    found = {
        storage: graph.storages[storage].nbytes.evaluate(pricing.binding)
        for node in chosen
        for storage in graph.created_storages(node)
    }
    return {**found, **pricing.cost.storage_bytes(graph, chosen)}
