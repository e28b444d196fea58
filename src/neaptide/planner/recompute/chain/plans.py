"""Plans of a chain of blocks: retention tables, carried out as sequences.

A part is a run of nodes after the forward part. A table says what is held into each part, and leaves no choice (Jain et
al. 2020, Checkmate, section 4.4): what a part reads and does not find is recomputed, with the operands that are not there
either, each just before its first use. A unit that a later part is to find, and that nothing holds by then, is recomputed
in the part before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.blocks import BlockChain, find_blocks
from neaptide.planner.recompute.chain.options import chain_costs
from neaptide.planner.recompute.chain.program import ChainCosts, ChainProgram, Hold
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.recompute.units import ForwardUnits, forward_units
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.replays import Replays

SLOTS: Final = 400
"""Of the table of a chain program, over all budgets."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackwardPart:
    """Nodes after the forward part that run one after the other, and what they are to find."""

    first: int  # position of its first node among first executions
    end: int  # one past its last
    # Creators of units that it is to find when it begins, if they are there by then or can be.
    held: frozenset[int]


def carry_out(
    problem: PlanningProblem,
    forward: ForwardUnits,
    parts: Sequence[BackwardPart],
    guard: LimitGuard,
    name: str,
) -> PlannedSequence:
    """The order of `forward` with the recomputations that a table asks for.

    Legal whatever the table says: what cannot be recomputed is held. O(recomputations x steps).
    """
    evaluator = Evaluator(problem.step, forward.order)
    replays = Replays(evaluator)
    for anchor, unit in _recomputations(forward, parts):
        if guard.exhausted():
            break
        before = forward.order[anchor]
        storages = problem.step.created[unit]
        # Operands that are gone by then are held: all that are to be recomputed come earlier in this list.
        closure = replays.closure(storages[0], before, hold_from=-1)
        if closure.nodes and not closure.refusal:
            evaluator.apply(replays.insertion(closure, before))
            evaluator.forget_undo()
    return PlannedSequence.of(evaluator, name)


def _recomputations(forward: ForwardUnits, parts: Sequence[BackwardPart]) -> Iterable[tuple[int, int]]:
    """(position that it runs in front of, unit), in running order."""
    there = set(parts[0].held) if parts else set()
    for index, part in enumerate(parts):
        reads = _first_reads(forward, part)
        if index:
            there &= part.held
        following = parts[index + 1].held if index + 1 < len(parts) else frozenset()
        needed = {unit: position for unit, position in reads.items() if unit not in there}
        # Only for later: with the last of the part, unless something here needs it anyway.
        for unit in following - there:
            needed.setdefault(unit, max(part.first, part.end - 1))
        if part.first >= len(forward.order):
            return
        anchors = forward.anchors(needed.items(), there)
        yield from sorted((anchor, unit) for unit, anchor in anchors.items())
        there |= anchors.keys()


def _first_reads(forward: ForwardUnits, part: BackwardPart) -> dict[int, int]:
    """Units that a part reads, and the position that reads each first."""
    found: dict[int, int] = {}
    for position in range(part.first, part.end):
        for unit in forward.reads[position - forward.turning]:
            found.setdefault(unit, position)
    return found


def nothing_held(
    step: StepProblem, order: tuple[int, ...], most: int, guard: LimitGuard
) -> PlannedSequence | None:
    """The plan in which each node of the backward recomputes all that it reads of the forward part, from the beginning.

    A chain runs in three blocks so, however long it is; the price is a quarter of its length. None where there would be
    more recomputations than `most`, or than the guard allows. O(recomputations + backward nodes x steps).
    """
    forward = forward_units(step, order)
    evaluator = Evaluator(step, order)
    replays = Replays(evaluator)
    count = 0
    # The last first: what earlier nodes of the backward need is then gone where they need it.
    for node, units in reversed(list(zip(order[forward.turning :], forward.reads, strict=True))):
        for unit in units:
            closure = replays.closure(step.created[unit][0], node)
            if not closure.nodes or closure.refusal:
                continue
            count += len(closure.nodes)
            if count > most or guard.exhausted(len(closure.nodes)) is not None:
                return None
            evaluator.apply(replays.insertion(closure, node))
            evaluator.forget_undo()
    return PlannedSequence.of(evaluator, "nothing_held") if count and guard.check_now() is None else None


def table_of(chain: BlockChain, costs: ChainCosts, holds: Iterable[Hold]) -> list[BackwardPart]:
    """The retention table of a plan, one part a block, in running order."""
    held: list[set[int]] = [set() for _ in chain.blocks]
    for hold in holds:
        block = chain.blocks[hold.block]
        if hold.option is None:
            units = set(block.entering)
        else:
            units = {*costs.options[hold.block][hold.option].kept, *block.leaving}
        for part in range(hold.last, hold.first + 1):
            held[part] |= units
    return parts_of(chain, held)


def parts_of(chain: BlockChain, held: Sequence[Iterable[int]]) -> list[BackwardPart]:
    """The retention table with some units held into the backward of each block."""
    together = zip(chain.blocks, held, strict=True)
    return [
        BackwardPart(block.first, block.end, frozenset(units)) for block, units in reversed(list(together))
    ]


def start_of(problem: PlanningProblem, name: str) -> PlannedSequence:
    """The start as an answer."""
    return PlannedSequence.evaluate(problem.step, problem.first_sequence(), name)


def units_of(problem: PlanningProblem) -> ForwardUnits | str:
    """The forward part of the start, or why there is nothing to plan with it."""
    order = problem.first_sequence()
    if len(order) != problem.step.node_count:
        return "the start has recomputations already"
    if not problem.step.node_count:
        return "nothing runs"
    if start_of(problem, "").peak_with_workspace_bytes <= problem.budget_bytes:
        return "the start is within the budget"
    forward = forward_units(problem.step, order)
    if not any(forward.reads):
        return "nothing after the forward part reads anything of it"
    return forward


def chain_of(problem: PlanningProblem, most: int) -> BlockChain | str:
    """The start as a chain of blocks, or why it is none. Found once for all that share `PlanningProblem.chains`."""
    key = (problem.first_sequence(), most)
    known = problem.chains.chains.get(key)
    if known is not None:
        return known
    forward = units_of(problem)
    if isinstance(forward, str):
        return forward
    chain = find_blocks(forward, most)
    if len(chain.blocks) < 2:
        return "the forward part has no place where little crosses"
    problem.chains.chains[key] = chain
    return chain


def costs_of(problem: PlanningProblem, chain: BlockChain) -> ChainCosts:
    """The options of a chain's blocks, each distinct one solved once, whatever budgets and strategies ask for them."""
    known = problem.chains.costs.get(id(chain))
    if known is not None:
        _log.info("options of %d blocks taken from an earlier search of this step", len(chain.blocks))
        return known[1]
    costs = chain_costs(chain)
    problem.chains.costs[id(chain)] = (chain, costs)
    return costs


def hand_back(problem: PlanningProblem, guard: LimitGuard, name: str, why: str) -> Outcome[PlannedSequence]:
    """The start, and why it was not worked on."""
    start = start_of(problem, name)
    is_whole = len(start.sequence) == problem.step.node_count
    is_free = is_whole and start.peak_with_workspace_bytes <= problem.budget_bytes
    return guard.finish(start, best=start.seconds, bound=start.seconds if is_free else None, detail=why)


class NominalBudgets:
    """A chain program asked for other budgets than the one that is wanted, because it charges worst cases.

    Plans are carried out at most once each.
    """

    def __init__(self, problem: PlanningProblem, chain: BlockChain, guard: LimitGuard, name: str) -> None:
        """Solve the program. The guard is charged with the blocks of the chain, squared."""
        self.problem, self.chain, self.guard, self.name = problem, chain, guard, name
        self.costs = costs_of(problem, chain)
        self.program = ChainProgram(self.costs, int(SETTINGS.reach * problem.budget_bytes), SLOTS)
        guard.exhausted(len(chain.blocks) ** 2)
        self._found: dict[frozenset[Hold], PlannedSequence] = {}

    def plan(self, share: float) -> PlannedSequence | None:
        """The plan for a share of the budget, carried out; None when there is none or no time is left."""
        holds = self.program.plan(int(share * self.problem.budget_bytes))
        if holds is None or self.guard.check_now() is not None:
            return None
        key = frozenset(holds)
        if key not in self._found:
            table = table_of(self.chain, self.costs, holds)
            self._found[key] = carry_out(self.problem, self.chain.forward, table, self.guard, self.name)
        return self._found[key]
