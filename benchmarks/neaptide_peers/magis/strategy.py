"""MAGIS's search on a captured program: the strategy `magis`.

The search of `best_first` over parts and recomputations at once. A state that is taken from the queue is carried out and checked
by the evaluator and the prices of the planner, as the plans of all other strategies are. The F-tree alone first, as the preset
`ines` of the release, in half of the limits; then all moves, from the program as it is and from the best so far. Each region by
itself is looked at first: a way of moves to a region around others may lead through states that are far above the best.
Generated states keep to program order. One that is carried out is ordered anew around what its moves changed (`reordered`).

Where there is room on the host, storages outside all regions may wait there (`stays_in_program`). What the caller owns stays on
the device.

Not here: rules of algebra, and what costs nothing (`planner.variants.merges`), which MAGIS has no rules for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import RewriteError, VerifyError
from neaptide.ir.schedule import Schedule
from neaptide.outcome import LimitGuard
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.variant import Decision, Variant
from neaptide.plans import TriedVariant
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide_peers.combinations.asked import Combining
from neaptide_peers.magis.best_first import BestFirst, Wanted
from neaptide_peers.magis.captured_flat import captured_flat_step
from neaptide_peers.magis.carry_out import carry_out_moves
from neaptide_peers.magis.f_tree import FTree, f_tree
from neaptide_peers.magis.f_tree_moves import each_alone
from neaptide_peers.magis.offloads_in_program import OffloadedProgram
from neaptide_peers.magis.reordered import Reordering
from neaptide_peers.magis.reordered_schedule import reordered_schedule
from neaptide_peers.magis.simulate import Simulator
from neaptide_peers.magis.state import State

logger = logging.getLogger(__name__)

NAME: Final = "magis"
_SMALL_AXES: Final = 0.5  # as in the release
_ROUNDING: Final = 1e-9
"""Of the limit of time: a state that takes as long as it may is not to be too slow by the order in which its seconds are added."""


def solve(made: Combining) -> VariantPlan:
    """The best state that is found and checked; the program as it is where none is better.

    Args:
        made: what is asked. Work is states simulated and states checked.
    """
    guard = LimitGuard(made.limits, made.interrupt)
    carrying = Carrying.of(made)
    longest = made.goal.longest
    wanted = Wanted(most_bytes=made.goal.allowed) if longest is None else Wanted(longest * (1 + _ROUNDING))
    begins = [State().with_parts(parts) for parts in each_alone(carrying.tree)]
    for parts_only in (True, False):
        inner = LimitGuard(guard.left(2 if parts_only else 1), made.interrupt)
        search = BestFirst(carrying.simulator, wanted, inner, check=carrying.checked, by_score=True)
        for state in begins:
            search.begin_with(state)
        search.run(parts_only=parts_only)
        begins.append(search.state)
        guard.exhausted(inner.work)
        logger.info(
            "%s: %d states simulated, %d checked, %d could not be",
            "moves of the F-tree alone" if parts_only else "all moves",
            len(search.seen),
            len(carrying.known),
            search.dropped,
        )
    best = carrying.best
    if best.stored.offloads:
        plan = made.plan_with_offloads(best.variant, best.stored, best.schedule.bodies)
    else:
        plan = made.plan_of(best.variant, best.counted.sequence, best.counted.strategy, best.schedule.bodies)
    return made.answer(best.variant, plan, best.label)


@dataclass(frozen=True)
class CheckedState:
    """A state that was carried out.

    Attributes:
        label: what was done, in words.
        variant: its graph.
        schedule: of it.
        stored: its sequence and its offloads, counted.
    """

    label: str
    variant: Variant
    schedule: Schedule
    stored: OffloadPlan

    @property
    def counted(self) -> PlannedSequence:
        """Bytes and seconds."""
        return self.stored.planned


@dataclass(frozen=True)
class _Numbers:
    """What a state takes, as a search asks for it."""

    peak_bytes: int
    seconds: float


class Carrying:
    """Carries states out, and keeps the best.

    Args:
        made: what is asked.
        begun: the program without the means that would stand in the way of parts.
        tree: its F-tree.
        simulator: of it.
    """

    def __init__(self, made: Combining, begun: Variant, tree: FTree, simulator: Simulator) -> None:
        self.made, self.begun, self.tree, self.simulator = made, begun, tree, simulator
        plain = Variant.captured(made.graph)
        first = OffloadPlan(made.before)
        self.best = CheckedState("as it is", plain, Schedule.program_order(made.graph), first)
        self.known: dict[int, _Numbers | None] = {}
        self.reordering = Reordering(made.interrupt)

    @staticmethod
    def of(made: Combining) -> Carrying:
        """With the F-tree of what is live at the peak of the program as it is."""
        registry, pricing = made.quick.registry, made.quick
        begun = Choices(registry, made.objection).begun(made.graph)
        problem = pricing.problem(begun.graph)
        order = Schedule.program_order(begun.graph)
        profile = memory_profile(begun.graph, order, binding=pricing.binding, device=problem.device)
        at_peak = [live.storage for live in profile.live_at_peak]
        tree = f_tree(begun.graph, registry, at_peak, leaving_out=True, small_axes=_SMALL_AXES)
        flat = captured_flat_step(begun.graph, problem, made.costs, made.asked(begun.edited).host)
        return Carrying(made, begun, tree, Simulator(flat, tree))

    def checked(self, state: State) -> _Numbers | None:
        """What a state takes by the planner's own count; None where it cannot be."""
        if state.digest not in self.known:
            try:
                self.known[state.digest] = self._noted(self.carried_out(state))
            except (RewriteError, VerifyError) as error:
                logger.debug("%s: %s", self._label(state), error.what)
                self.known[state.digest] = None
        return self.known[state.digest]

    def carried_out(self, state: State) -> CheckedState:
        """A state as a graph with a schedule, counted.

        Raises:
            RewriteError: a region cannot run in parts, or what comes out is not wanted.
            VerifyError: the schedule is not legal.
        """
        made = self.made
        carried = carry_out_moves(self.begun.graph, made.quick.registry, self.tree, state)
        edited, label = self.begun.edited.then(carried.edited), self._label(state)
        reason = made.objection(edited)
        if reason is not None:
            raise RewriteError(reason)
        pricing = made.exact(edited.graph)
        schedule = reordered_schedule(carried, pricing, self.reordering)
        check_schedule(edited.graph, schedule, pricing.registry)
        problem = pricing.problem(edited.graph, schedule.bodies)
        evaluator = Evaluator(problem, [step.target for step in schedule.node_steps()])
        stored = OffloadPlan(PlannedSequence.of(evaluator, NAME))
        host = made.asked(edited).host if state.away else None
        if host is not None:
            stored = OffloadedProgram(self.begun.graph, carried, evaluator, host).with_offloads(
                state.away, NAME
            )
            self._check_peak(problem, stored.planned)
            schedule = schedule.with_offloads(stored.offloads)
            check_schedule(edited.graph, schedule, pricing.registry)
        rewrites = (*self.begun.rewrites, *carried.rewrites)
        variant = Variant((Decision(label),), rewrites, edited)
        return CheckedState(label, variant, schedule, stored)

    def _check_peak(self, problem: StepProblem, found: PlannedSequence) -> None:
        """Refuse what is above the budget, and above the same graph in program order."""
        most = max(self.made.goal.allowed, baseline(problem).peak_with_workspace_bytes)
        if found.peak_with_workspace_bytes > most:
            raise RewriteError("the same graph takes fewer bytes in program order")

    def _noted(self, checked: CheckedState) -> _Numbers:
        counted, goal = checked.counted, self.made.goal
        found = counted.peak_with_workspace_bytes, counted.seconds
        best = self.best.counted
        if goal.rank(*found) < goal.rank(best.peak_with_workspace_bytes, best.seconds):
            self.best = checked
            self.made.tried.append(TriedVariant(checked.label, *found))
        return _Numbers(*found)

    def _label(self, state: State) -> str:
        regions = self.tree.regions
        parts = [f"{len(regions[k].members)} operations in {n} parts" for k, n in state.parts]
        again = [f"{len(state.again)} recomputations"] if state.again else []
        away = [f"{len(state.away)} offloads"] if state.away else []
        return ", ".join((*parts, *again, *away)) or "as it is"
