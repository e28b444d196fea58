"""Bytes and seconds of a state, level by level; a region whose part of the state is as before is not looked at again.

By the conventions of the step: for recorded steps those of `footprint`, which plays the same on the rewritten graph. Copies to
the host and back run beside the operations; a load begins just early enough to be done when it is needed, as the paper has it
(the released code begins it when it is needed). A state whose stays do not fit on the host is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from neaptide.errors import RewriteError
from neaptide.schedule.offloaded import bytes_on_host
from neaptide_peers.magis.f_tree import FTree
from neaptide_peers.magis.f_tree_moves import Parts
from neaptide_peers.magis.flat_step import FlatStep
from neaptide_peers.magis.offloads import SimulatedOffload, offload_between, seconds_with_copies
from neaptide_peers.magis.order import level_items
from neaptide_peers.magis.state import Again, State
from neaptide_peers.magis.views_again import views_again

ROOT: Final = -1
Item = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Live:
    """A tensor that is there at the peak of its level, and idle then.

    Attributes:
        level: the region whose parts it is in; `ROOT` for the step.
        tensor: which one.
        user: the node, or the last member of the region, that uses it next; -1 where that is a recomputation.
        was_used: whether something has used it before.
        span: steps from its last use, or its making, to the next one.
    """

    level: int
    tensor: int
    user: int
    was_used: bool
    span: int


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a state takes.

    Attributes:
        peak_bytes: most bytes while one operation runs.
        seconds: of the step; of a region those of one part.
        live: at the peak.
    """

    peak_bytes: int
    seconds: float
    live: tuple[Live, ...]


@dataclass(slots=True)
class _Instance:
    tensor: int
    nbytes: int
    begin: int
    end: int
    uses: list[int] = field(default_factory=list)


class Simulator:
    """Plays states of one step.

    Args:
        flat: the step.
        tree: its regions.
    """

    def __init__(self, flat: FlatStep, tree: FTree) -> None:
        self.flat, self.tree = flat, tree
        self.nodes = frozenset(range(len(flat.made)))
        self.cut = [_tensors(flat, region.cut) for region in tree.regions]
        self.copied = [
            _tensors(flat, (v for v, along in region.seeds.items() if flat.counting.is_copied(v, along)))
            for region in tree.regions
        ]
        self._known: dict[tuple[int, Parts, frozenset[Again]], Simulated] = {}
        self._items: dict[tuple[int, tuple[int, ...]], list[Item]] = {}
        self.levels_played = 0

    def run(self, state: State) -> Simulated:
        """What a state takes. O(items of the levels that have changed).

        Raises:
            RewriteError: regions wait for one another, or the host has no room for the offloads.
        """
        return _Level(self, state, ROOT).play()

    def offloads(self, state: State) -> list[SimulatedOffload]:
        """The offloads of a state, by steps of the whole."""
        level = _Level(self, state, ROOT)
        level.play()
        return level.offloads(level.starts)

    def within(self, state: State, region: int) -> Simulated:
        """What one part of a region takes."""
        members = self.tree.regions[region].members
        around = {region, *self.tree.around(region)}
        inside = set(self.tree.inside(region))
        parts = tuple(entry for entry in state.parts if entry[0] in around or entry[0] in inside)
        again = frozenset(entry for entry in state.again if entry[0] in members)
        key = (region, parts, again)
        if key not in self._known:
            self._known[key] = _Level(self, state, region).play()
        return self._known[key]

    def items(self, level: int, inside: tuple[int, ...]) -> list[Item]:
        """Of a level, in running order."""
        if (level, inside) not in self._items:
            nodes = self.nodes if level == ROOT else self.tree.regions[level].members
            self._items[level, inside] = level_items(self.flat, self.tree, nodes, inside)
        return self._items[level, inside]


class _Level:
    """One walk through the items of a level."""

    def __init__(self, simulator: Simulator, state: State, level: int) -> None:
        self.simulator, self.state, self.level = simulator, state, level
        self.flat, self.tree = simulator.flat, simulator.tree
        chosen = dict(state.parts)
        self.chosen = chosen
        around = () if level == ROOT else (level, *self.tree.around(level))
        enclosing = [k for k in around if k in chosen]
        within = set(range(len(self.tree.regions)) if level == ROOT else self.tree.inside(level))
        outermost = [
            k
            for k in sorted(chosen)
            if k in within and not any(other in chosen and other in within for other in self.tree.around(k))
        ]
        self.inside = tuple(outermost)
        self.parts = 1
        self.divided: dict[int, int] = {}
        for k in enclosing:
            self.parts *= chosen[k]
            for tensor in simulator.cut[k]:
                self.divided[tensor] = self.divided.get(tensor, 1) * chosen[k]
        self.there: dict[int, _Instance] = {}
        self.all: list[_Instance] = []
        self.starts = [0.0]  # by step, and the end
        self.standing: list[
            int
        ] = []  # by step, its node, or the last member of its region; -1 for a recomputation

    def play(self) -> Simulated:
        self.simulator.levels_played += 1
        self._begin()
        inside: list[Simulated | None] = []
        scratch = list[int]()
        starts, counting = self.starts, self.flat.counting
        for node, region, stands_for in self._steps():
            position = len(inside)
            if region == ROOT:
                self._touch(self.flat.operands[node], position)
                for tensor in self.flat.made[node]:
                    self._make(tensor, position)
                inside.append(None)
                scratch.append(self.flat.workspace[node] // self.parts)
                starts.append(starts[-1] + counting.part_seconds(node, self.parts, self.divided))
            else:
                self._touch(self._handed(region), position)
                leaving = self._leaving(region)
                for tensor in leaving:
                    self._make(tensor, position)
                part = self.simulator.within(self.state, region)
                inside.append(part)
                scratch.append(part.peak_bytes)
                parts, cut, nbytes = self.chosen[region], self.simulator.cut[region], self.flat.nbytes
                merging = counting.merge_seconds(
                    parts,
                    [nbytes[tensor] for tensor in leaving if tensor not in cut],
                    [nbytes[tensor] for tensor in leaving if tensor in cut],
                )
                starts.append(starts[-1] + part.seconds * parts + merging)
            self.standing.append(stands_for)
        last = len(inside) - 1
        for tensor in self._kept():
            if tensor in self.there:
                self.there[tensor].end = last
        return self._counted(inside, scratch)

    def _begin(self) -> None:
        """What is there before the first step: inputs, or slices."""
        given = self.flat.inputs if self.level == ROOT else self.simulator.copied[self.level]
        for tensor in given:
            self._make(tensor, 0)

    def _kept(self) -> frozenset[int]:
        if self.level == ROOT:
            return self.flat.kept
        return frozenset(self._leaving(self.level) if self.flat.counting.holds_pieces else ())

    def _steps(self) -> Iterator[tuple[int, int, int]]:
        """Items, each with what stands for it, and recomputations directly before their users."""
        members = self.simulator.nodes if self.level == ROOT else self.tree.regions[self.level].members
        inner = {n: k for k in self.inside for n in self.tree.regions[k].members}
        again: dict[int, list[int]] = {}
        for node, user in self.state.again:
            if node in members and node not in inner:
                again.setdefault(user, []).append(node)
        items = self.simulator.items(self.level, self.inside)
        place = self._places(items, members, inner) if any(map(self._has_views, again.values())) else {}
        for position, item in enumerate(items):
            for node in sorted(again.get(item[0], ())):
                yield node, ROOT, -1
                if self.flat.views[node]:
                    for view in self._views_again(node, position, place, inner, again):
                        yield view, ROOT, -1
            yield *item, item[0]

    def _has_views(self, nodes: Iterable[int]) -> bool:
        return any(self.flat.views[node] for node in nodes)

    def _places(
        self, items: Sequence[Item], members: Collection[int], inner: Mapping[int, int]
    ) -> dict[int, int]:
        """By node of the level, regions included, the position of its item."""
        of_item = {
            (region if region != ROOT else ROOT - 1 - node): k for k, (node, region) in enumerate(items)
        }
        return {node: of_item[inner.get(node, ROOT - 1 - node)] for node in members}

    def _views_again(
        self,
        node: int,
        position: int,
        place: Mapping[int, int],
        inner: Mapping[int, int],
        again: Mapping[int, Sequence[int]],
    ) -> list[int]:
        """Views that run again after a node that runs again in front of an item."""
        later = {n for user, nodes in again.items() if place[user] >= position for n in nodes}
        return views_again(
            self.flat.views[node],
            lambda view: view not in inner and place.get(view, position) < position,
            lambda user: place.get(user, -1) >= position or user in later,
        )

    def _touch(self, tensors: tuple[int, ...], position: int) -> None:
        for tensor in tensors:
            instance = self.there.get(tensor)
            if instance is not None:
                instance.end = position
                if not instance.uses or instance.uses[-1] != position:
                    instance.uses.append(position)

    def _make(self, tensor: int, position: int) -> None:
        nbytes = self.flat.nbytes[tensor] // self.divided.get(tensor, 1)
        instance = _Instance(tensor, nbytes, position, position)
        self.there[tensor] = instance
        self.all.append(instance)

    def _handed(self, region: int) -> tuple[int, ...]:
        members = self.tree.regions[region].members
        found = dict.fromkeys(t for n in sorted(members) for t in self.flat.operands[n])
        return tuple(t for t in found if self.flat.maker[t] not in members)

    def _leaving(self, region: int) -> tuple[int, ...]:
        """Tensors that a region makes and others need."""
        members = self.tree.regions[region].members
        return tuple(
            tensor
            for node in sorted(members)
            for tensor in self.flat.made[node]
            if tensor in self.flat.kept or any(user not in members for user in self.flat.users[tensor])
        )

    def _counted(self, inside: list[Simulated | None], scratch: list[int]) -> Simulated:
        starts = self.starts
        seconds = starts[-1]
        spans = [(i.begin, i.end, i.nbytes) for i in self.all]
        if self.level == ROOT and self.state.away and self.flat.copying is not None:
            offloads = self.offloads(starts)
            self._check_room(offloads, self.flat.copying.nbytes)
            for offload in offloads:
                begin, end, nbytes = spans[offload.instance]
                spans[offload.instance] = (begin, offload.gone_after, nbytes)
                spans.append((offload.load_before, end, nbytes))
            seconds = seconds_with_copies(starts, offloads, has_one_engine=self.flat.copying.has_one_engine)
        changes = [0] * (len(inside) + 1)
        for begin, end, nbytes in spans:
            changes[begin] += nbytes
            changes[end + 1] -= nbytes
        most, at = -1, 0
        total = self.flat.persistent_bytes if self.level == ROOT else 0
        for position, needed in enumerate(scratch):
            total += changes[position]
            here = total + needed
            if here > most:
                most, at = here, position
        part = inside[at] if inside else None
        return Simulated(max(most, 0), seconds, (*self._idle(at), *(() if part is None else part.live)))

    def offloads(self, starts: list[float]) -> list[SimulatedOffload]:
        """Offloads that free bytes; of an instance one at most."""
        copying = self.flat.copying
        if copying is None:
            return []
        borders = self._border_positions(copying.borders)
        found = []
        for index, instance in enumerate(self.all):
            for before, needed in zip([instance.begin, *instance.uses], instance.uses, strict=False):
                if (instance.tensor, self.standing[needed]) not in self.state.away or needed <= before:
                    continue
                if any(before < border < needed for border in borders):
                    continue
                made = offload_between(
                    index, instance.tensor, instance.nbytes, before, needed, starts, copying.out, copying.back
                )
                if made is not None:
                    found.append(made)
                    break
        return found

    def _border_positions(self, borders: Sequence[int]) -> list[int]:
        """Where each later segment begins."""
        return [next(p for p, node in enumerate(self.standing) if node >= border) for border in borders]

    def _check_room(self, offloads: Sequence[SimulatedOffload], nbytes: int | None) -> None:
        if nbytes is None:
            return
        spans = ((offload.store_after, offload.needed, offload.nbytes) for offload in offloads)
        needed = int(bytes_on_host(spans, np.zeros(len(self.standing), dtype=np.int64)).max(initial=0))
        if needed > nbytes:
            raise RewriteError(f"the host has no room for offloads of {needed} bytes at once")

    def _idle(self, at: int) -> Iterator[Live]:
        """Tensors that are there at a step that neither makes nor uses them, and are used after it."""
        for instance in self.all:
            later = [use for use in instance.uses if use > at]
            if instance.begin < at <= instance.end and later and at not in instance.uses:
                before = [use for use in instance.uses if use < at]
                since = max([instance.begin, *before])
                user = self.standing[later[0]]
                yield Live(self.level, instance.tensor, user, bool(before), later[0] - since)


def _tensors(flat: FlatStep, values: Iterable[int]) -> tuple[int, ...]:
    """Tensors that some values lie in, each once."""
    return tuple(dict.fromkeys(t for v in values for t in (flat.tensor_of[v],) if t >= 0))
