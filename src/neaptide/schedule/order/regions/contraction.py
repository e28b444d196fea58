"""A problem as a graph of chains that shrinks: series, parallel and single-entry single-exit regions become chains.

Every contraction replaces a set of ops that the rest of the problem sees as one (each outside op comes before all of
them, after all of them, or is free of them) and that no coupling ties to the outside. A dominant schedule of such a
set may stand in for it in every order (linearisation, Jin et al., arXiv 2312.13526), so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from neaptide.analysis.dominators import entry_exit_pairs
from neaptide.outcome import LimitGuard
from neaptide.schedule.order.regions.dominant import dominant_segments
from neaptide.schedule.order.regions.parts import PartKind, SolvedPart, degree_of, kind_of
from neaptide.schedule.order.regions.segments import Rope, Segment, canonical, flatten, merge_independent
from neaptide.schedule.order.sharing import shared_bytes
from neaptide.schedule.order.steps import Coupling, MaybeTaken, Steps

_REGION_CHAINS = 400
"""Largest region, in chains, that is handed to the lattice: wider ones hold far too many downsets."""

_VISITS_PER_CHAIN = 60
"""Effort of one round of looking for regions, on average over the chains."""


class _Item(NamedTuple):
    """One step of a chain: what it does, couplings left out, and the couplings that it may be the last of."""

    segment: Segment
    couplings: tuple[int, ...] = ()


@dataclass(slots=True)
class ContractionStats:
    """What was contracted.

    Attributes:
        cached: regions equal to one solved before.
        states: downsets looked at.
        skipped: regions above the limit of downsets, which stay.
        parts: in the order in which they were solved.
    """

    cached: int = 0
    states: int = 0
    skipped: int = 0
    parts: list[SolvedPart] = field(default_factory=list)


class ChainGraph:
    """Chains with dependencies between them, transitively reduced where the steps were."""

    def __init__(
        self,
        steps: Steps,
        *,
        state_limit: int,
        guard: LimitGuard,
        sizes: Sequence[int] = (),
    ) -> None:
        count = steps.op_count
        self._sizes = list(sizes) or [1] * count  # by chain, ops in it, for the stats
        self._steps = steps
        self.predecessors = [set(before) for before in steps.predecessors]
        self.successors = [set(after) for after in steps.successors]
        mine: list[tuple[int, ...]] = [()] * count
        self._members: list[set[int]] = []  # by coupling, the chains it ties
        self._nbytes: list[int] = []
        self._fixed: list[bool] = []  # pins: never dissolved
        # An op whose rise depends on the order stays as it is: it is pinned by a coupling of its own.
        pins = [Coupling(0, (op,)) for op in sorted(steps.takeovers)]
        for index, coupling in enumerate((*steps.couplings, *pins)):
            self._members.append(set(coupling.ops))
            self._nbytes.append(coupling.nbytes)
            self._fixed.append(index >= len(steps.couplings))
            for op in coupling.ops:
                mine[op] = (*mine[op], index)
        self._freed_by: dict[int, Rope] = {}  # by coupling that is none any more, where that has turned out
        self.items = [
            [_Item(Segment(rise, delta, op), mine[op])]
            for op, (rise, delta) in enumerate(zip(steps.rise, steps.delta, strict=True))
        ]
        self._ties: list[set[int]] = [set(couplings) for couplings in mine]
        self.stats = ContractionStats()
        self._state_limit = state_limit
        self._guard = guard
        self._dirty = list(range(count))
        self._groups: dict[tuple[frozenset[int], frozenset[int]], set[int]] = {}
        self._key: list[tuple[frozenset[int], frozenset[int]] | None] = [None] * count
        self._solved: dict[object, list[Segment] | None] = {}
        self._given_up: set[tuple[int, ...]] = set()
        self._roots = {op for op, before in enumerate(self.predecessors) if not before}
        self._into = list(range(count))  # by chain, the one it has become part of

    def live(self) -> list[int]:
        """Chains that are left, ascending."""
        return [chain for chain, items in enumerate(self.items) if items]

    def contract(self) -> None:
        """Contract until nothing changes or a limit is met."""
        while self._guard.check_now() is None:
            self._contract_local()
            if not self._contract_regions():
                return

    # Series and parallel.

    def _contract_local(self) -> None:
        while self._dirty:
            touched: dict[tuple[frozenset[int], frozenset[int]], None] = {}
            dirty, self._dirty = self._dirty, []
            for chain in dict.fromkeys(dirty):
                if self._guard.exhausted(0) is not None:
                    return
                if self.items[chain]:
                    head = self._join_run(chain)
                    touched[self._file(head)] = None
            for key in touched:
                group = self._groups[key]
                if self._guard.exhausted(0) is not None:
                    return
                if len(group) > 1:
                    self._join_parallel(sorted(group))

    def _join_run(self, chain: int) -> int:
        """Join the longest run of chains around one, each the only follower of the one before; returns its head."""
        head = chain
        while len(self.predecessors[head]) == 1:
            (before,) = self.predecessors[head]
            if len(self.successors[before]) != 1:
                break
            head = before
        run = [head]
        while len(self.successors[run[-1]]) == 1:
            (after,) = self.successors[run[-1]]
            if len(self.predecessors[after]) != 1:
                break
            run.append(after)
        if len(run) == 1:
            return head
        self._sizes[head] = sum(self._sizes[member] for member in run)
        tail = run[-1]
        items = [item for member in run for item in self.items[member]]
        ties = set().union(*(self._ties[member] for member in run))
        for member in run[1:]:
            self._into[member] = head
            self._unfile(member)
            self.items[member] = []
        self._unfile(head)
        self.successors[head] = self.successors[tail]
        for after in self.successors[head]:
            self.predecessors[after].discard(tail)
            self.predecessors[after].add(head)
            self._dirty.append(after)
        shared = [index for index in ties if sum(index in self._ties[member] for member in run) > 1]
        for index in ties:
            self._members[index].difference_update(run)
            self._members[index].add(head)
        self._ties[head] = ties
        self._replace(head, self._settle(head, items, shared))
        return head

    def _settle(self, chain: int, items: list[_Item], shared: Iterable[int]) -> list[_Item]:
        """Of couplings met more than once in a chain only the last step can free them; alone there, it does."""
        for index in shared:
            positions = [position for position, item in enumerate(items) if index in item.couplings]
            alone = self._members[index] == {chain} and not self._fixed[index]
            for position in positions if alone else positions[:-1]:
                segment, couplings = items[position]
                if alone and position == positions[-1]:
                    self._freed_by[index] = segment.ops
                    segment = segment._replace(delta=segment.delta - self._nbytes[index])
                items[position] = _Item(segment, tuple(other for other in couplings if other != index))
            if alone:
                self._members[index].clear()
                self._ties[chain].discard(index)
        return items

    def _replace(self, chain: int, items: list[_Item]) -> None:
        """Give a chain new steps, runs of plain ones canonical."""
        result: list[_Item] = []
        plain: list[Segment] = []
        for item in items:
            if item.couplings:
                result += [_Item(segment) for segment in canonical(plain)]
                plain = []
                result.append(item)
            else:
                plain.append(item.segment)
        result += [_Item(segment) for segment in canonical(plain)]
        self.items[chain] = result

    def _file(self, chain: int) -> tuple[frozenset[int], frozenset[int]]:
        """Put a chain among those with the same neighbours."""
        self._unfile(chain)
        key = (frozenset(self.predecessors[chain]), frozenset(self.successors[chain]))
        self._key[chain] = key
        self._groups.setdefault(key, set()).add(chain)
        return key

    def _unfile(self, chain: int) -> None:
        key = self._key[chain]
        if key is not None:
            self._groups[key].discard(chain)
            self._key[chain] = None

    def _join_parallel(self, group: Sequence[int]) -> None:
        """Merge what a group of chains with the same neighbours holds that is free of the outside."""
        plain = [chain for chain in group if not self._ties[chain]]
        tied = {chain for chain in group if self._ties[chain]}
        first, last = self.predecessors[group[0]], self.successors[group[0]]
        plain += [part[0] for part in self._closed_parts(tied, first, last) if self._solve(part)]
        if len(plain) > 1:
            plain.sort()
            ops = sum(self._sizes[chain] for chain in plain)
            self.stats.parts.append(SolvedPart(PartKind.BRANCHES, ops, len(plain), 0))
            merged = merge_independent([[item.segment for item in self.items[chain]] for chain in plain])
            self._collapse(plain, merged)

    def _closed_parts(
        self, members: set[int], first: Collection[int], last: Collection[int]
    ) -> list[list[int]]:
        """Of some chains, sets of several held together by dependencies and couplings.

        Each comes after all of `first`, before all of `last`, and touches nothing else outside.
        """
        left = set(members)
        before_all, after_all = members.union(first), members.union(last)
        parts: list[list[int]] = []
        for start in sorted(members):
            if start not in left:
                continue
            left.discard(start)
            part, stack, closed = [start], [start], True
            while stack:
                chain = stack.pop()
                before, after = self.predecessors[chain], self.successors[chain]
                near = (before | after) & members
                closed = closed and before <= before_all and after <= after_all
                closed = closed and (before == first or not before.isdisjoint(members))
                closed = closed and (after == last or not after.isdisjoint(members))
                for index in self._ties[chain]:
                    closed = closed and not self._fixed[index] and self._members[index] <= members
                    near |= self._members[index]
                near &= left
                left -= near
                part += near
                stack += near
            if closed and len(part) > 1:
                parts.append(sorted(part))
        return parts

    # Regions.

    def _contract_regions(self) -> bool:
        """Contract what lies between entry and exit of single-entry single-exit regions, inner ones first."""
        live = self.live()
        if len(live) < 2:
            return False
        source, sink = len(self.items), len(self.items) + 1
        before: list[Iterable[int]] = [*self.predecessors, (), [c for c in live if not self.successors[c]]]
        after: list[Iterable[int]] = [*self.successors, [c for c in live if not self.predecessors[c]], ()]
        for chain in live:
            if not self.predecessors[chain]:
                before[chain] = (source,)
            if not self.successors[chain]:
                after[chain] = (sink,)
        order = [source, *self.topological(), sink]
        changed = False
        visits = _VISITS_PER_CHAIN * len(live)
        for entry, leave in entry_exit_pairs(order, before, after):
            if self._guard.check_now() is not None:
                break
            start, end = (chain if chain in (source, sink) else self._now(chain) for chain in (entry, leave))
            inside = self._between(start, end, source, sink)
            visits -= _REGION_CHAINS if inside is None else len(inside)
            if inside and self._contract_inside(inside, start, end):
                changed = True
            if visits < 0:
                break
        return changed

    def _between(self, entry: int, leave: int, source: int, sink: int) -> set[int] | None:
        """Chains on paths from entry to exit; None if there are too many.

        All paths from the entry pass the exit, or the other way round: walking from that side never leaves.
        """
        if entry == leave:
            return set()
        forward = self._walk(
            self.successors[entry] if entry != source else self._roots, self.successors, leave
        )
        if leave == sink:
            return forward
        backward = self._walk(self.predecessors[leave], self.predecessors, entry)
        if forward is None or backward is None:
            return backward if forward is None else forward
        return forward & backward

    def _walk(self, start: set[int], onward: Sequence[Iterable[int]], stop: int) -> set[int] | None:
        if len(start) > _REGION_CHAINS + 1:
            return None
        found = {chain for chain in start if chain != stop}
        stack = list(found)
        while stack:
            if len(found) > _REGION_CHAINS:
                return None
            for chain in onward[stack.pop()]:
                if chain != stop and chain not in found:
                    found.add(chain)
                    stack.append(chain)
        return found

    def _now(self, chain: int) -> int:
        """The chain that one has become part of."""
        while self._into[chain] != chain:
            self._into[chain] = self._into[self._into[chain]]
            chain = self._into[chain]
        return chain

    def _contract_inside(self, members: set[int], entry: int, leave: int) -> bool:
        """Solve the connected parts of a region that touch nothing but its entry and exit."""
        count = len(self.items)  # numbers from here on are the ends of everything, which no chain is
        first = {entry} if entry < count else set()
        last = {leave} if leave < count else set()
        solved = [self._solve(part) for part in self._closed_parts(members, first, last)]
        if any(solved):
            self._contract_local()
        return any(solved)

    def _solve(self, part: list[int]) -> bool:
        """Replace chains by one chain with a dominant schedule of theirs, if their downsets are few enough."""
        given_up = tuple(part)
        if given_up in self._given_up:
            return False
        region, items = self._region(part)
        states = 0
        segments = self._solved.get(region)
        if region in self._solved:
            self.stats.cached += 1
        elif self._guard.check_now() is not None:
            return False
        else:
            work = self._guard.limits.work
            left = self._state_limit if work is None else min(self._state_limit, work - self._guard.work)
            result = dominant_segments(region, left, self._guard)
            states = result.states
            self.stats.states += result.states
            if result.segments is None and self._guard.exhausted(0) is not None:
                return False  # not for its size
            segments = self._solved[region] = result.segments
        if segments is None:
            self._given_up.add(given_up)
            self.stats.skipped += 1
            return False
        size = sum(self._sizes[chain] for chain in part)
        self.stats.parts.append(SolvedPart(kind_of(region), size, degree_of(region), states))
        whole = [
            Segment(rise, delta, _joined([items[item].segment.ops for item in flatten(ops)]))
            for rise, delta, ops in segments
        ]
        for index in set().union(*(self._ties[chain] for chain in part)):
            self._members[index].clear()
        for chain in part:
            self._ties[chain] = set()
        self._collapse(part, whole)
        return True

    def _region(self, part: list[int]) -> tuple[Steps, list[_Item]]:
        """Chains as steps of their own, numbered in the order of the chains, so that equal blocks look equal."""
        items, before, tied = self._in_a_row(part)
        couplings = tuple(
            Coupling(self._nbytes[index], tuple(positions)) for index, positions in tied.items()
        )
        rise = tuple(item.segment.rise for item in items)
        delta = tuple(item.segment.delta for item in items)
        return Steps(rise, delta, before, couplings), items

    def _in_a_row(
        self, chains: Sequence[int]
    ) -> tuple[list[_Item], tuple[tuple[int, ...], ...], dict[int, list[int]]]:
        """Items of chains one after the other, by number those before each, and by coupling those that it ties."""
        items: list[_Item] = []
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for chain in chains:
            first[chain] = len(items)
            items += self.items[chain]
            last[chain] = len(items) - 1
        before: list[tuple[int, ...]] = [(index - 1,) for index in range(len(items))]
        for chain in chains:
            before[first[chain]] = tuple(sorted(last[b] for b in self.predecessors[chain] if b in last))
        tied: dict[int, list[int]] = {}
        for position, item in enumerate(items):
            for index in item.couplings:
                tied.setdefault(index, []).append(position)
        return items, tuple(before), tied

    def _collapse(self, part: Sequence[int], segments: list[Segment]) -> None:
        """One chain instead of several that the outside sees as one."""
        members = set(part)
        outside_before = set().union(*(self.predecessors[chain] for chain in part)) - members
        outside_after = set().union(*(self.successors[chain] for chain in part)) - members
        head = part[0]
        self._sizes[head] = sum(self._sizes[chain] for chain in part)
        for chain in part:
            self._unfile(chain)
            for other in self.predecessors[chain]:
                self.successors[other].discard(chain)
            for other in self.successors[chain]:
                self.predecessors[other].discard(chain)
            self._into[chain] = head
            self.items[chain] = []
            self.predecessors[chain] = set()
            self.successors[chain] = set()
        for other in outside_before:
            for past in outside_after & self.successors[other]:
                self.successors[other].discard(past)
                self.predecessors[past].discard(other)
            self.successors[other].add(head)
        for other in outside_after:
            self.predecessors[other].add(head)
        self._roots -= members
        if not outside_before:
            self._roots.add(head)
        self.predecessors[head] = outside_before
        self.successors[head] = outside_after
        self.items[head] = [_Item(segment) for segment in segments]
        self._dirty += [head, *outside_before, *outside_after]

    def topological(self) -> list[int]:
        """Chains that are left, in an order that keeps to the list order of their first ops where it can."""
        waiting = {chain: len(self.predecessors[chain]) for chain in self.live()}
        ready = [chain for chain in reversed(list(waiting)) if not waiting[chain]]
        order: list[int] = []
        while ready:
            chain = ready.pop()
            order.append(chain)
            for after in sorted(self.successors[chain], reverse=True):
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return order

    def to_steps(self) -> tuple[Steps, list[tuple[int, ...]]]:
        """What is left as steps in a legal order, and by step the ops that it runs, in order. O(size)."""
        items, before, tied = self._in_a_row(self.topological())
        left = sorted(index for index in tied if not self._fixed[index])
        number = {index: now for now, index in enumerate(left)}
        rise = [item.segment.rise for item in items]
        takeovers = {}
        for position, item in enumerate(items):
            op = item.segment.ops
            pairs = self._steps.takeovers.get(op, ()) if isinstance(op, int) else ()
            maybe = [
                MaybeTaken(number[c] if c in item.couplings else None, pair)
                for c, pair in pairs
                if c is None or c in item.couplings or self._freed_by.get(c) == op
            ]
            if any(one.coupling is not None for one in maybe):
                takeovers[position] = tuple(maybe)
            else:
                rise[position] -= shared_bytes([one.takeover for one in maybe])
        couplings = (
            Coupling(self._nbytes[index], tuple(tied[index]), self._steps.couplings[index].storage)
            for index in left
        )
        steps = Steps(
            tuple(rise),
            tuple(item.segment.delta for item in items),
            before,
            tuple(couplings),
            takeovers,
            self._steps.start_bytes,
        )
        return steps, [flatten(item.segment.ops) for item in items]


def _joined(ropes: list[Rope]) -> Rope:
    return ropes[0] if len(ropes) == 1 else tuple(ropes)
