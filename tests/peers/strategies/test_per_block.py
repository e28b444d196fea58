from __future__ import annotations

import pytest

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import program_order
from neaptide_corpus.training_steps import transformer_step
from neaptide_peers.strategies import per_block
from planner_problems import compiled, judge


def test_every_layer_runs_forward_twice():
    made = transformer_step(layers=12)
    step = compiled(made)
    before = program_order.baseline(step)
    found = per_block.solve(PlanningProblem(step, step.resident_bytes), Limits()).require()
    judge(made.graph, found, None, made.registry)
    transient = found.peak_bytes - step.resident_bytes
    assert transient < 0.75 * (before.peak_bytes - step.resident_bytes)
    repeated = found.sequence
    forward = [n for n in range(step.node_count) if step.phases[n] == "forward"]
    counts = [repeated.count(n) for n in forward]
    assert max(counts) == 2
    # The last layer and what no backward reads (the down projections, the loss) run once.
    assert 0.6 < sum(c == 2 for c in counts) / len(counts) < 1.0
    assert found.seconds < before.seconds + sum(step.seconds[n] for n in forward)


@pytest.mark.parametrize("layers", [4, 8])
def test_blocks_are_named_in_the_detail(layers):
    step = compiled(transformer_step(layers=layers))
    outcome = per_block.solve(PlanningProblem(step, step.resident_bytes), Limits())
    assert outcome.termination.detail.endswith(" blocks")
