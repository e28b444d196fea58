"""Which passes change a model's graph, and in which order: what a plan asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.named_peers import PASSES as PEERS
from neaptide.named_peers import peer
from neaptide.outcome import Limits, Outcome
from neaptide.planner.passes.graph_space import GraphSpace, PassState
from neaptide.planner.passes.history import PassStep, steps_to
from neaptide.planner.passes.learned import LearnedStrategy
from neaptide.planner.passes.named_order import NamedOrder
from neaptide.planner.passes.prior import built_in_prior
from neaptide.planner.passes.search import PassStrategy, search_passes
from neaptide.schedule.order.problem import OrderProblem
from neaptide.transform.passes import BY_NAME_ONLY
from neaptide.transform.rewrite import Rewrite, Rule

LEARNED: Final = "learned"
NONE: Final = "none"
MEASUREMENTS: Final = 20
"""Of one search, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class PlannedPasses:
    """A graph after the passes that were chosen.

    Attributes:
        rewrites: all that they did, to be replayed from the graph that went in.
        steps: what each did to the footprint, and what it enabled.
        baseline_peak_bytes: footprint by the best order of the graph that went in.
        peak_bytes: of the changed one.
        measurements: orders that were searched for, the first graph's included.
    """

    graph: Graph
    rewrites: tuple[Rewrite, ...]
    steps: tuple[PassStep, ...]
    baseline_peak_bytes: int
    peak_bytes: int
    measurements: int


def pass_strategy(names: Iterable[str], passes: Iterable[str], seed: int = 0) -> PassStrategy[Any]:
    """The strategy that a user asks for.

    Args:
        names: `learned`, with passes of `BY_NAME_ONLY` that it may take too; `none`; one peer of `named_peers.PASSES`; or
            passes in their order.
        passes: names of those that there are.
        seed: of peers that draw.

    Raises:
        UsageError: a name is none of these.
    """
    asked, known = tuple(names), tuple(passes)
    if asked in ((), (NONE,)):
        return NamedOrder(())
    if len(asked) == 1 and asked[0] in PEERS:
        strategy: PassStrategy[Any] = peer("passes", asked[0]).strategy(seed)
        return strategy
    if unknown := [name for name in asked if name not in {LEARNED, *known}]:
        raise UsageError(
            f"no pass is called {unknown[0]!r}",
            next_step=f"choose {LEARNED}, {NONE}, or passes from {', '.join(known)}",
        )
    if LEARNED not in asked:
        return NamedOrder(asked)
    if taken := [name for name in asked if name not in {LEARNED, *BY_NAME_ONLY}]:
        raise UsageError(
            f"{LEARNED!r} takes {taken[0]!r} by itself",
            next_step=f"name {', '.join(sorted(BY_NAME_ONLY))} beside {LEARNED!r}, or passes without it",
        )
    return LearnedStrategy(built_in_prior(), first=[name for name in asked if name != LEARNED])


def plan_passes(
    graph: Graph,
    registry: OpRegistry,
    passes: Mapping[str, Rule],
    problem_of: Callable[[Graph], OrderProblem],
    *,
    names: Iterable[str] = (LEARNED,),
    enough_bytes: int = 0,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
) -> Outcome[PlannedPasses]:
    """The passes that bring the footprint of a graph lowest, within a number of measurements.

    The graph as it is takes part in a search, so that its answer is never above it. A search leaves out the passes of
    `BY_NAME_ONLY` that are not named beside it. Passes that the user names are all applied, whatever they do to the footprint. With a limit of work alone, the
    answer is the same on every machine.

    Args:
        graph: of a model.
        registry: of its operations.
        passes: that may be applied, by name.
        problem_of: the order problem of a graph, which says what counts.
        names: what `pass_strategy` takes.
        enough_bytes: a footprint that ends the search.
        limits: a unit of work is a measurement; `MEASUREMENTS` where there is none.
        interrupt: ends the search with what it has.
    """
    asked = tuple(names)
    limits = Limits() if limits is None else limits
    if limits.work is None and LEARNED in asked:
        limits = replace(limits, work=MEASUREMENTS)
    strategy = pass_strategy(asked, passes, limits.seed)
    named = strategy if isinstance(strategy, NamedOrder) else None
    taken = {name: rule for name, rule in passes.items() if named or name not in BY_NAME_ONLY - {*asked}}
    space = GraphSpace(graph, registry, taken, problem_of)
    outcome = search_passes(
        space, strategy, limits, enough_bytes=0 if named else enough_bytes, interrupt=interrupt
    )
    archive = outcome.require()
    best = archive.entries[named.reached] if named else archive.best
    state: PassState = best.state
    found = PlannedPasses(
        state.graph,
        state.rewrites,
        steps_to(archive, best.number),
        archive.entries[0].nbytes,
        best.nbytes,
        outcome.work,
    )
    return Outcome(found, outcome.termination, outcome.seconds, outcome.work)
