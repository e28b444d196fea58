"""Random graphs with all that forbids or complicates a recomputation: no strategy ever hands out an illegal plan."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Source
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.strategies import NAMES, strategy
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, pooled_step, toy_registry, transformer_step
from neaptide_peers.cp_sat import process
from planner.planner_problems import check_sequence
from planner.value_play import play
from support.drawn import examples

FEATURES = ("views", "in_place", "multi_output", "shape_only", "persistent", "rng", "effects")
SEEDS = st.integers(0, 2**48)
LIMITS = Limits(work=300)
# A process of its own for every problem, and a MILP with a row for each pair of nodes.
DEAR = {"moccasin": 0.05, "checkmate": 0.3}
OWN = tuple(name for name in NAMES if name not in DEAR)


def graph_of(rng: random.Random):
    """A graph and its registry: mostly random nodes in two phases, else a small training step."""
    if rng.random() < 0.05:
        options = {"dropout": rng.random() < 0.5, "optimizer": rng.choice(("sgd", "adam"))}
        makers = (
            lambda: transformer_step(layers=1, **options),
            lambda: conv_step(blocks=rng.randint(1, 2), batch=4),
            pooled_step,
        )
        made = rng.choice(makers)()
        return made.graph, made.registry, made.seconds
    features = {name: rng.random() < 0.7 for name in FEATURES}
    graph = random_graph(rng.randrange(2**40), rng.randint(2, 24), **features)
    turning = rng.randint(0, len(graph.nodes))
    nodes = tuple(
        replace(node, source=Source(phase="forward" if node.id < turning else "backward"))
        for node in graph.nodes
    )
    if rng.random() < 0.5:
        graph = replace(graph, nodes=nodes)
    return graph, toy_registry(), tuple(float(rng.randint(1, 9)) for _ in graph.nodes)


def assert_does_the_same(played, expected) -> None:
    contents = dict(expected.seen)
    assert all(contents[node] == content for node, content in played.seen)
    assert (played.outputs, played.owned) == (expected.outputs, expected.owned)
    assert (played.drawn, played.said) == (expected.drawn, expected.said)


def check(seed: int, names) -> None:
    """Every plan is legal, does to the world what the program does, and takes the bytes that it says."""
    rng = random.Random(seed)
    graph, registry, seconds = graph_of(rng)
    workspace = {node.id: rng.choice((0, 0, 0, 7, 40)) for node in graph.nodes}
    step = compile_problem(graph, registry, workspace=workspace, seconds=seconds)
    before = baseline(step)
    movable = before.peak_with_workspace_bytes - step.persistent_bytes
    budget = step.persistent_bytes + int(rng.uniform(0.2, 1.0) * movable)
    expected = play(graph, range(len(graph.nodes)), registry, workspace)
    plans, start = [], None
    if rng.random() < 0.5:  # the others are given its plan, since some only improve one
        plans.append(plan_sequence(step, budget, LIMITS).require())
        start = plans[0].sequence
    for name in names:
        problem = PlanningProblem(step, budget, start=start)
        outcome = strategy(name)(problem, LIMITS)
        plans.append(outcome.require())
        ended, begun = outcome.termination, PlannedSequence.evaluate(step, problem.first_sequence(), name)
        assert plans[-1].strategy == name
        assert name == "program_order" or plans[-1].rank(budget) <= begun.rank(budget)
        assert None in (ended.bound, ended.best) or ended.bound <= ended.best * (1 + 1e-9)
    for plan in dict.fromkeys(plans):
        check_sequence(graph, plan, workspace, registry)
        played = play(graph, plan.sequence, registry, workspace)
        assert_does_the_same(played, expected)
        assert played.peak_bytes == plan.peak_bytes
        assert played.peak_with_workspace_bytes == plan.peak_with_workspace_bytes
        # None of them raises what is above the budget, whatever it was started from.
        assert plan.peak_with_workspace_bytes <= max(budget, before.peak_with_workspace_bytes)
        assert step.lower_bound_bytes <= plan.peak_with_workspace_bytes


def names_for(seed: int) -> tuple[str, ...]:
    """All strategies, the dear ones now and then."""
    rng = random.Random(seed + 1)
    shares = {name: share for name, share in DEAR.items() if name != "moccasin" or process.is_installed()}
    return (*OWN, *(name for name, share in shares.items() if rng.random() < share))


@given(SEEDS)
@settings(max_examples=examples(120))
def test_the_machine_finds_nothing_wrong_with_a_legal_repetition(seed):
    rng = random.Random(seed)
    graph = random_graph(rng.randrange(2**40), 12, effects=True)
    again = rng.randrange(12)
    at = rng.randint(again + 1, 12)
    sequence = (*range(at), again, *range(at, 12))
    try:
        check_schedule(graph, Schedule.from_nodes(graph, sequence), toy_registry())
    except VerifyError:
        return
    assert_does_the_same(*(play(graph, order, toy_registry()) for order in (sequence, range(12))))


def test_the_machine_hears_what_is_said_twice_and_sees_other_contents():
    builder = GraphBuilder("said")
    x = builder.input("x", (4,))
    (a,) = builder.node("toy.mix", x, outputs=["a: f32[4]"], host=True)
    (b,) = builder.node("toy.update_", a, outputs=["b: f32[4] @a"], writes=[a])
    (c,) = builder.node("toy.mix", b, outputs=["c: f32[4]"])
    builder.output(c)
    graph = builder.finish()
    expected = play(graph, range(3), toy_registry())
    assert len(play(graph, [0, 0, 1, 2], toy_registry()).said["the host"]) == 2
    written_twice = play(graph, [0, 1, 1, 2], toy_registry())
    assert written_twice.outputs != expected.outputs
    assert set(written_twice.seen) > set(expected.seen[:2])
    assert (expected.peak_bytes, play(graph, [0, 1, 2, 2], toy_registry()).peak_bytes) == (48, 48)


@given(SEEDS)
@settings(max_examples=examples(96))
def test_no_plan_breaks_the_program_or_says_other_bytes(seed):
    check(seed, random.Random(seed + 1).sample(OWN, 4))


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=1_000, deadline=None)
def test_a_thousand_graphs_with_every_strategy(seed):
    check(seed, names_for(seed))
