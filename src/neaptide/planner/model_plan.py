"""The plan of a model that is run: passes that lower its footprint, an order, and a place for every tensor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.layout.from_order import order_buffers
from neaptide.layout.lower_arena import ArenaOrder, lower_arena
from neaptide.outcome import Limits, Outcome
from neaptide.planner.passes.graph_space import ORDER_WORK
from neaptide.planner.passes.history import PassStep
from neaptide.planner.passes.plan_passes import LEARNED, plan_passes
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.transform.rewrite import Rewrite, Rule

T = TypeVar("T")

ALIGNMENT: Final = 64
"""Of every tensor in the arena: a cache line, and enough for every vector load of a CPU."""
_SHARE: Final = 0.75
"""Of the time, for the search for passes."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What a model becomes.

    Attributes:
        graph: after the passes.
        order: of its nodes.
        rewrites: what the passes did, to be replayed from the model's own graph.
        steps: what each pass did to the footprint, and what it enabled.
        baseline_peak_bytes: footprint of the model's own graph in the order of its file.
        order_peak_bytes: of the same graph in the best order that was found.
        peak_bytes: of what is planned.
        lower_bound_bytes: no order of the planned graph's nodes has a lower footprint.
        arena: the order again, with an offset for every tensor.
        measurements: orders that the search for passes looked for.
    """

    graph: Graph
    order: tuple[int, ...]
    rewrites: tuple[Rewrite, ...]
    steps: tuple[PassStep, ...]
    baseline_peak_bytes: int
    order_peak_bytes: int
    peak_bytes: int
    lower_bound_bytes: int
    arena: ArenaOrder
    measurements: int = 0

    @property
    def arena_bytes(self) -> int:
        """Size of one block in which all tensors that count have their places."""
        return self.arena.layout.arena_bytes or 0


@dataclass(frozen=True, slots=True)
class ModelAsk:
    """What a plan of a model is asked for.

    Attributes:
        registry: of the model's operations.
        passes: that may change it, by name.
        problem_of: the ordering problem of a graph, which says what counts.
        names: `learned`, `none`, or passes in their order.
        enough: from the footprint of the file's order, one that needs no further search; 0 for the lowest that is found.
    """

    registry: OpRegistry
    passes: Mapping[str, Rule]
    problem_of: Callable[[Graph], OrderProblem]
    names: tuple[str, ...] = (LEARNED,)
    enough: Callable[[int], int] = lambda _baseline: 0


def plan_model(
    graph: Graph,
    ask: ModelAsk,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ModelPlan:
    """Order first, then passes where an order alone does not do, then an order and a layout of what they leave.

    The answer is never above the best order of the model as it is, but where the user names the passes.
    """
    left = _Clock(limits or Limits())
    problem = ask.problem_of(graph)
    baseline = evaluate_order(problem, range(problem.op_count)).peak_bytes
    enough = ask.enough(baseline)
    progress(f"ordering {problem.op_count} operations")
    first = left.spent(best_order(problem, left.orders, interrupt))
    arena = _laid_out(problem, first.order, left, interrupt)
    peak, bound = evaluate_order(problem, arena.order).peak_bytes, first.order_lower_bound_bytes
    plan = ModelPlan(graph, arena.order, (), (), baseline, peak, peak, bound, arena)
    if _is_without(ask.names) or (LEARNED in ask.names and first.peak_bytes <= enough):
        return plan
    progress("searching for passes")
    chosen = left.spent(
        plan_passes(
            graph,
            ask.registry,
            ask.passes,
            ask.problem_of,
            names=ask.names,
            enough_bytes=enough,
            limits=left.search,
            interrupt=interrupt,
        )
    )
    if not chosen.rewrites:
        return replace(plan, measurements=chosen.measurements)
    problem = ask.problem_of(chosen.graph)
    progress(f"ordering {problem.op_count} operations")
    found = left.spent(best_order(problem, left.orders, interrupt))
    if found.peak_bytes >= plan.peak_bytes and LEARNED in ask.names:
        return replace(plan, measurements=chosen.measurements)
    arena = _laid_out(problem, found.order, left, interrupt)
    return replace(
        plan,
        graph=chosen.graph,
        order=arena.order,
        rewrites=chosen.rewrites,
        steps=chosen.steps,
        peak_bytes=evaluate_order(problem, arena.order).peak_bytes,
        lower_bound_bytes=found.order_lower_bound_bytes,
        arena=arena,
        measurements=chosen.measurements,
    )


def _is_without(names: Iterable[str]) -> bool:
    return tuple(names) in {(), ("none",)}


def _laid_out(
    problem: OrderProblem, order: tuple[int, ...], left: _Clock, interrupt: threading.Event | None
) -> ArenaOrder:
    buffers = partial(order_buffers, problem, alignment=ALIGNMENT)
    return left.spent(lower_arena(order, buffers, problem.is_order, left.orders, interrupt))


class _Clock:
    """What is left of limits; a unit of work is a measurement of the search for passes."""

    def __init__(self, limits: Limits) -> None:
        self.passes = limits

    @property
    def search(self) -> Limits:
        """For the search for passes, which leaves time for an order and a layout of what it finds."""
        time_s = self.passes.time_s
        return replace(self.passes, time_s=None if time_s is None else time_s * _SHARE)

    @property
    def orders(self) -> Limits:
        """For a search for an order, or a layout."""
        work = self.passes.work
        return replace(self.passes, work=None if work is None else max(work, 1) * ORDER_WORK)

    def spent(self, outcome: Outcome[T], work: int = 0) -> T:
        """The value of a search, whose time, and so much work, is taken away."""
        self.passes = self.passes.after(outcome.seconds, work)
        return outcome.require()
