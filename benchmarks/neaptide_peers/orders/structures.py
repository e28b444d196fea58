"""Orders of problems that have one structure as a whole: trees, pumpkins, series-parallel graphs, dominant schedules.

Each method proves its order or says in one sentence why there is none: which op breaks the structure, or which limit
was met. What has such a structure inside a larger problem is found by `regions.reduce`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.schedule.order.bounds.lower import per_op_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import LARGE_REGION_STATES, best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.reduce import REGION_STATES, reduce
from neaptide.schedule.order.regions.segments import flatten
from neaptide.schedule.order.result import OrderResult
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.structures.dominant import OracleStopped, dominant
from neaptide_peers.structures.pumpkins import order_pumpkin, pumpkin_of
from neaptide_peers.structures.refusal import Refusal
from neaptide_peers.structures.series_parallel import compose
from neaptide_peers.structures.trees import tree_of

Order = tuple[int, ...]
Method = Callable[[OrderProblem, Limits, threading.Event | None], Outcome[Order]]
Solver = Callable[[OrderProblem, Limits, threading.Event | None], Outcome[OrderResult]]


def tree_order(
    problem: OrderProblem, limits: Limits | None = None, interrupt: threading.Event | None = None
) -> Outcome[Order]:
    """Liu's best order of an in-tree, or of an out-tree with a buffer per edge. O(n log^2 n), whatever the limits."""
    guard = LimitGuard(limits or Limits(), interrupt)
    try:
        tree = tree_of(problem)
    except Refusal as refusal:
        return _refused(problem, guard, refusal)
    return _proved(problem, guard, tree.order, f"a tree of degree {tree.degree}")


def series_parallel_order(
    problem: OrderProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    region_states: int = REGION_STATES,
) -> Outcome[Order]:
    """Best order of a series-parallel problem.

    Polynomial where no storage is shared by branches (Kayaaslan et al. 2018), else by exact reduction, whose downsets
    are 2^O(d log d) in the out-degree d (Jin et al., arXiv 2312.13526). A region with too many has a bound, and the
    order of the list of what is left.

    Args:
        problem: any problem.
        limits: time, and work in downsets.
        interrupt: when set, like a limit.
        region_states: most downsets of one region.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    steps = to_steps(problem)
    try:
        composed = compose(problem, steps)
    except Refusal as refusal:
        return _refused(problem, guard, refusal)
    kind = f"series-parallel of degree {composed.degree}"
    if not steps.couplings:
        order = tuple(op for segment in composed.segments for op in flatten(segment.ops))
        return _proved(problem, guard, order, f"{kind}, a buffer per edge")
    reduced = reduce(steps, guard.limits, region_states=region_states, interrupt=interrupt)
    guard.exhausted(reduced.stats.states)
    order = reduced.expand(range(reduced.steps.op_count))
    if reduced.is_solved:
        return _proved(problem, guard, order, f"{kind}, shared storages")
    why = f"regions stay: more than {region_states} downsets" if reduced.stats.skipped else "a limit was met"
    peak = evaluate_order(problem, order).peak_bytes
    return guard.finish(order, best=peak, bound=per_op_bound(problem), detail=f"{kind}; {why}")


def pumpkin_order(
    problem: OrderProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    state_limit: int = LARGE_REGION_STATES,
) -> Outcome[Order]:
    """Best order of a pumpkin: over downsets, or by phase split where that is smaller.

    Args:
        problem: any problem.
        limits: time, and work in downsets or splits.
        interrupt: when set, like a limit.
        state_limit: most downsets or splits.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    try:
        whole = pumpkin_of(problem)
    except Refusal as refusal:
        return _refused(problem, guard, refusal)
    kind = f"a pumpkin of {len(whole.pumpkin.chains)} chains"
    work = guard.limits.work
    left = state_limit if work is None else min(state_limit, work)
    before = guard.work
    found = order_pumpkin(whole.pumpkin, left, guard)
    guard.exhausted(max(0, min(found.states, left) - (guard.work - before)))
    if found.order is None:
        return guard.finish(None, bound=per_op_bound(problem), detail=f"{kind}; {found.reason}")
    return _proved(problem, guard, (*whole.before, *found.order, *whole.behind), kind)


def dominant_order(
    problem: OrderProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    solver: Solver = best_order,
) -> Outcome[Order]:
    """An order that dominates every other one: it may stand in for them whatever runs beside it.

    Args:
        problem: any problem.
        limits: time, and work in units of the solver; of all its calls together.
        interrupt: when set, like a limit.
        solver: finds the best order of a problem. What it does not prove ends the construction.
    """
    guard = LimitGuard(limits or Limits(), interrupt)

    def oracle(part: OrderProblem) -> Order:
        outcome = solver(part, guard.left(), interrupt)
        guard.exhausted(outcome.work)
        if not outcome.termination.is_proved:
            guard.check_now()
            raise OracleStopped(f"the best order of {part.op_count} ops, a part or a variant, is not proved")
        return outcome.require().order

    try:
        segments = dominant(problem, oracle)
    except Refusal as refusal:
        return _refused(problem, guard, refusal)
    except OracleStopped as stopped:
        return guard.finish(None, bound=per_op_bound(problem), detail=str(stopped))
    order = tuple(op for segment in segments for op in flatten(segment.ops))
    return _proved(
        problem, guard, order, f"a dominant schedule of {len(segments)} segment{'s' * (len(segments) != 1)}"
    )


def _proved(problem: OrderProblem, guard: LimitGuard, order: Order, detail: str) -> Outcome[Order]:
    peak = evaluate_order(problem, order).peak_bytes
    return guard.finish(order, complete=True, best=peak, detail=detail)


def _refused(problem: OrderProblem, guard: LimitGuard, refusal: Refusal) -> Outcome[Order]:
    return guard.finish(None, bound=per_op_bound(problem), detail=str(refusal))


STRUCTURES: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "tree": tree_order,
        "series_parallel": series_parallel_order,
        "pumpkin": pumpkin_order,
        "dominant": dominant_order,
    }
)
