"""Steps that run under eviction: the bits of eager within the bytes of the budget, by each policy."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import neaptide
from frontends import steps
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget, StepInterrupted, UsageError
from neaptide.frontends.torch_step import capture_step
from neaptide.planner.points.choices.decide import POLICIES
from neaptide.planner.points.script import Way
from neaptide.policy.points.for_all_shapes import evicting_variant
from neaptide.policy.prepared_step import PreparedStep, prepare
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import verify_eager, verify_planned
from neaptide.zoo import factory as zoo_factory
from support.dispatch_modes import DiesAt
from support.together import together

WIDTH = 16
RANDOM_STATE_BYTES = 5056


def mlp():
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.2)) for _ in range(4))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return steps.simple(model, optimizer), torch.randn(256, WIDTH)


def conv():
    layers = [
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        for _ in range(5)
    ]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return steps.simple(model, optimizer), torch.randn(4, 4, 16, 16)


CASES = {
    "mlp": (mlp, "55%"),
    "conv": (conv, "65%"),
    "gpt2": (zoo_factory("gpt2@tiny"), "80%"),
}


@pytest.fixture(scope="module")
def dropping_out():
    """The perceptron, ready to be planned with the costs of a data sheet, and what eager makes of it."""
    step, batch = contestants.build(mlp, 0)
    return PreparedStep(capture_step(step, (batch,)), device="rtx3090"), verify_eager(mlp, 0)


def evicting(prepared, budget, name="dtr"):
    return evicting_variant(prepared, Ask(budget), name)


def script_of(variant):
    planned = variant.graphs[0]
    return planned.choice().at({}, planned.limit_bytes).script


@pytest.mark.parametrize(
    "case", ["conv", *(pytest.param(case, marks=pytest.mark.slow) for case in ("mlp", "gpt2"))]
)
def test_the_bits_of_eager_within_the_bytes_of_the_budget(case):
    factory, share = CASES[case]
    step, batch = contestants.build(factory, 0)
    variant = evicting(prepare(step, (batch,)), Budget(share))
    assert_has_the_bits_of(verify_eager(factory, 0), variant, factory)
    runner = contestants.planned_contestant("eviction", factory, 0, contestants.rebind(variant))
    runner.run()
    runner.run()
    memory = contestants.measure_step(runner.run, runner.persistent)
    allowed = variant.graphs[0].limit_bytes
    assert memory.measured_peak_bytes <= allowed
    # A generator's state is read through a tensor that is there for a moment.
    assert memory.measured_allocator_peak_bytes <= allowed + RANDOM_STATE_BYTES
    assert not memory.unregistered


@together("name", POLICIES, quick=("least_cost_cover", "dtr"))
def test_every_policy_gives_the_bits_of_eager(name, dropping_out):
    prepared, eager = dropping_out
    variant = evicting(prepared, Budget("70%"), name)
    assert script_of(variant).repeated
    assert_has_the_bits_of(eager, variant)


def assert_has_the_bits_of(eager, variant, factory=mlp):
    outcome, _ = verify_planned(factory, 0, contestants.rebind(variant), eager)
    assert outcome.bitwise_equal, (outcome.max_abs_diff, outcome.worst)


def test_what_cannot_be_recomputed_waits_on_the_host_where_there_is_room(dropping_out):
    prepared, eager = dropping_out
    variant = evicting(prepared, Budget("45%", host="1GiB"))
    assert {eviction.way for eviction in script_of(variant).evictions} == set(Way)
    assert_has_the_bits_of(eager, variant)
    # Dropout draws the same mask again.
    variant = evicting(prepared, Budget("55%"))
    graph = variant.captured.programs[0].graph
    assert any(graph.nodes[node].effects.rng is not None for node in script_of(variant).repeated)
    assert_has_the_bits_of(eager, variant)


@pytest.fixture(scope="module")
def convolving():
    """A step that evicts, its batch, and its losses in three calls."""
    step, batch = contestants.build(conv, 0)
    fast = neaptide.compile_step(step, budget="75%", eviction="dtr")
    return fast, batch, [fast(batch) for _ in range(3)]


def test_a_step_is_compiled_with_eviction(convolving):
    fast, batch, losses = convolving
    other, _ = contestants.build(conv, 0)
    assert all(torch.equal(loss, other(batch)) for loss in losses)
    assert fast.plan is None
    totals = fast.eviction
    assert totals.evicted
    assert totals.executions == len(fast._variants[0].planned.graphs[0].graph.nodes) + totals.repeated
    assert fast.counts.planned >= 3
    assert fast.counts.eager == 0
    assert "point.act(" in fast.program_source()


@together(
    "other",
    [{"strategy": "block_dp"}, {"atomic": True}, {"arena": True}, {"budget": Budget("75%", latency="+10%")}],
)
def test_what_needs_a_plan_excludes_eviction(other):
    with pytest.raises(UsageError, match="exclude each other"):
        neaptide.compile_step(lambda x: x, **{"budget": "75%", "eviction": "dtr"} | other)
    with pytest.raises(UsageError, match="choose one of least_cost_cover, delta"):
        neaptide.compile_step(lambda x: x, budget="75%", eviction="lifo")


def test_a_budget_that_it_cannot_keep_is_refused_before_the_step_runs(dropping_out):
    with pytest.raises(InfeasibleBudget, match="evicting by dtr does not keep") as caught:
        evicting(dropping_out[0], Budget("1%"))
    assert caught.value.smallest_peak_bytes >= caught.value.lower_bound_bytes > 0
    assert "run with eviction, it comes to a peak of" in str(caught.value)


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


def test_nothing_is_held_after_a_step(convolving):
    fast, _, _ = convolving
    probe = torch.randn(4, 4, 16, 16)
    died = weakref.ref(probe)
    gc.disable()
    try:
        fast(probe)
        del probe
        assert died() is None
    finally:
        gc.enable()
