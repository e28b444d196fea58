from __future__ import annotations

import random
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from neaptide.planner.recompute.closure_model import ClosureModel, held_creators, model_at

from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import closure, greedy_recompute, program_order
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, toy_registry, transformer_step
from planner_problems import compiled, judge
from strategies import graphs
from together import together


def cheapest(model, refused, room):
    """Least seconds over all labels held (h), again (a), gone (g) of the units; None when nothing fits."""
    best = None
    for labels in product("hag", repeat=len(model.creators)):
        units = range(len(labels))
        legal = (
            all(labels[i] == "h" for i in units if model.is_pinned[i])
            and all(labels[i] != "g" for i in units if model.is_used[i])
            and all(labels[i] != "a" for i in units if refused[i])
            and all(labels[j] != "g" for i, j in model.operands if labels[i] == "a")
        )
        if legal and sum(model.nbytes[i] for i in units if labels[i] == "h") <= room - model.fixed_bytes:
            seconds = sum(model.seconds[i] for i in units if labels[i] == "a")
            best = seconds if best is None else min(best, seconds)
    return best


@together("seed", range(25))
def test_what_the_relaxation_holds_is_close_to_the_cheapest_labels(seed):
    step = compiled(transformer_step(layers=1, dropout=True))
    draw = random.Random(seed)
    count = 7
    creators = tuple(draw.sample(range(step.node_count), count))
    pairs = {(i, j) for i in range(count) for j in range(i) if draw.random() < 0.4}
    model = ClosureModel(
        creators,
        tuple(float(draw.randint(1, 9)) for _ in creators),
        tuple(draw.randint(1, 9) for _ in creators),
        tuple(sorted(pairs)),
        tuple(draw.random() < 0.6 for _ in creators),
        tuple(draw.random() < 0.1 for _ in creators),
        fixed_bytes=5,
    )
    refused = [bool(step.refusals[c]) for c in creators]
    room = draw.randint(5, 30)
    best = cheapest(model, refused, room)
    held = held_creators(step, model, room)
    if best is not None:
        assert held is not None
    if held is None:
        return
    assert {c for c, pinned in zip(creators, model.is_pinned, strict=True) if pinned} <= held
    # The relaxation has one fractional unit or a few; without it the choice fits.
    used = sum(size for c, size in zip(creators, model.nbytes, strict=True) if c in held)
    assert used <= room - model.fixed_bytes + 2 * max(model.nbytes)
    if best is not None:
        again = {i for i in range(count) if model.is_used[i] and creators[i] not in held}
        assert sum(model.seconds[i] for i in again) <= best + 2 * max(model.seconds)


def test_enough_room_holds_all_and_too_little_for_what_is_pinned_holds_none():
    made = conv_step(blocks=2)
    step = compiled(made)
    evaluator = Evaluator(step)
    model = model_at(evaluator, evaluator.peak_position)
    held = held_creators(step, model, evaluator.peak)
    assert held is not None
    assert {c for c, used in zip(model.creators, model.is_used, strict=True) if used} <= held
    assert held_creators(step, model, model.fixed_bytes - 1) is None


def test_the_model_of_a_step_counts_what_crosses_it():
    made = conv_step(blocks=2)
    step = compiled(made)
    evaluator = Evaluator(step)
    position = evaluator.peak_position
    model = model_at(evaluator, position)
    crossing = sum(size for size, used in zip(model.nbytes, model.is_used, strict=True) if used)
    assert model.fixed_bytes + crossing == evaluator.bytes_at(position)


@together("share", [0.8, 0.6, 0.45])
@together(
    "made",
    [transformer_step(layers=6, dropout=True), conv_step(blocks=8, batch=32)],
    ids=["transformer", "conv"],
)
def test_budgets_are_met_at_about_the_price_of_the_greedy_search_or_less(made, share):
    step = compiled(made)
    peak = program_order.baseline(step).peak_bytes
    problem = PlanningProblem(step, step.resident_bytes + int(share * (peak - step.resident_bytes)))
    found = closure.solve(problem, Limits()).require()
    judge(made.graph, found, None, made.registry)
    assert found.peak_with_workspace_bytes <= problem.budget_bytes
    greedy = greedy_recompute.solve(problem, Limits()).require()
    assert found.seconds - step.baseline_seconds <= 1.1 * (greedy.seconds - step.baseline_seconds)


@given(st.data(), st.floats(0.3, 1.0))
def test_any_graph_stays_legal_and_no_higher(data, share):
    graph = data.draw(graphs(min_nodes=2))
    step = compile_problem(graph, toy_registry())
    before = program_order.baseline(step)
    problem = PlanningProblem(step, int(share * before.peak_with_workspace_bytes))
    after = closure.solve(problem, Limits()).require()
    judge(graph, after)
    assert after.rank(problem.budget_bytes) <= before.rank(problem.budget_bytes)


def test_a_budget_that_is_met_is_handed_back_as_proved():
    step = compiled(transformer_step(layers=1))
    outcome = closure.solve(PlanningProblem(step, 2**62), Limits())
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert outcome.require().sequence == tuple(range(step.node_count))
