"""Amplifiers: operations that make much more than they are given, up to those that make little of it again.

The up-projection of an MLP is one, and so is what a convolution to many channels feeds. What lies between is wide, and
both sides are narrow, so the region between frees bytes in parts wherever it lies in the step. Its backward needs what is
wide in between as well. In parts that is made again there, part by part: the region and its *backward* are two
loops, and nothing wide is ever whole. Networks repeat their blocks: regions that are alike are found as one family.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.alias import alias_operand, is_pure_view
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.values import Kind
from neaptide.transform.fission.candidates import Candidate, RegionFinder
from neaptide.transform.fission.spans import BACKWARD, FORWARD
from neaptide.transform.rewrite import Rewrite
from neaptide.transform.rules.rematerialisation import Again, rematerialisation

# What is made is wide where it takes so many times the bytes of what it is made from.
_WIDER: Final = 2
# A region of more operations is no expand-contract block: all that follows an embedding is wider than its indices.
_MOST_NODES: Final = 120


@dataclass(frozen=True, slots=True)
class ExpandContract:
    """A wide stretch of the forward, and its backward.

    Attributes:
        narrow: the value that is made wider; what is handed to `forward` and `backward` may be a view of it.
        forward: nodes from the one that makes it wider to those that make little of it, ascending.
        backward: nodes of the backward that need what is wide in between, or are as wide, ascending.
        views: of what other nodes make, that are handed to `forward` or `backward`.
        again: nodes of `forward` that make what the backward needs of it, and their users in the backward.
    """

    narrow: int
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    views: tuple[int, ...]
    again: Again | None
    nbytes: int


def expand_contract(graph: Graph, least_bytes: float) -> tuple[tuple[ExpandContract, ...], ...]:
    """Families of blocks that are alike, those of most bytes first. O(size, times blocks).

    One that ends in the results of the forward, as logits and their loss do, is none: its backward follows it at once, and
    both are one region.
    """
    search = _Search(graph)
    families: dict[object, list[ExpandContract]] = defaultdict(list)
    for made in search.all():
        families[search.kind(made)].append(made)
    found = [tuple(family) for family in families.values() if _bytes(family) > least_bytes]
    return tuple(sorted(found, key=lambda family: (-_bytes(family), family[0].narrow)))


def _bytes(family: Iterable[ExpandContract]) -> int:
    return sum(made.nbytes for made in family)


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.sizes = graph, evaluate_storage_bytes(graph)
        self.needed = [needed_inputs(graph, node) for node in graph.nodes]
        self.phase = [node.source.phase for node in graph.nodes]
        self.made = [graph.created_storages(node) for node in graph.nodes]
        self.handed = [[*dict.fromkeys(self._storages(needed))] for needed in self.needed]
        self.consumers = graph.consumers()
        self.maker: dict[int, int] = {}  # by storage, the node that creates it
        self.users: dict[int, list[int]] = defaultdict(list)  # by storage, the nodes that need it, ascending
        for node in graph.nodes:
            self.maker |= dict.fromkeys(self.made[node.id], node.id)
            for storage in self.handed[node.id]:
                self.users[storage].append(node.id)
        self.gradients = self._gradients()

    def all(self) -> Iterator[ExpandContract]:
        """Every expand-contract block, in program order; none that lies in one before it."""
        taken: set[int] = set()
        for node in self.graph.nodes:
            if node.source.phase != FORWARD or node.id in taken or node.regions:
                continue
            made = self._at(node)
            if made is not None and taken.isdisjoint(made.forward):
                taken.update(made.forward)
                yield made

    def kind(self, made: ExpandContract) -> object:
        """Equal for blocks that are alike: the same operations on values of the same shapes."""
        nodes = (self.graph.nodes[n] for n in (*made.forward, *made.backward))
        calls = tuple(
            (node.op, tuple((self.graph.values[v].dtype, self.graph.values[v].shape) for v in node.outputs))
            for node in nodes
        )
        return calls, self.graph.values[made.narrow].shape

    def _at(self, node: Node) -> ExpandContract | None:
        """The block that begins with a node."""
        narrow = max(self._varying(node.id), key=self._value_bytes, default=None)
        made = max((self.sizes[s] for s in self.made[node.id]), default=0)
        if narrow is None or made < _WIDER * self._value_bytes(narrow) or not self._value_bytes(narrow):
            return None
        least = _WIDER * self._value_bytes(narrow)
        forward = self._grown({node.id}, least, FORWARD)
        if forward is None or not self._goes_on(forward, self._value_bytes(narrow)):
            return None
        inside = {s for n in forward for s in self._created(n, least)}
        users = {n for s in inside for n in self.users[s] if self.phase[n] == BACKWARD}
        backward = self._grown(users, least, BACKWARD) if users else set()
        if backward is None:
            return None
        for region in (forward, backward):
            region.update(self._views_for(region))
        nbytes = sum(self.sizes[s] for s in inside)
        again = self._again(forward, backward, inside)
        views = self._handed_views(forward) | self._handed_views(backward | again)
        group = self._group(again, backward)
        forward |= self._views_after(forward)
        backward |= self._views_after(backward)
        producer = self.graph.producer(narrow)
        if producer is not None and producer in views:
            narrow = alias_operand(self.graph, self.graph.nodes[producer], *self._storages([narrow]))
        return ExpandContract(
            narrow, _ascending(forward), _ascending(backward), _ascending(views), group, nbytes
        )

    def _grown(self, begun: Collection[int], least: int, phase: str) -> set[int] | None:
        """Nodes of a phase that wide storages tie to some of it; None where they are many."""
        found = set(begun)
        waiting = list(begun)
        while waiting:
            number = waiting.pop()
            tied: list[int] = []
            for storage in self.handed[number]:
                if self.sizes[storage] >= least and storage in self.maker and storage not in self.gradients:
                    tied += [self.maker[storage], *self.users[storage]]
            for storage in [s for s in self._created(number, least) if s not in self.gradients]:
                tied += self.users[storage]
            for other in tied:
                if other not in found and self.phase[other] == phase and not self.graph.nodes[other].regions:
                    found.add(other)
                    waiting.append(other)
            if len(found) > _MOST_NODES:
                return None
        return found

    def _gradients(self) -> set[int]:
        """Storages that the backward makes for the updates: used by these alone, or added to others that are."""
        found: set[int] = set()
        for storage in sorted(self.maker, key=self.maker.__getitem__, reverse=True):
            if self.phase[self.maker[storage]] == BACKWARD and all(
                self.phase[user] not in (FORWARD, BACKWARD)
                or all(s in found and self.sizes[s] == self.sizes[storage] for s in self.made[user])
                for user in self.users[storage]
            ):
                found.add(storage)
        return found

    def _goes_on(self, forward: Collection[int], nbytes: int) -> bool:
        """Whether the forward makes more than so many bytes of what some nodes of it make."""
        seen = set(forward)
        waiting = list(forward)
        made = 0
        while waiting and made <= nbytes:
            for storage in self.made[waiting.pop()]:
                for other in self.users[storage]:
                    if other not in seen and self.phase[other] == FORWARD:
                        seen.add(other)
                        waiting.append(other)
                        made += sum(self.sizes[s] for s in self.made[other])
        return made > nbytes

    def _again(
        self, forward: Collection[int], backward: Collection[int], inside: Collection[int]
    ) -> set[int]:
        """Nodes of the forward that make what is wide and needed by the backward, with what they need of the forward."""
        wanted = [
            maker
            for n in backward
            for v in self.needed[n]
            if self.graph.values[v].storage in inside and (maker := self.graph.producer(v)) is not None
        ]
        found: set[int] = set()
        while wanted:
            number = wanted.pop()
            if number in forward and number not in found:
                found.add(number)
                makers = (self.graph.producer(v) for v in self.graph.nodes[number].inputs)
                wanted += [maker for maker in makers if maker is not None]
        return found

    def _handed_views(self, nodes: Collection[int]) -> set[int]:
        """Views of what other nodes make that are handed to some nodes: of these, a part may lie in several places."""
        handed = {
            maker for n in nodes for v in self._varying(n) if (maker := self.graph.producer(v)) is not None
        }
        return {n for n in handed - set(nodes) if is_pure_view(self.graph, self.graph.nodes[n])}

    def _views_for(self, nodes: Collection[int]) -> set[int]:
        """Views, of the phase of some nodes, of what others make, that nobody else uses."""
        own = {self.phase[n] for n in nodes}
        return {
            n
            for n in self._handed_views(nodes)
            if self.phase[n] in own
            and all(user in nodes for v in self.graph.nodes[n].outputs for user in self.consumers[v])
        }

    def _views_after(self, nodes: Collection[int]) -> set[int]:
        """Views of what some nodes make, of the same phase."""
        made = {s for n in nodes for s in self.made[n]}
        return {
            n
            for s in made
            for n in self.users[s]
            if n not in nodes
            and is_pure_view(self.graph, self.graph.nodes[n])
            and self.phase[n] == self.phase[self.maker[s]]
        }

    def _group(self, again: Collection[int], region: Collection[int]) -> Again | None:
        """Nodes to be made again for those of a region that use them, as far as they are in front of it."""
        users = self._users_of(again, region)
        while late := {n for n in again if users and n >= users[0]}:
            again = set(again) - late
            users = self._users_of(again, region)
        return Again(_ascending(again), users) if users else None

    def _users_of(self, again: Collection[int], region: Collection[int]) -> tuple[int, ...]:
        results = {v for n in again for v in self.graph.nodes[n].outputs}
        return _ascending(n for n in region if not results.isdisjoint(self.graph.nodes[n].inputs))

    def _varying(self, number: int) -> list[int]:
        """Operands of a node that are no state of the caller: made by other nodes, or inputs of the step."""
        found = []
        for value in self.needed[number]:
            storage = self.graph.values[value].storage
            if storage is not None and (
                storage in self.maker or self.graph.storages[storage].kind is Kind.INPUT
            ):
                found.append(value)
        return found

    def _value_bytes(self, value: int) -> int:
        return self.graph.values[value].nbytes.constant_value()

    def _storages(self, values: Iterable[int]) -> Iterator[int]:
        storages = (self.graph.values[value].storage for value in values)
        return (storage for storage in storages if storage is not None)

    def _created(self, number: int, least: int) -> list[int]:
        return [s for s in self.made[number] if self.sizes[s] >= least]


def _ascending(nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(nodes))


# Of the bytes that are wide in an expand-contract block, those that must have parts.
_MOST_OF_IT = 0.9


def backwards_recomputing(family: Sequence[ExpandContract]) -> Rewrite | None:
    """The rewrite that has each backward recompute what it needs of its block; None where they need nothing."""
    groups = [made.again for made in family if made.again is not None]
    return rematerialisation(groups) if groups else None


def amplified(
    finder: RegionFinder, edited: Edited, family: Sequence[ExpandContract], dim: int
) -> tuple[tuple[Candidate, ...] | None, ...]:
    """By block of a family, its region and that of its backward along a dim of what is made wider; None where there are none.

    `edited` is the graph in which the backwards recompute what they need. O(size of the graph, by region).
    """
    now = {old: new for new, old in enumerate(edited.node_of) if old >= 0}
    values = {old: new for new, old in enumerate(edited.value_of) if old >= 0}
    return tuple(_regions(finder, made, now, values[made.narrow], dim) for made in family)


def _regions(
    finder: RegionFinder, made: ExpandContract, now: Mapping[int, int], narrow: int, dim: int
) -> tuple[Candidate, ...] | None:
    """The region of one block and that of its backward along a dim; None where what is wide has no parts."""

    def found(nodes: Collection[int], again: Collection[int] = ()) -> Candidate | None:
        there = [*again, *(now[number] for number in nodes)]
        views = [now[number] for number in made.views]
        return finder.found("expand_contract", there, narrow, dim, views=views)

    forward = found(made.forward)
    if forward is None or forward.nbytes < _MOST_OF_IT * made.nbytes:
        return None
    if made.again is None:
        return (forward,)
    # What runs again stands right in front of its first user.
    first = now[made.again.users[0]]
    again = range(first - len(made.again.nodes), first)
    backward = found(made.backward, again)
    if backward is None or not all(
        n in backward.members or _is_whole(finder.graph, n, backward.members) for n in again
    ):
        return None
    return forward, backward


def _is_whole(graph: Graph, number: int, members: AbstractSet[int]) -> bool:
    """Whether a node is a view of what no member makes: of what is handed over whole, as keys are to scores."""
    node = graph.nodes[number]
    makers = (graph.producer(value) for value in node.inputs)
    return is_pure_view(graph, node) and members.isdisjoint(maker for maker in makers if maker is not None)
