from __future__ import annotations

from chain_play import chain_step
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.plans import BackwardPart
from neaptide.planner.recompute.units import forward_units
from neaptide_peers.strategies.tables import best_of


def test_the_start_is_kept_where_no_table_is_better():
    step = chain_step(4)
    forward = forward_units(step, range(step.node_count))
    problem = PlanningProblem(step, 10**9)
    tables = [[BackwardPart(4, 8, frozenset())]]
    found = best_of(problem, forward, tables, LimitGuard(Limits()), "test")
    assert found.sequence == tuple(range(8))
    assert found.strategy == "test"
