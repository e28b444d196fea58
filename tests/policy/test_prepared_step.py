from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from frontends import steps
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.ir.fingerprint import fingerprint
from neaptide.outcome import LimitGuard, Limits
from neaptide.policy.plan_facts import described_signature
from neaptide.policy.prepared_step import PreparedStep, prepare
from support import catalogue

LIMITS = Limits(work=30)
WHOLE_S = 0.3


@pytest.fixture(scope="module")
def small():
    """A step with a program for its first call."""
    step, batch = steps.adamw()
    return prepare(step, (batch,), run_operations=False, name="small")


@pytest.fixture(scope="module")
def plain():
    return catalogue.prepared(steps.mlp, run_operations=False)


def test_a_plan_has_every_program_of_the_step_within_the_same_bytes(small):
    found = small.plan(Ask(Budget("90%"), limits=LIMITS))
    assert [program.role for program in found.plan.programs] == ["steady", "first_1"]
    steady, first = found.plan.programs
    assert first.budget_bytes == min(
        steady.budget_bytes, first.predictions.baseline_peak_with_workspace_bytes
    )
    assert found.plan.captured_on == "cpu"
    assert [program.captured_fingerprint for program in found.plan.programs] == [
        fingerprint(program.graph) for program in small.captured.programs
    ]
    assert found.plan.name == "small"
    assert found.variant.plan is found.plan
    assert [made.saved for made in found.variant.graphs] == [(), ()]


@pytest.mark.parametrize(
    ("peak", "least", "expected"),
    [("50%", 0, 0.5), ("50%", 10**9, 1.0), (10**9, 0, 1.0), (None, 0, 1.0)],
)
def test_the_bytes_of_an_earlier_plan_are_allowed_up_to_the_baseline(plain, peak, least, expected):
    found = plain.plan(Ask(Budget(peak), limits=LIMITS, least_bytes=least)).plan.programs[0]
    assert found.budget_bytes == int(expected * found.predictions.baseline_peak_with_workspace_bytes)


def test_operations_are_run_once_and_only_where_that_is_meant():
    step, batch = steps.mlp()
    told: list[str] = []
    here = prepare(step, (batch,), progress=told.append)
    assert here.is_measured
    assert here.prices() is here.prices()
    assert here.is_measured
    assert sum(text.startswith("timing") for text in told) == 1
    assert not prepare(step, (batch,), run_operations=False).is_measured
    assert not prepare(step, (batch,), device="rtx3090").is_measured
    with torch.device("meta"):
        model = torch.nn.Linear(4, 4)
        nowhere = steps.simple(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert not prepare(nowhere, (torch.empty(3, 4),)).is_measured


def test_misspelt_names_are_refused_early():
    with pytest.raises(UsageError, match="no device"):
        prepare(lambda _: None, (torch.ones(1),), device="gtx")
    step, batch = steps.mlp()
    prepared = prepare(step, (batch,), run_operations=False)
    with pytest.raises(UsageError, match="no strategy"):
        prepared.plan(Ask(Budget("90%"), strategy="best"))


def test_the_signature_in_a_plan_is_text_in_the_users_names(plain):
    facts = dict(described_signature(plain.captured))
    assert facts["the batch"] == "batch"
    assert facts["batch"] == "float32 of shape (5, 4)"
    assert not any("TreeSpec" in text for text in facts.values())
    assert any("0.weight" in name for name in facts)
    assert any("momentum" in name for name in facts)
    assert all(isinstance(text, str) for text in facts.values())
    assert not any("0x" in text for text in facts.values()), "nothing that differs between processes"


@pytest.mark.parametrize("reads", [False, True])
def test_operations_are_measured_where_what_the_step_reads_has_bytes(reads):
    model, skeleton = steps.net(), steps.net().to("meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        parameters = {} if reads else dict(model.named_parameters())
        loss = torch.func.functional_call(skeleton, parameters, (x,)).square().mean()
        (loss + model(x).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    prepared = prepare(step, (torch.randn(2, 4),))
    assert prepared.is_measured is not reads


def test_first_steps_get_their_share_of_the_time_where_the_usual_one_took_longer(monkeypatch, small):
    planned, limits = PreparedStep.plan_program, []

    def slowly(self, index, options, allowed, *given):
        limits.append(options.limits.time_s)
        # From now on the clock says that all time is up; limits of work have none.
        monkeypatch.setattr(LimitGuard, "remaining_s", lambda guard: guard.limits.time_s and 0.0)
        return planned(self, index, replace(options, limits=LIMITS), allowed, *given)

    monkeypatch.setattr(PreparedStep, "plan_program", slowly)
    small.plan(Ask(Budget("90%"), limits=Limits(time_s=WHOLE_S)))
    usual, first = limits
    assert 0 < usual < WHOLE_S
    assert usual + first == pytest.approx(WHOLE_S)


def test_a_first_program_is_planned_for_the_one_call_that_runs_it(monkeypatch, small):
    asked = []
    planned = small.plan_program

    def noted(index, options, *args):
        asked.append((index, options.limits.runs))
        return planned(index, options, *args)

    monkeypatch.setattr(small, "plan_program", noted)
    small.plan(Ask(Budget("90%"), limits=replace(LIMITS, runs=100)))
    assert asked == [(0, 100), (1, 1)]


def test_an_atomic_plan_carries_what_is_saved_into_what_runs():
    found = catalogue.planned(
        steps.batch_norm, Ask(Budget("100%"), limits=LIMITS, atomic=True), run_operations=False
    )
    assert found.plan.atomic
    assert [made.saved for made in found.variant.graphs] == [program.saved for program in found.plan.programs]
    assert all(made.saved for made in found.variant.graphs)


def test_first_steps_get_what_the_usual_one_left(monkeypatch):
    prepared = catalogue.prepared(steps.adamw, run_operations=False)
    planned, limits = PreparedStep.plan_program, []

    def at_once(self, index, options, allowed, *given):
        limits.append(options.limits.time_s)
        return planned(self, index, replace(options, limits=LIMITS), allowed, *given)

    monkeypatch.setattr(PreparedStep, "plan_program", at_once)
    prepared.plan(Ask(Budget("90%"), limits=Limits(time_s=10_000.0)))
    assert limits[1] > limits[0]
