"""The arena: a place for every storage with bytes of its own, in one memory or in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from neaptide.analysis.loops import body_schedule, trips
from neaptide.errors import InfeasibleBudget
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.values import DTYPE_BYTES
from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.placing import place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.lower.c.node_call import Numbers
from neaptide.lower.c.sharing import Program, Sharing
from neaptide.lower.c.views import product
from neaptide.outcome import Limits
from neaptide.units import format_bytes

_MOST_JOINS: Final = 64
"""Joined results that are tried one by one; all of them or none where there are more."""
_WORK: Final = 200_000
"""Nodes of the search for a layout: seconds."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory of the device; `name` is part of the names of its array and its section."""

    name: str
    capacity_bytes: int | None = None


ONE_MEMORY: Final = (Memory(""),)


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a loop, as it is placed in its full trips."""

    program: Program
    sharing: Sharing
    arena: Arena


@dataclass(slots=True)
class Arena:
    """Places of storages and of the bodies of loops.

    Attributes:
        offsets: by storage with bytes of its own, the index of its memory and its offset there.
        bodies: by node with a loop, its body; `body_offsets` are the places of their arenas.
        sizes: bytes of each memory that are used.
    """

    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)
    bodies: dict[int, Body] = field(default_factory=dict)
    body_offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    alignment: int = 1
    live_bytes: int = 0


def place(
    program: Program,
    memories: Sequence[Memory] = ONE_MEMORY,
    limits: Limits | None = None,
    *,
    red_zone_bytes: int = 0,
) -> tuple[Sharing, Arena]:
    """Choose what shares bytes and lay it out. Operands of joined results are made in place where that lowers the peak.

    Raises:
        InfeasibleBudget: the memories are too small.
    """
    bodies = {
        number: _body(program, program.graph.nodes[number], limits, red_zone_bytes)
        for number in program.order
        if program.graph.nodes[number].regions
    }
    best = _best_sharing(program, bodies)
    arena = _Layout(program, best, bodies, red_zone_bytes)
    return best, arena.placed(memories, limits or Limits(work=_WORK))


def _best_sharing(program: Program, bodies: Mapping[int, Body]) -> Sharing:
    """The choice of windows and parts with the fewest bytes live at once: all, none, then one join less at a time."""
    joins = [n for n in program.order if program.graph.nodes[n].op.split(".")[1:2] == ["Concat"]]
    choices = [
        Sharing(program, windows=windows, joins=chosen) for windows in (True, False) for chosen in (joins, [])
    ]
    live = [live_bytes(_Layout(program, one, bodies, 0).problem()) for one in choices]
    least, best = min(zip(live, choices, strict=True), key=lambda pair: pair[0])
    windows = choices.index(best) < len(choices) // 2
    kept = list(joins) if best in choices[0::2] else []
    for join in joins if len(joins) <= _MOST_JOINS else ():
        tried = [other for other in joins if (other in kept) != (other == join)]
        found = Sharing(program, windows=windows, joins=tried)
        now = live_bytes(_Layout(program, found, bodies, 0).problem())
        if now < least:
            least, best, kept = now, found, tried
    return best


def _body(program: Program, node: Node, limits: Limits | None, red_zone_bytes: int) -> Body:
    """The body of a loop under the sizes of its full trips, which are the largest."""
    graph = program.graph
    loop = node.regions[0]
    body = loop.body
    _, binding = next(iter(trips(graph, node, loop, program.binding)))
    sliced = {part.input for part in loop.slices}
    known: dict[int, Numbers] = {
        body.inputs[position]: program.known[value]
        for position, value in enumerate(node.inputs)
        if value in program.known and position not in sliced
    }
    order = tuple(step.target for step in body_schedule(node).node_steps())
    inside = Program(
        body, order, known, _input_storages(body), binding={**program.binding, **binding}
    )
    sharing, arena = place(inside, ONE_MEMORY, limits, red_zone_bytes=red_zone_bytes)
    return Body(inside, sharing, arena)


def _input_storages(graph: Graph) -> frozenset[int]:
    return frozenset(graph.input_storages())


class _Layout:
    """The layout problem of a way to share bytes."""

    def __init__(
        self, program: Program, sharing: Sharing, bodies: Mapping[int, Body], red_zone_bytes: int
    ) -> None:
        self.program, self.sharing, self.bodies = program, sharing, bodies
        self.red_zone_bytes = red_zone_bytes
        graph = program.graph
        self.roots = sharing.roots()
        self.nbytes: dict[int, int] = {}
        self.alignments: dict[int, int] = {}
        for root in self.roots:
            value = graph.values[sharing.values[root][0]]
            self.alignments[root] = DTYPE_BYTES[value.dtype]
            self.nbytes[root] = product(program.dims(value)) * DTYPE_BYTES[value.dtype]

    def problem(self) -> LayoutProblem:
        graph, zone = self.program.graph, self.red_zone_bytes
        buffers = [
            Buffer(
                f"{graph.storages[root].name}#{root}",
                self.sharing.start[root],
                self.sharing.end[root],
                self.nbytes[root] + zone,
                max(self.alignments[root], 8 if zone else 1),
                kind=str(graph.storages[root].kind),
            )
            for root in self.roots
            if self.nbytes[root]
        ]
        position = {number: at for at, number in enumerate(self.program.order)}
        buffers += [
            Buffer(
                f"body of node {number}",
                position[number],
                position[number] + 1,
                body.arena.sizes[0],
                body.arena.alignment,
            )
            for number, body in self.bodies.items()
            if body.arena.sizes[0]
        ]
        return LayoutProblem(tuple(buffers), graph.name)

    def placed(self, memories: Sequence[Memory], limits: Limits) -> Arena:
        problem = self.problem()
        places, sizes = _solve(problem, memories, limits)
        arena = Arena(nbytes=dict(self.nbytes), bodies=dict(self.bodies), sizes=sizes)
        arena.live_bytes = live_bytes(problem) if len(problem) else 0
        arena.alignment = max((buffer.alignment for buffer in problem.buffers), default=1)
        rest = iter(places)
        for root in self.roots:
            arena.offsets[root] = next(rest) if self.nbytes[root] else (0, 0)
        for number, body in self.bodies.items():
            arena.body_offsets[number] = next(rest) if body.arena.sizes[0] else (0, 0)
        return arena


def _solve(
    problem: LayoutProblem, memories: Sequence[Memory], limits: Limits
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Memory and offset of each buffer, and the bytes used of each memory."""
    if not len(problem):
        return [], (0,) * len(memories)
    if len(memories) == 1:
        result = best_layout(problem, limits).require()
        capacity = memories[0].capacity_bytes
        layout = result.layout
        assert layout is not None
        if capacity is not None and layout.arena_bytes > capacity:
            raise _too_small(problem, memories, layout.arena_bytes, result.lower_bound_bytes)
        return [(0, offset) for offset in layout.offsets], (layout.arena_bytes,)
    spaces = tuple(
        MemorySpace(memory.name, memory.capacity_bytes, cost, 8)
        for cost, memory in enumerate(memories, start=1)
    )
    largest = max((memory.capacity_bytes or 0 for memory in memories), default=0)
    too_large = any(buffer.nbytes > largest for buffer in problem.buffers)
    has_end = all(memory.capacity_bytes is not None for memory in memories)
    found = None if has_end and too_large else place_in_spaces(PooledProblem(problem, spaces), limits).value
    if found is None:
        least = best_layout(problem, limits).require()
        arena = least.arena_bytes
        assert arena is not None
        raise _too_small(problem, memories, arena, least.lower_bound_bytes)
    sizes = [0] * len(memories)
    for spot, buffer in zip(found.places, problem.buffers, strict=True):
        sizes[spot.space] = max(sizes[spot.space], spot.offset + buffer.nbytes)
    return [(spot.space, spot.offset) for spot in found.places], tuple(sizes)


def _too_small(problem: LayoutProblem, memories: Sequence[Memory], arena: int, bound: int) -> InfeasibleBudget:
    there = sum(memory.capacity_bytes or 0 for memory in memories)
    names = " and ".join(memory.name for memory in memories if memory.name) or "the memory"
    missing = max(arena - there, 1)
    return InfeasibleBudget(
        f"the arena does not fit: {format_bytes(missing)} ({missing} bytes) are missing",
        smallest_peak_bytes=arena,
        lower_bound_bytes=bound,
        alive=tuple(buffer.name for buffer in sorted(problem.buffers, key=lambda b: -b.nbytes)[:5]),
        why=f"{names} has {there} bytes; the smallest arena found for this order has {arena}",
        next_step="give more memory, or plan with passes that lower the peak",
    )
