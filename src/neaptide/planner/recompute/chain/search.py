"""What the strategies on chains of blocks share: where they start, and how they end."""

from __future__ import annotations

import logging
from typing import Final

from neaptide.outcome import LimitGuard, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.chain.blocks import BlockChain, find_blocks
from neaptide.planner.recompute.chain.options import chain_costs
from neaptide.planner.recompute.chain.program import ChainCosts
from neaptide.planner.recompute.forward_units import ForwardUnits, forward_units

_log: Final = logging.getLogger(__name__)


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
        return "nothing behind the forward part reads anything of it"
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
    costs = chain_costs(problem.step, chain)
    problem.chains.costs[id(chain)] = (chain, costs)
    return costs


def hand_back(problem: PlanningProblem, guard: LimitGuard, name: str, why: str) -> Outcome[PlannedSequence]:
    """The start, and why it was not worked on."""
    start = start_of(problem, name)
    is_free = (
        len(start.sequence) == problem.step.node_count
        and start.peak_with_workspace_bytes <= problem.budget_bytes
    )
    return guard.finish(start, best=start.seconds, bound=start.seconds if is_free else None, detail=why)
