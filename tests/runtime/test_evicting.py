"""Steps that run under eviction: the bits of eager, the bytes of the budget, the decisions of the simulation."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import neaptide
from dies_at import DiesAt
from frontends import steps
from neaptide.errors import InfeasibleBudget, StepInterrupted, UsageError
from neaptide.lower.node_calls import node_calls
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.planner.eviction.policy import HEURISTICS, heuristic
from neaptide.planner.eviction.simulate import simulate
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import strategy
from neaptide.runtime import contestants
from neaptide.runtime.evicting import EvictionOptions
from neaptide.runtime.evicting_variant import evicting_variant
from neaptide.runtime.planned_step import PlannedStep
from neaptide.runtime.prepared_step import prepare
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.verification import verify_eager, verify_planned
from neaptide.zoo import factory as zoo_factory

WIDTH = 16
RANDOM_STATE_BYTES = 5056


def mlp():
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.2)) for _ in range(6))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return steps.make_step(model, optimizer), torch.randn(256, WIDTH)


def conv():
    layers = [
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        for _ in range(5)
    ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return steps.make_step(model, optimizer), torch.randn(4, 4, 16, 16)


CASES = {
    "mlp": (mlp, "55%"),
    "conv": (conv, "65%"),
    "gpt2": (zoo_factory("gpt2@tiny"), "80%"),
    "resnet50": (zoo_factory("resnet50@tiny"), "80%"),
}


def evicting(factory, share, options=None, *, measured=True):
    step, batch = contestants.build(factory, 0)
    prepared = prepare(step, (batch,), run_operations=measured)
    return evicting_variant(prepared, SearchOptions(Budget(share)), options or EvictionOptions())


def runner_of(factory, variant):
    contestant = contestants.planned_contestant("eviction", factory, 0, contestants.rebind(variant))
    contestant.run()
    contestant.run()
    return contestant


@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_eager_within_the_bytes_of_the_budget(case):
    factory, share = CASES[case]
    variant = evicting(factory, share)
    outcome, _ = verify_planned(factory, 0, contestants.rebind(variant), verify_eager(factory, 0))
    assert outcome.bitwise_equal, (outcome.max_abs_diff, outcome.worst)
    runner = runner_of(factory, variant)
    memory = contestants.measure_step(runner.run, runner.resident)
    allowed = variant.graphs[0].eviction.budget_bytes
    assert memory.measured_peak_bytes <= allowed
    # A generator's state is read through a tensor that is there for a moment.
    assert memory.measured_allocator_peak_bytes <= allowed + RANDOM_STATE_BYTES
    assert not memory.unregistered


@pytest.mark.parametrize("name", HEURISTICS)
def test_it_decides_as_the_strategy_of_its_name_does_on_paper(name, monkeypatch):
    variant = evicting(mlp, "70%", EvictionOptions(name), measured=False)
    step, batch = contestants.build(mlp, 0)
    variant = contestants.rebind(variant)(step, batch)
    runner = PlannedStep(step, contestants.never_again, variant, on_mismatch="error")
    runner(batch)
    seen = []
    executable = runner._variants[0].runnable(0).executable
    functions = executable._functions

    def noting(node, function):
        def call(*args):
            seen.append(node)
            return function(*args)

        return call

    def noted(kind):
        return tuple((noting(n, call), taken) for n, (call, taken) in enumerate(kind))

    executable._functions = type(functions)(noted(functions.first), noted(functions.again), functions.copies)
    runner(batch)
    eviction = variant.graphs[0].eviction
    run = simulate(eviction.problem, eviction.order, heuristic(name), eviction.budget_bytes)
    assert tuple(seen) == run.sequence
    assert runner.eviction == run.totals
    problem = PlanningProblem(eviction.problem, eviction.budget_bytes, eviction.order)
    planned = strategy(name)(problem, Limits()).require()
    assert len(run.sequence) > eviction.problem.node_count
    assert planned.sequence == run.sequence


def test_dropout_draws_the_same_mask_again():
    variant = evicting(mlp, "55%", measured=False)
    eviction = variant.graphs[0].eviction
    graph = variant.captured.programs[0].graph
    run = simulate(eviction.problem, eviction.order, heuristic("dtr"), eviction.budget_bytes)
    again = [node for node in run.sequence if graph.nodes[node].effects.rng is not None]
    assert len(again) > len(set(again))


def test_timed_operations_decide_as_well():
    variant = evicting(mlp, "70%", EvictionOptions(timed=True))
    outcome, _ = verify_planned(mlp, 0, contestants.rebind(variant), verify_eager(mlp, 0))
    assert outcome.bitwise_equal


def test_a_step_is_compiled_with_eviction():
    step, batch = contestants.build(conv, 0)
    fast = neaptide.compile_step(step, budget="75%", eviction="dtr")
    for _ in range(3):
        loss = fast(batch)
    other, batch = contestants.build(conv, 0)
    for _ in range(3):
        expected = other(batch)
    assert torch.equal(loss, expected)
    assert fast.plan is None
    assert fast.eviction is not None
    assert fast.eviction.evicted
    assert fast.counts.planned == 3
    assert "def node_0(" in fast.program_source()


@pytest.mark.parametrize(
    "other",
    [{"strategy": "closure"}, {"atomic": True}, {"arena": True}, {"budget": Budget("75%", latency="+10%")}],
    ids=["strategy", "atomic", "arena", "latency"],
)
def test_what_needs_a_plan_excludes_eviction(other):
    step, _ = contestants.build(conv, 0)
    with pytest.raises(UsageError, match="exclude each other"):
        neaptide.compile_step(step, **{"budget": "75%", "eviction": "dtr"} | other)


def test_an_unknown_way_to_evict_is_refused_at_once():
    with pytest.raises(UsageError, match="choose one of dtr, dtr_classes"):
        neaptide.compile_step(lambda x: x, budget="75%", eviction="lifo")


def test_a_budget_that_it_cannot_keep_is_refused_before_the_step_runs():
    step, batch = contestants.build(conv, 0)
    fast = neaptide.compile_step(step, budget="1%", eviction="dtr")
    with pytest.raises(InfeasibleBudget, match="evicting by dtr does not keep") as caught:
        fast(batch)
    assert caught.value.smallest_peak_bytes >= caught.value.lower_bound_bytes > 0
    assert "run with eviction, it comes to a peak of" in str(caught.value)


def test_a_check_that_has_no_time_left_refuses_and_says_so():
    step, batch = contestants.build(conv, 0)
    fast = neaptide.compile_step(step, budget="75%", eviction="dtr", time_limit_s=0.0)
    with pytest.raises(InfeasibleBudget, match="not found out within the time limit") as caught:
        fast(batch)
    assert "without eviction" in caught.value.why
    assert caught.value.smallest_peak_bytes >= caught.value.lower_bound_bytes > 0


def test_hyphens_and_underscores_name_the_same():
    assert neaptide.EvictionOptions("dtr-classes") == neaptide.EvictionOptions("dtr_classes")
    assert neaptide.EvictionOptions("evict-oldest").heuristic == "evict_oldest"


def test_a_step_that_dies_says_where_and_what_it_had_written():
    step, batch = contestants.build(mlp, 0)
    fast = neaptide.compile_step(step, budget="60%", eviction="dtr")
    fast(batch)
    fast(batch)
    with DiesAt(0) as counter:
        fast(batch)
    notes = {}
    for number in range(1, counter.count + 1, 7):
        with pytest.raises(RuntimeError, match="on fire") as caught, DiesAt(number):
            fast(batch)
        notes[number] = "".join(caught.value.__notes__)
        if "nothing of the model has changed" not in notes[number]:
            with pytest.raises(StepInterrupted):
                fast(batch)
            fast.reset()
    assert "nothing of the model has changed" in notes[1]
    assert "already updated" in notes[max(notes)]
    # The first operations take aliases of the inputs, before the program begins.
    located = [n for n, text in notes.items() if "while neaptide ran" in text and "program: line" in text]
    assert located == sorted(notes)[-len(located) :]
    assert len(located) > len(notes) // 2


def test_nothing_is_held_after_a_step():
    step, batch = contestants.build(conv, 0)
    fast = neaptide.compile_step(step, budget="75%", eviction="dtr")
    fast(batch)
    probe = torch.randn(4, 4, 16, 16)
    died = weakref.ref(probe)
    gc.disable()
    try:
        fast(probe)
        del probe
        assert died() is None
    finally:
        gc.enable()


def test_the_functions_of_the_nodes_are_plain_python():
    step, batch = contestants.build(conv, 0)
    graph = prepare(step, (batch,), run_operations=False).captured.steady.graph
    calls = node_calls(graph, registry())
    lines = calls.program.source.splitlines()
    assert len(calls.first) == len(calls.again) == len(graph.nodes)
    assert {n for n in calls.program.line_nodes if n is not None} == set(range(len(graph.nodes)))
    assert len(lines) == len(calls.program.line_nodes)
    norm = next(n.id for n in graph.nodes if n.effects.writes and "batch_norm" in n.op)
    assert calls.first[norm].name != calls.again[norm].name
