from __future__ import annotations

from neaptide.outcome import Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import greedy_recompute, program_order
from neaptide_corpus.training_steps import conv_step, transformer_step
from planner_problems import compiled, judge
from together import together


def solved(step, share):
    """The budget of a share of what program order has beyond the resident bytes, and the plan for it."""
    peak = program_order.baseline(step).peak_with_workspace_bytes
    budget = step.resident_bytes + int(share * (peak - step.resident_bytes))
    return budget, greedy_recompute.solve(PlanningProblem(step, budget), Limits()).require()


@together("share", [0.8, 0.6, 0.45])
@together(
    "made",
    [
        transformer_step(layers=6),
        transformer_step(layers=6, dropout=True, clip=True),
        conv_step(blocks=8, batch=32),
    ],
    ids=["transformer", "dropout", "conv"],
)
def test_training_steps_reach_their_budget_at_a_moderate_price(made, share):
    step = compiled(made)
    budget, found = solved(step, share)
    judge(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= budget
    # One extra forward, what checkpointing every block costs, is about a third.
    assert found.seconds < 1.33 * step.baseline_seconds


def test_dropout_and_batch_norm_may_be_replayed():
    """The one draws under the state that it had the first time, the other leaves its running statistics alone."""
    for made, op in (
        (transformer_step(layers=4, dropout=True), "toy.dropout"),
        (conv_step(blocks=4), "toy.batch_norm"),
    ):
        _, found = solved(compiled(made), 0.4)
        judge(made.graph, found, None, made.registry)
        ops = [made.graph.nodes[n].op for n in found.sequence]
        assert ops.count(op) > [n.op for n in made.graph.nodes].count(op)


def test_the_budget_is_held_on_the_peak_with_workspace():
    made = transformer_step(layers=4)
    scratch = {n.id: 2_000_000 for n in made.graph.nodes if n.op == "toy.attention_backward"}
    budget, found = solved(compiled(made, scratch), 0.75)
    judge(made.graph, found, scratch, made.registry)
    assert found.peak_bytes < found.peak_with_workspace_bytes <= budget


def test_more_work_is_never_worse():
    step = compiled(conv_step(blocks=6))
    budget, _ = solved(step, 0.4)
    problem = PlanningProblem(step, budget)
    peaks = [
        greedy_recompute.solve(problem, Limits(work=work)).require().peak_bytes for work in (0, 5, 50, 5000)
    ]
    assert peaks == sorted(peaks, reverse=True)
