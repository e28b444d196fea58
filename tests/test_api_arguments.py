"""The public functions, asked for what cannot be: budgets, names, steps and factories that are none."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
import torch
from torch import nn

import neaptide
from neaptide.errors import CaptureError, InfeasibleBudget, InvalidBudget, PlanError, UsageError
from neaptide.interruption import cutting, is_beyond_search
from neaptide.report.comparison_text import comparison_document, is_within_budget
from neaptide.units import format_bytes
from support.steps import QUICK, deep, deep_factory
from support.together import together

pytestmark = pytest.mark.usefixtures("traced_once")


@together("budget", [float("nan"), "nan", -5, "-5GiB", "140%", "0%", "20 GBi", "", True])
def test_a_budget_that_is_none_is_refused_before_anything_is_captured(budget):
    def step(_batch: Any) -> None:
        raise AssertionError("captured")

    with pytest.raises(InvalidBudget) as caught:
        neaptide.plan(step, torch.ones(1), budget=budget)
    assert caught.value.exit_code == 2
    assert "give" in caught.value.next_step


@together(
    ("options", "told"),
    [
        ({"strategy": "gredy"}, "no strategy is called 'gredy'"),
        ({"device": "rtx9999"}, "no device named 'rtx9999'"),
        ({"strategy": "early_updates", "atomic": True}, "cannot make an atomic plan"),
    ],
)
def test_unknown_names_are_refused_before_anything_is_captured(options, told):
    def step(_batch: Any) -> None:
        raise AssertionError("captured")

    with pytest.raises(UsageError, match=told) as caught:
        neaptide.plan(step, torch.ones(1), budget="60%", **options)
    assert caught.value.next_step
    if "device" in options:
        with pytest.raises(UsageError, match=told):
            neaptide.profile(step, torch.ones(1), **options)


def test_without_a_budget_nothing_is_recomputed_and_the_plan_says_so():
    _, _, step, batch = deep(width=64, rows=8)
    plan = neaptide.plan(step, batch, budget=neaptide.Budget(None), device="rtx3090", **QUICK)
    program = plan.program("steady")
    predicted = program.predictions
    assert program.moves.updates_moved_earlier or program.moves.operations_moved
    assert len(program.sequence) == program.node_count
    assert predicted.peak_bytes < predicted.baseline_peak_bytes
    text = plan.explain()
    assert "Budget: none given, so nothing is recomputed" in text
    assert "would cost time" not in text
    assert "Predicted only" not in text  # the kernels are those of the card
    assert "--plan" not in text


def never(*_: Any) -> None:
    raise AssertionError("captured")


@together(
    ("call", "told"),
    [
        (lambda: neaptide.compile_step(never, budget="60%", on_mismatch="foo"), "on_mismatch='foo'"),
        (lambda: neaptide.apply(neaptide.Plan(()), never, on_mismatch="foo"), "on_mismatch='foo'"),
        (lambda: neaptide.apply(b"", never), "a plan is wanted, not a bytes"),
        (lambda: neaptide.explain(3), "a plan is wanted, not a int"),
        (lambda: neaptide.run(never, neaptide.Plan(()), steps=0), "steps=0 is not possible"),
        (lambda: neaptide.plan(never, budget="60%", seed=-1), "seed=-1 is not possible"),
        (lambda: neaptide.plan(never, budget="60%", work_limit=0), "work_limit=0 is not possible"),
        (lambda: neaptide.compile_step(never, budget="60%", seed=True), "seed=True is not possible"),
        (lambda: neaptide.plan("step", torch.ones(1), budget="60%"), "the step is a str"),
        (lambda: neaptide.plan(deep_factory, budget="60%"), "a factory was given as the step"),
        (lambda: neaptide.compare(lambda batch: batch, budget="60%"), "a factory is wanted"),
        (lambda: neaptide.compare(lambda: 3), "the factory returned a int"),
        (lambda: neaptide.compare(lambda: (1, 2)), "the factory returned a tuple of 2"),
        (lambda: neaptide.compare(never, also=["best"]), "no strategy is called 'best'"),
        (lambda: neaptide.plan(never, budget="60%", numeric="close"), "plan takes no option 'numeric'"),
        (
            lambda: neaptide.compile_step(never, budget="60%", device="h100"),
            "compile_step takes no option 'device'",
        ),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(call, told):
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.what.startswith(told)
    assert caught.value.next_step
    if "strategy" in told:
        assert "default" in caught.value.next_step


def test_the_nearest_option_is_told():
    with pytest.raises(UsageError) as caught:
        neaptide.compile_step(never, budget="60%", allow_nondeterminism=True)
    assert caught.value.next_step.startswith("did you mean allow_nondeterministic?")


@pytest.mark.parametrize("name", [name for name in neaptide.__all__ if name[0].islower()])
def test_no_function_names_more_than_eight_arguments(name):
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(getattr(neaptide, name)).parameters.values()
    assert sum(one.kind in named for one in parameters) <= 8


@together(
    "call",
    [
        lambda step: neaptide.plan(step, budget="60%"),
        neaptide.profile,
        lambda step: neaptide.compile_step(step, budget="60%")(),
        lambda step: neaptide.plan(step, torch.ones(1), 2, budget="60%"),
    ],
)
def test_a_call_with_other_arguments_says_what_the_step_takes(call):
    with pytest.raises(CaptureError, match=r"the step was called with .*, and takes \(x"):
        call(deep_factory()[0])


def test_capturing_leaves_nothing_on_stderr(capfd):
    model, optimizer, _, batch = deep()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def scheduled(rows: torch.Tensor) -> None:
        model(rows).sum().backward()
        optimizer.step()
        scheduler.step()

    def broken(rows: torch.Tensor) -> torch.Tensor:
        return model(rows) @ torch.ones(7, 2)

    neaptide.profile(scheduled, batch)
    with pytest.raises(CaptureError):
        neaptide.profile(broken, batch)
    assert capfd.readouterr().err == ""


def test_a_budget_out_of_reach_carries_the_best_plan_and_what_is_alive():
    model, optimizer, step, batch = deep()
    before = [tensor.clone() for tensor in model.state_dict().values()]
    with pytest.raises(InfeasibleBudget) as caught:
        neaptide.plan(step, batch, budget="20%", **QUICK)
    error = caught.value
    program = error.plan.program("steady")
    assert error.smallest_peak_bytes == program.predictions.peak_with_workspace_bytes
    assert program.budget_bytes < error.lower_bound_bytes <= error.smallest_peak_bytes
    assert error.live
    assert any("KiB" in name for name in error.live)
    assert "no schedule of these operations needs less" in error.why
    assert str(error).count(format_bytes(error.smallest_peak_bytes)) == 1, "said once"
    after = model.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not optimizer.state
    fast = error.plan.apply(step)
    fast(batch)
    assert fast.counts.planned == 1


def test_a_limit_on_time_that_cannot_be_kept_says_so_in_time():
    _, _, step, batch = deep()
    budget = neaptide.Budget(peak="62%", latency="+0%")
    with pytest.raises(InfeasibleBudget, match="takes at most") as caught:
        neaptide.plan(step, batch, budget=budget, device="rtx3090", **QUICK)
    assert "over the baseline" in caught.value.why


def test_a_comparison_that_is_interrupted_runs_nothing():
    interrupt = threading.Event()

    def stop_when_searching(text: str) -> None:
        assert not text.startswith(("verifying", "measuring"))
        if text.startswith("planning"):
            interrupt.set()

    compared = neaptide.compare(
        deep_factory, budget="100%", interrupt=interrupt, progress=stop_when_searching, arena=True
    )
    assert [row.name for row in compared.rows] == ["baseline", "plan"]
    assert all(row.measured_peak_bytes is None for row in compared.rows)
    assert "interrupted, so nothing was run" in compared.notes


def test_a_comparison_that_measures_has_nothing_to_finish_with():
    seen = []

    def note(text: str) -> None:
        seen.append((text.split(maxsplit=1)[0], is_beyond_search()))

    with cutting(threading.Event()):
        neaptide.compare(deep_factory, repeats=1, progress=note)
    assert seen[0] == ("capturing", False)
    assert ("measuring", True) in seen


def test_a_plan_is_explained_from_its_file(tmp_path):
    _, _, step, batch = deep()
    plan = neaptide.plan(step, batch, budget="95%", device="rtx3090", **QUICK)
    plan.save(tmp_path / "plan.json")
    assert f"--plan {tmp_path / 'plan.json'}" in neaptide.explain(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="cannot be read"):
        neaptide.explain(str(tmp_path / "nothing.json"))


def test_a_step_without_an_optimizer_leaves_gradients():
    model = nn.Linear(64, 64)

    def step(rows: torch.Tensor) -> torch.Tensor:
        loss = model(rows).sum()
        loss.backward()
        return loss.detach()

    report = neaptide.profile(step, torch.randn(2, 64), device="rtx3090")
    kinds = {row.name: row.kind for row in report.live_at_peak}
    assert "gradient" in kinds.values()
    assert kinds["weight"] == "parameter"
    assert kinds["batch"] == "input"


@pytest.mark.slow
def test_a_comparison_out_of_budget_measures_the_lowest_plan():
    compared = neaptide.compare(deep_factory, budget="20%", repeats=1, **QUICK)
    row = compared.row("plan")
    assert row.measured_peak_bytes == row.predicted_peak_bytes
    assert row.bitwise_equal
    assert row.predicted_peak_with_workspace_bytes > compared.budget_bytes
    assert format_bytes(row.predicted_peak_with_workspace_bytes) in compared.budget_missed
    assert "live at that peak" in compared.budget_missed
    text = comparison_document(compared).plain()
    assert f"Not reached: {compared.budget_missed}." in text
    assert not is_within_budget(compared)
    within = neaptide.compare(deep_factory, budget="100%", repeats=1, eager=False, **QUICK)
    assert within.budget_missed == ""
    assert is_within_budget(within)
