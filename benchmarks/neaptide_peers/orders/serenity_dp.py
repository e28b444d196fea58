"""Serenity's dynamic program over downsets (Ahn et al., MLSys 2020), plainly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.result import FoundOrder
from neaptide.schedule.order.search.lattice import Lattice, Ready
from neaptide.schedule.order.steps import to_steps

_MOST_STATES: Final = 300_000  # beside other methods


def find_order(
    problem: OrderProblem,
    order: Sequence[int],  # noqa: ARG001 - of the other ways to find an order
    *,
    guard: LimitGuard,
    lower_bytes: int = 0,  # noqa: ARG001
) -> FoundOrder:
    """An order with the lowest peak; none when a limit was hit. Needs no order to start from.

    Args:
        problem: storages and ops.
        order: not looked at.
        guard: one unit of work per downset.
        lower_bytes: not looked at.
    """
    return FoundOrder(downset_dp(problem, guard, most_states=_MOST_STATES))


def downset_dp(
    problem: OrderProblem,
    guard: LimitGuard,
    *,
    upper_bytes: int | None = None,
    most_states: int | None = None,
) -> tuple[int, ...] | None:
    """Serenity's dynamic program: for each downset, layer by layer, the schedule with the lowest peak.

    Args:
        problem: storages and ops.
        guard: one unit of work per downset.
        upper_bytes: downsets whose peak reaches this are dropped.
        most_states: downsets to look at.

    Returns:
        An order with the lowest peak; None when a limit was hit or every order reaches `upper_bytes`.
    """
    lattice = Lattice(to_steps(problem))
    layer: dict[int, tuple[int, int, Ready]] = {
        lattice.left: (lattice.start_bytes, lattice.start_bytes, lattice.ready)
    }
    back: list[dict[int, tuple[int, int]]] = []
    states = 0
    for _ in range(problem.op_count):
        following: dict[int, tuple[int, int, Ready]] = {}
        came: dict[int, tuple[int, int]] = {}
        for left, (peak, nbytes, ready) in layer.items():
            if guard.exhausted() is not None or states == most_states:
                return None
            states += 1
            for op in ready:
                hill, after = lattice.move(left, nbytes, op)
                reached = max(peak, hill)
                then = left & ~(1 << op)
                known = following.get(then)
                if (upper_bytes is not None and reached >= upper_bytes) or (
                    known is not None and known[0] <= reached
                ):
                    continue
                now_ready = (
                    known[2]
                    if known is not None
                    else tuple(x for x in ready if x != op) + tuple(lattice.enabled(then, op))
                )
                following[then] = (reached, after, now_ready)
                came[then] = (left, op)
        layer = following
        back.append(came)
    if not layer:
        return None
    return tuple(_backwards(back))[::-1]


def _backwards(back: list[dict[int, tuple[int, int]]]) -> Iterator[int]:
    left = 0
    for came in reversed(back):
        left, op = came[left]
        yield op
