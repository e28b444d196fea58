"""Dominant schedules from any exact solver: the solver is asked for best peaks of a few changed problems.

Jin, Purohit, Svitkina, Vee, Wang, "New tools for peak memory scheduling", arXiv 2312.13526, theorem 3.1: a schedule
that dominates all others exists for every problem and an oracle for best peaks finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.segments import Segment, canonical
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.structures.refusal import refuse_pins
from neaptide_peers.structures.stretches import restrict

Oracle = Callable[[OrderProblem], Sequence[int]]
"""Gives an order with the lowest peak there is. Without one within its limits it raises `OracleStopped`."""


class OracleStopped(Exception):  # noqa: N818 - a limit is no fault
    """The oracle met a limit before it had proved an order."""


def dominant(region: OrderProblem, oracle: Oracle) -> list[Segment]:
    """Segments of a schedule that dominates every schedule of a problem.

    A *probe* joins the problem: an op free to run anywhere that needs so much workspace, or leaves one byte behind
    or takes one away, that where a best order puts it tells the lowest downset that is wanted. First the lowest of
    all, S0. After it, again and again, the lowest downset from which less is needed than from the present one; before
    it the mirror image. About two to four calls per segment.

    Args:
        region: the problem. An `in_place` whose operand has several last readers is refused: the theory does not
            hold for it.
        oracle: an exact solver; a wrong one gives a legal schedule that need not dominate.

    Raises:
        Refusal: such an op is there.
        OracleStopped: the oracle met a limit.
    """
    refuse_pins(region, to_steps(region))
    return _Construction(region, oracle).segments()


class _Construction:
    def __init__(self, region: OrderProblem, oracle: Oracle) -> None:
        self._region = region
        self._oracle = oracle
        self._steps = to_steps(region)
        self._all = frozenset(range(region.op_count))

    def segments(self) -> list[Segment]:
        bottom = self._lowest()
        down: list[Segment] = []
        here = bottom
        while here:
            segment, here = self._before(here)
            down.append(segment)
        up: list[Segment] = []
        here = bottom
        while here != self._all:
            segment, here = self._behind(here)
            up.append(segment)
        return canonical([*reversed(down), *up])

    def _lowest(self) -> frozenset[int]:
        """The lowest downset of all: where an op with a vast workspace does least harm."""
        if not self._all:
            return self._all
        order = list(self._all)
        vast = 1 + evaluate_order(self._region, sorted(order)).peak_bytes
        order, position, _ = self._ask(frozenset(), self._all, vast, _Probe.NEUTRAL)
        return frozenset(order[:position])

    def _behind(self, here: frozenset[int]) -> tuple[Segment, frozenset[int]]:
        """Go to the lowest downset from which the rest needs less than it needs from here."""
        path, peak = self._best(here, self._all)
        level, lowest = self._level(here), self._level(self._all)
        while True:
            order, position, reached = self._ask(here, self._all, peak - lowest, _Probe.LEAVES)
            if reached > peak:
                break
            path = order[:position]
            lowest = self._level(here.union(path))
        return Segment(peak - level, lowest - level, tuple(path)), here.union(path)

    def _before(self, here: frozenset[int]) -> tuple[Segment, frozenset[int]]:
        """Come from the lowest downset up to which less is needed than up to here."""
        path, peak = self._best(frozenset(), here)
        level, lowest = self._level(here), self._level(frozenset())
        while True:
            order, position, reached = self._ask(frozenset(), here, peak - lowest, _Probe.TAKES)
            if reached > peak:
                break
            path = order[position:]
            lowest = self._level(here.difference(path))
        return Segment(peak - lowest, level - lowest, tuple(path)), here.difference(path)

    def _level(self, downset: frozenset[int]) -> int:
        return self._steps.bytes_after(downset)

    def _best(self, ran: frozenset[int], until: frozenset[int]) -> tuple[list[int], int]:
        part, ops = restrict(self._region, ran, until)
        order = self._oracle(part)
        return [ops[op] for op in order], evaluate_order(part, order).peak_bytes

    def _ask(
        self, ran: frozenset[int], until: frozenset[int], workspace: int, probe: _Probe
    ) -> tuple[list[int], int, int]:
        """A best order with a probe in it: the order without the probe, its position, and the peak with it."""
        part, ops = restrict(self._region, ran, until)
        number = len(part.storages)
        storages = part.storages
        if probe is not _Probe.NEUTRAL:
            storages += (OrderStorage("probe", 1, output=probe is _Probe.LEAVES),)
        reads = (number,) if probe is _Probe.TAKES else ()
        writes = (number,) if probe is _Probe.LEAVES else ()
        # The byte is there while the probe runs, on top of its workspace: it must fit below a level one byte lower.
        changed = OrderProblem(storages, (*part.ops, OrderOp("probe", reads, writes, workspace)), part.name)
        order = list(self._oracle(changed))
        reached = evaluate_order(changed, order).peak_bytes
        position = order.index(len(ops))
        return [ops[op] for op in order if op != len(ops)], position, reached


class _Probe(Enum):
    """What the added op does to one byte: nothing, leaves it behind, or takes it away."""

    NEUTRAL = 0
    LEAVES = 1
    TAKES = 2
