"""Plans of the chain program with copies, carried out as sequences with stays.

The program takes copies for a fluid and charges worst cases, so it is solved for several nominal budgets, and for
several ways of cutting a step into blocks. The recomputations of an answer are a retention table; its stays are placed
as all others are, by which the budget that is meant is held by waiting. Latencies and room on the host are no part of
the program; the plan that is carried out knows both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.offload.carried import Carried
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.gaps import GapKey
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.plans import SLOTS, carry_out, chain_of, costs_of, table_of
from neaptide.planner.recompute.chain.program import ChainCosts, ChainProgram, Hold
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide_peers.strategies.pofo_program import Move, OffloadChain, OffloadProgram

_MOST_BLOCKS: Final = 8, 16, 48  # that a step is cut into, each in turn
_SHARES: Final = (1.0, 0.95, 0.9, 0.8, 0.7, 1.05, 1.1, 1.2, 1.3, 1.45, 1.6, 1.75)
"""Nominal budgets, as multiples of the one that is meant, up to the reach of the chain program."""


def chain_plans(problem: PlanningProblem, host: HostSpace, guard: LimitGuard) -> Iterator[Carried]:
    """Plans by the program; none where the step is no chain. See `OffloadProgram` for the cost of each.

    Args:
        problem: the step, its budget and the order to start from.
        host: room there, and links.
        guard: of the search; charged with blocks squared and with recomputations.
    """
    last: BlockChain | None = None
    for most in _MOST_BLOCKS:
        chain = chain_of(problem, most)
        if isinstance(chain, str):
            return
        if last is not None and chain.blocks == last.blocks:
            # The step has no more places to be cut at.
            return
        last = chain
        yield from _Answers(problem, host, chain, guard).plans()


class _Answers:
    """Answers of the program for one chain, carried out at most once each."""

    def __init__(
        self, problem: PlanningProblem, host: HostSpace, chain: BlockChain, guard: LimitGuard
    ) -> None:
        self.problem, self.host, self.chain, self.guard = problem, host, chain, guard
        self.costs = costs_of(problem, chain)
        self.again = ChainProgram(self.costs, int(SETTINGS.reach * problem.budget_bytes), SLOTS)

    def plans(self) -> Iterator[Carried]:
        """Plans for all nominal budgets; fewer where a limit is met."""
        links = offload_chain(self.problem.step, self.chain, self.costs, self.host)
        known: set[tuple[Move, ...]] = set()
        for share in _SHARES:
            if self.guard.exhausted(len(self.chain.blocks) ** 2) or self.guard.check_now():
                return
            nominal = int(min(share, SETTINGS.reach) * self.problem.budget_bytes)
            answer = OffloadProgram(links, self.again, nominal).solve()
            if answer is not None and answer.moves not in known:
                known.add(answer.moves)
                yield self._carried_out(answer.moves)

    def _carried_out(self, moves: Sequence[Move]) -> Carried:
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
        planned = carry_out(self.problem, self.chain.forward, table, self.guard, "")
        evaluator = Evaluator(self.problem.step, planned.sequence)
        chosen = self._gaps(evaluator, moves)
        carried = Carried(evaluator, self.host, self.problem.budget_bytes)
        carried.chosen = frozenset(chosen)
        return carried

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
            for gap in GapTable(evaluator, self.host).all()
            if gap.storage in storages and gap.start < turning <= gap.end
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
