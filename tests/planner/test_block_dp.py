from __future__ import annotations

from chain_play import chain_step
from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import block_dp, program_order
from neaptide_corpus.training_steps import conv_step, transformer_step
from neaptide_peers.strategies import sqrt_n
from planner_problems import compiled, judge
from together import together


@together("share", [0.7, 0.5, 0.35])
@together("made", [transformer_step(layers=8), conv_step(blocks=8, batch=32)], ids=["t", "c"])
def test_training_steps_reach_their_budget(made, share):
    step = compiled(made)
    before = program_order.baseline(step)
    budget = step.resident_bytes + int(share * (before.peak_bytes - step.resident_bytes))
    problem = PlanningProblem(step, budget)
    outcome = block_dp.solve(problem, Limits())
    found = outcome.require()
    judge(made.graph, found, None, made.registry)
    if sqrt_n.solve(problem, Limits()).require().peak_with_workspace_bytes <= budget:
        assert found.peak_with_workspace_bytes <= budget
        assert found.seconds < 1.25 * step.baseline_seconds
    assert outcome.termination.detail.startswith("distinct blocks: ")


def test_blocks_are_made_again_twice_where_the_budget_is_tight():
    step = chain_step(40)
    found = block_dp.solve(PlanningProblem(step, 700), Limits()).require()
    assert found.peak_bytes <= 700
    assert max(found.sequence.count(n) for n in range(40)) > 2
