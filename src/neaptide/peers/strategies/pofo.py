"""Recomputation and stays on the host by one program on a chain (Beaumont et al. 2021, POFO), carried out exactly.

The program takes copies for a fluid and charges worst cases, so it is solved for several nominal budgets. Each answer is
carried out: the recomputations as a retention table, the stays by the placement that all plans have, which holds the
budget that is meant by waiting. The fastest that fits counts. Latencies and room on the host are no part of the
program; the plan that is carried out knows both.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.peers.strategies import rotor
from neaptide.peers.strategies.pofo_program import Move, OffloadChain, OffloadProgram
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.offload.carried import Carried, OffloadPlan
from neaptide.planner.offload.gaps import GapKey
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.nominal import REACH, SLOTS
from neaptide.planner.recompute.chain.plans import table_of
from neaptide.planner.recompute.chain.program import ChainCosts, ChainProgram, Hold
from neaptide.planner.recompute.chain.search import chain_of, costs_of
from neaptide.planner.recompute.retention import carry_out
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem

NAME: Final = "pofo"
_MOST_BLOCKS: Final = (8, 16, 48)
# Nominal budgets, as multiples of the one that is meant, up to the reach of the chain program.
_SHARES: Final = (1.0, 0.95, 0.9, 0.8, 0.7, 1.05, 1.1, 1.2, 1.3, 1.45, 1.6, REACH)


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The plan where nothing can be copied: that of rotor, of which the program is an extension."""
    outcome = rotor.solve(problem, limits, interrupt)
    return replace(outcome, value=replace(outcome.require(), strategy=NAME))


def choose_stays(
    step: StepProblem,
    budget_bytes: int,
    host: HostSpace,
    known: Sequence[PlannedSequence],
    limits: Limits,
    interrupt: threading.Event | None = None,
) -> Outcome[OffloadPlan]:
    """The fastest plan of the program that fits, over three ways of cutting; never worse than those that are known.

    See `OffloadProgram` for the cost of one nominal budget.

    Args:
        step: the program.
        budget_bytes: highest bytes on the device, workspace included.
        host: room there, and links.
        known: plans by recomputation alone with one order of first executions, at least one.
        limits: of the search; work is counted in blocks squared and in recomputations.
        interrupt: set it to stop.
    """
    guard = LimitGuard(limits, interrupt)
    best = min((OffloadPlan(plan) for plan in known), key=lambda plan: plan.rank(budget_bytes))
    problem = PlanningProblem(step, budget_bytes, start=tuple(dict.fromkeys(known[0].sequence)))
    detail = ""
    for most in _MOST_BLOCKS:
        chain = chain_of(problem, most)
        if isinstance(chain, str):
            detail = chain
            break
        for found in _Answers(problem, host, chain, guard).plans():
            if found.host_bytes <= host.nbytes and found.rank(budget_bytes) < best.rank(budget_bytes):
                best, detail = found, f"{len(chain.blocks)} blocks, {chain.distinct} of them distinct"
    return guard.finish(best, best=best.planned.seconds, detail=detail)


class _Answers:
    """Answers of the program for one chain, carried out at most once each."""

    def __init__(
        self, problem: PlanningProblem, host: HostSpace, chain: BlockChain, guard: LimitGuard
    ) -> None:
        self.problem, self.host, self.chain, self.guard = problem, host, chain, guard
        self.costs = costs_of(problem, chain)
        self.again = ChainProgram(self.costs, int(REACH * problem.budget_bytes), SLOTS)

    def plans(self) -> list[OffloadPlan]:
        """Plans for all nominal budgets; fewer where a limit is met."""
        links = offload_chain(self.problem.step, self.chain, self.costs, self.host)
        found: dict[tuple[Move, ...], OffloadPlan] = {}
        for share in _SHARES:
            if self.guard.exhausted(len(self.chain.blocks) ** 2) or self.guard.check_now():
                break
            nominal = int(share * self.problem.budget_bytes)
            answer = OffloadProgram(links, self.again, nominal).solve()
            if answer is not None and answer.moves not in found:
                found[answer.moves] = self._carried_out(answer.moves)
        return list(found.values())

    def _carried_out(self, moves: Sequence[Move]) -> OffloadPlan:
        """A sequence with stays."""
        last = len(self.chain.blocks) - 1
        holds: list[Hold] = []
        for move in moves:
            if move.option is None:
                holds += self.again.plan_again(move.first, move.end - 1, move.room)
            else:
                holds.append(Hold(move.first, move.option, last, move.first))
            if move.end <= last:
                holds.append(Hold(move.end, None, last, move.end))
        table = table_of(self.chain, self.costs, holds)
        planned = carry_out(self.problem, self.chain.forward, table, self.guard, NAME)
        evaluator = Evaluator(self.problem.step, planned.sequence)
        chosen = self._gaps(evaluator, moves)
        return Carried(evaluator, self.host, self.problem.budget_bytes, chosen).plan(NAME)

    def _gaps(self, evaluator: Evaluator, moves: Sequence[Move]) -> set[GapKey]:
        """The gaps around the begin of the backward, of all that is to wait on the host."""
        forward = self.chain.forward
        turning = evaluator.places[forward.order[forward.turning]]
        storages = {
            storage
            for move in moves
            if move.is_away
            for unit in self._held_by(move)
            for storage in self.problem.step.created[unit]
        }
        return {
            gap.key
            for storage in storages
            for gap in self.host.gaps_of(evaluator, storage)
            if gap.start < turning <= gap.end
        }

    def _held_by(self, move: Move) -> set[int]:
        """Units that a move holds, without those that enter it."""
        blocks = self.chain.blocks
        held = set(blocks[move.end - 1].leaving)
        if move.option is not None:
            held |= self.costs.options[move.first][move.option].kept
        return held.difference(blocks[move.first].entering)


def offload_chain(step: StepProblem, chain: BlockChain, costs: ChainCosts, host: HostSpace) -> OffloadChain:
    """A chain of blocks with the seconds of its operations and the rates of its links. O(nodes)."""
    forward = chain.forward
    starts = [forward.turning]
    for block in reversed(chain.blocks):
        starts.append(min((forward.units[u].position for u in block.units), default=starts[-1]))
    starts[-1] = 0
    bounds = [*reversed(starts)]
    seconds = [step.seconds[node] for node in forward.order]
    return OffloadChain(
        costs,
        tuple(sum(seconds[first:end]) for first, end in pairwise(bounds)),
        tuple(sum(seconds[block.first : block.end]) for block in chain.blocks),
        host.out.bandwidth_bytes_per_s,
        host.back.bandwidth_bytes_per_s,
    )
