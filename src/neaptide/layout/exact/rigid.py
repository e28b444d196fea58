"""A complete search for what the valley search leaves out: fixed offsets, mixed alignments, and buffers with gaps.

A buffer is a group of rectangles at fixed distances (parts). Below, a buffer is *decided* when its offset is known;
its parts are then obstacles, which a floor takes in when it reaches them. At the section with the lowest floor, the
lowest undecided part belongs to a buffer that lies as low as the floors allow, or every buffer over the section lies
at least one level higher. In a layout in which no buffer can move down by its alignment, that level is known: the
buffer lies on the top of something. Both branches together leave no such layout out, so the search is complete.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neaptide.layout.exact.sections import part_sections
from neaptide.layout.exact.strip import Decision, Verdict
from neaptide.layout.problem import LayoutProblem, Part
from neaptide.outcome import LimitGuard

_DONE: Final = 1 << 80
"""The floor of sections where nothing is left."""
_MOST_REFUTED: Final = 500_000
_EXTRA_NODES: Final = 100  # of the first run, beyond four for each buffer
_NOISE: Final = 0.3  # keys of a run are multiplied by 1 +- this
_GROWTH: Final = 1.5  # of the node limit of a run: what is refuted in small problems is by a long run
_Decided: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Node:
    """An open node."""

    floors: tuple[int, ...]
    undecided: int
    pending: _Decided  # decided buffers that some floor has not taken in yet, with offsets, ascending
    placed: _Decided  # all decided buffers with offsets
    # What is still to be tried, last first; None is the branch in which the section rises.
    moves: list[tuple[int, int] | None]
    section: int


class RigidSearch:
    """Decides capacities of one problem.

    Attributes:
        grid: offsets of a layout in which nothing can move down, and its arena, are multiples of this.
    """

    def __init__(self, problem: LayoutProblem) -> None:
        parts = part_sections(problem)
        self._count = len(problem)
        self._sections = parts.sections.count
        self._parts: list[list[Part]] = [[] for _ in range(self._count)]
        columns = (parts.buffers, parts.sections.firsts, parts.sections.lasts, parts.lows, parts.highs)
        for buffer, first, last, low, high in zip(*(c.tolist() for c in columns), strict=True):
            self._parts[buffer].append(Part(first, last, low, high))
        self._over: list[list[tuple[int, Part]]] = [[] for _ in range(self._sections)]
        for buffer, ranges in enumerate(self._parts):
            for part in ranges:
                for section in range(part.start, part.end):
                    self._over[section].append((buffer, part))
        self._sizes = problem.sizes.tolist()
        self._fixed = [(i, b.offset) for i, b in enumerate(problem.buffers) if b.offset is not None]
        numbers = [*self._sizes, *problem.alignments.tolist(), *(offset for _, offset in self._fixed)]
        numbers += [edge for ranges in self._parts for part in ranges for edge in (part.low, part.high)]
        self.grid = math.gcd(*numbers) or 1
        self._steps = [math.lcm(alignment, self.grid) for alignment in problem.alignments.tolist()]
        self._meets = self._neighbours()
        self._identical_to = self._identical(problem)

    def _neighbours(self) -> list[list[tuple[int, Part, Part]]]:
        """By buffer, the others that it meets, with a part of its own and the other's part."""
        meets: list[dict[tuple[int, Part, Part], None]] = [{} for _ in range(self._count)]
        for over in self._over:
            for buffer, part in over:
                for other, other_part in over:
                    if other != buffer:
                        meets[buffer][other, part, other_part] = None
        return [list(found) for found in meets]

    def _identical(self, problem: LayoutProblem) -> list[int | None]:
        """By buffer, the one before it that is the same in everything; the later one is tried after it only."""
        last: dict[tuple[object, ...], int] = {}
        identical: list[int | None] = []
        for index, buffer in enumerate(problem.buffers):
            kind = (tuple(self._parts[index]), buffer.nbytes, buffer.alignment, buffer.offset)
            identical.append(last.get(kind) if buffer.offset is None else None)
            last[kind] = index
        return identical

    def decide(
        self,
        capacity_bytes: int,
        guard: LimitGuard,
        *,
        seed: int = 0,
        max_nodes: int | None = None,
    ) -> Decision:
        """Whether everything fits below a capacity; offsets are bytes. Restarts with growing node limits."""
        rng = random.Random(seed)  # noqa: S311 - a reproducible stream, no secret
        nodes = 0
        most = 4.0 * self._count + _EXTRA_NODES
        while True:
            keys = [
                (part[-1].end - part[0].start) * size
                for part, size in zip(self._parts, self._sizes, strict=True)
            ]
            noisy = [key * (1 + rng.uniform(-_NOISE, _NOISE)) if nodes else float(key) for key in keys]
            rank = sorted(range(self._count), key=lambda i: (noisy[i], i))
            limit = int(most) if max_nodes is None else min(int(most), max_nodes - nodes)
            decision = self._run(capacity_bytes, guard, rank, limit)
            nodes += decision.nodes
            done = guard.exhausted(0) is not None or (max_nodes is not None and nodes >= max_nodes)
            if decision.verdict is not Verdict.OUT_OF_BUDGET or done:
                return Decision(decision.verdict, decision.offsets, nodes)
            most *= _GROWTH

    def _run(self, capacity: int, guard: LimitGuard, rank: Sequence[int], max_nodes: int) -> Decision:
        position = {buffer: place for place, buffer in enumerate(rank)}
        undecided = (1 << self._count) - 1
        for index, offset in self._fixed:
            undecided ^= 1 << index
            if offset + self._sizes[index] > capacity:
                return Decision(Verdict.REFUTED, None, 0)
        fixed = tuple(self._fixed)
        refuted: set[tuple[tuple[int, ...], int, _Decided]] = set()
        stack: list[_Node] = []
        state: tuple[tuple[int, ...], int, _Decided, _Decided] | None = (
            (0,) * self._sections, undecided, fixed, fixed
        )  # fmt: skip
        nodes = 0
        while True:
            if state is not None:
                nodes += 1
                if nodes > max_nodes or guard.exhausted() is not None:
                    return Decision(Verdict.OUT_OF_BUDGET, None, nodes)
                node = self._open(*state, capacity, position, refuted)
                if node is not None and not node.undecided:
                    offsets = dict(node.placed)
                    found = tuple(offsets[index] for index in range(self._count))
                    return Decision(Verdict.FITS, found, nodes)
                if node is not None:
                    stack.append(node)
            if not stack:
                return Decision(Verdict.REFUTED, None, nodes)
            top = stack[-1]
            if top.moves:
                state = self._move(top, top.moves.pop(), capacity)
                continue
            stack.pop()
            state = None
            if len(refuted) < _MOST_REFUTED:
                refuted.add((top.floors, top.undecided, top.pending))

    def _open(
        self,
        floors: tuple[int, ...],
        undecided: int,
        pending: _Decided,
        placed: _Decided,
        capacity: int,
        position: dict[int, int],
        refuted: set[tuple[tuple[int, ...], int, _Decided]],
    ) -> _Node | None:
        """Lift the floors, check every section, and list the branches; None when this state cannot be completed."""
        lifted = self._lift(list(floors), undecided, pending, capacity)
        if lifted is None:
            return None
        floors = tuple(lifted)
        waiting = tuple(
            (buffer, offset)
            for buffer, offset in pending
            if any(
                floors[section] <= offset + part.low
                for part in self._parts[buffer]
                for section in range(part.start, part.end)
            )
        )
        if (floors, undecided, waiting) in refuted:
            return None
        if not undecided:
            return _Node(floors, 0, waiting, placed, [], 0)
        section = min(
            (s for s in range(self._sections) if any(undecided >> b & 1 for b, _ in self._over[s])),
            key=lambda s: floors[s],
        )
        here = [buffer for buffer, _ in self._over[section] if undecided >> buffer & 1]
        moves: list[tuple[int, int] | None] = [None]
        for buffer in sorted(here, key=position.__getitem__):
            before = self._identical_to[buffer]
            if before is None or not undecided >> before & 1:
                moves.append((buffer, self._lowest(buffer, floors)))
        return _Node(floors, undecided, waiting, placed, moves, section)

    def _lift(self, floors: list[int], undecided: int, pending: _Decided, capacity: int) -> list[int] | None:
        """Raise floors to what can come next, until nothing changes; None when a section has too much to hold."""
        obstacles: list[list[tuple[int, int]]] = [[] for _ in range(self._sections)]
        for buffer, offset in pending:
            for part in self._parts[buffer]:
                for section in range(part.start, part.end):
                    obstacles[section].append((offset + part.low, offset + part.high))
        for found in obstacles:
            found.sort()
        changed = True
        while changed:
            changed = False
            lowest = {b: self._lowest(b, floors) for b in range(self._count) if undecided >> b & 1}
            if any(offset + self._sizes[buffer] > capacity for buffer, offset in lowest.items()):
                return None
            for section, over in enumerate(self._over):
                floor = floors[section]
                if floor == _DONE:
                    continue
                free = [(lowest[b] + part.low, part.high - part.low) for b, part in over if b in lowest]
                if not free:
                    floors[section] = _DONE
                    continue
                level = max(floor, min(low for low, _ in free))
                left = sum(size for _, size in free)
                for low, high in obstacles[section]:
                    if low <= level:
                        level = max(level, high)
                    else:
                        left += high - low
                if level + left > capacity:
                    return None
                if level > floor:
                    floors[section] = level
                    changed = True
        return floors

    def _lowest(self, buffer: int, floors: Sequence[int]) -> int:
        """The lowest offset that floors allow, aligned; `_DONE` floors only lie below what is decided."""
        lowest = 0
        for part in self._parts[buffer]:
            lowest = max(lowest, max(floors[part.start : part.end]) - part.low)
        step = self._steps[buffer]
        return -(-lowest // step) * step

    def _move(
        self, node: _Node, move: tuple[int, int] | None, capacity: int
    ) -> tuple[tuple[int, ...], int, _Decided, _Decided] | None:
        """The state after a branch; None when it is not possible."""
        floors = list(node.floors)
        if move is None:
            level = self._next_level(node, capacity)
            if level is None:
                return None
            floors[node.section] = max(level, floors[node.section])
            return tuple(floors), node.undecided, node.pending, node.placed
        buffer, offset = move
        decided = dict(node.pending)
        for other, part, other_part in self._meets[buffer]:
            where = decided.get(other)
            if where is None:
                continue
            is_below = offset + part.high <= where + other_part.low
            if not is_below and where + other_part.high > offset + part.low:
                return None
        part = next(p for p in self._parts[buffer] if p.start <= node.section < p.end)
        floors[node.section] = offset + part.high
        return (
            tuple(floors),
            node.undecided ^ 1 << buffer,
            tuple(sorted((*node.pending, move))),
            (*node.placed, move),
        )

    def _next_level(self, node: _Node, capacity: int) -> int | None:
        """The lowest level of an undecided part at the section, if its buffer is not as low as the floors allow."""
        decided = dict(node.pending)
        lowest = {b: self._lowest(b, node.floors) for b in range(self._count) if node.undecided >> b & 1}
        level: int | None = None
        for buffer, part in self._over[node.section]:
            if buffer not in lowest:
                continue
            offset = self._next_offset(buffer, node.section, lowest, decided)
            if offset is not None and offset + self._sizes[buffer] <= capacity:
                level = offset + part.low if level is None else min(level, offset + part.low)
        return level

    def _next_offset(
        self, buffer: int, section: int, lowest: dict[int, int], decided: dict[int, int]
    ) -> int | None:
        """The lowest offset above the lowest one at which a buffer can lie on something."""
        here, step = lowest[buffer], self._steps[buffer]
        best: int | None = None
        is_single = len(self._parts[buffer]) == 1
        for other, part, other_part in self._meets[buffer]:
            if other in lowest:
                single = is_single and len(self._parts[other]) == 1
                if single and other_part.start <= section < other_part.end:
                    continue  # it lies above here, so it cannot lie below anywhere
                offset = max(lowest[other] + other_part.high - part.low, here + 1)
            elif other in decided:
                offset = decided[other] + other_part.high - part.low
                if offset <= here:
                    continue
            else:
                continue
            offset = -(-offset // step) * step
            if best is None or offset < best:
                best = offset
        return best
