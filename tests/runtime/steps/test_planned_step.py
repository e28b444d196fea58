"""Calls of a planned step: guards, variants, what a step that dies leaves behind."""

from __future__ import annotations

import functools
import gc
import logging
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import CaptureError, StepInterrupted, StepMismatch
from neaptide.outcome import Limits
from neaptide.policy.prepared_step import prepare
from neaptide.runtime.comparing import contestants
from neaptide.runtime.steps import planned_step
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.planned_step import PlannedStep
from support.dispatch_modes import DiesAt
from support.step_checks import planned

LIMITS = Limits(work=200)


class Made:
    """A model, its optimizer, its step and a batch, and a copy of everything that a step changes."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        self.model, self.optimizer, self.batch = model, optimizer, batch
        self.step = steps.simple(model, optimizer)

    def state(self) -> dict[str, torch.Tensor]:
        found = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, entry in self.optimizer.state.get(parameter, {}).items():
                if isinstance(entry, torch.Tensor):
                    found[f"{name}.{key}"] = entry.clone()
        found["random"] = torch.get_rng_state()
        return found


def normed(*, dropout: float = 0.0) -> Made:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Conv2d(4, 2, 3),
        nn.BatchNorm2d(2),
    )
    return Made(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.randn(2, 3, 6, 6))


def plain() -> Made:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))
    return Made(model, torch.optim.AdamW(model.parameters(), lr=0.01), torch.randn(5, 4))


@functools.cache
def variant_of(make: Callable[[], Made], *, atomic: bool) -> PlannedVariant:
    made = make()
    prepared = prepare(made.step, (made.batch,), run_operations=False)
    return prepared.plan(Ask(Budget("100%"), limits=LIMITS, atomic=atomic)).variant


def with_plan(make: Callable[[], Made], *, atomic: bool = False, warm: int = 0) -> tuple[Made, PlannedStep]:
    """Fresh objects under a plan that was made once; their programs are lowered and some steps have run."""
    made = make()
    variant = contestants.rebind(variant_of(make, atomic=atomic))(made.step, made.batch)
    runner = PlannedStep(made.step, _never, variant, on_mismatch="error")
    for _ in range(warm):
        runner(made.batch)
    runner._select((made.batch,), {})
    return made, runner


def _never(_args: Any, _kwargs: Any, _changing: frozenset[str]) -> PlannedVariant:
    raise AssertionError("planned again")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def operations(make: Callable[[], Made], *, atomic: bool, warm: int) -> int:
    made, runner = with_plan(make, atomic=atomic, warm=warm)
    with DiesAt(0) as counter:
        runner(made.batch)
    return counter.count


# -- a step that dies


@pytest.mark.parametrize(
    ("make", "atomic", "warm", "every"),
    [
        (plain, False, 1, 7),
        (normed, True, 0, 7),
        *(
            pytest.param(make, atomic, warm, 1, marks=pytest.mark.slow)
            for make in (plain, normed)
            for atomic in (False, True)
            for warm in (0, 1)
        ),
    ],
)
def test_a_step_that_dies_anywhere_is_undone_or_reported(make, atomic, warm, every):
    whole, expected = with_plan(make, atomic=atomic, warm=warm)
    expected(whole.batch)
    wanted = whole.state()
    undone = reported = 0
    for number in range(1, operations(make, atomic=atomic, warm=warm) + 1, every):
        made, runner = with_plan(make, atomic=atomic, warm=warm)
        before = made.state()
        with DiesAt(number) as mode, pytest.raises(RuntimeError, match="on fire"):
            runner(made.batch)
        now = made.state()
        if runner._interrupted:
            reported += 1
            with pytest.raises(StepInterrupted) as caught:
                runner(made.batch)
            names = [name for name in before if name != "random" and not torch.equal(before[name], now[name])]
            told = caught.value.updated
            assert all(any(each.endswith(name) for each in told) for name in names if "." in name)
            assert same(now, made.state()), "the refused call changes nothing"
        else:
            undone += 1
            assert same(before, now), mode.op
            runner(made.batch)
            assert same(made.state(), wanted), f"after {mode.op} the next call goes another way"
    assert undone
    assert reported
    if atomic:
        assert reported < undone


def test_notes_name_the_users_line_the_generated_line_and_what_became_of_the_model():
    made, runner = with_plan(plain, warm=1)
    with DiesAt(30), pytest.raises(RuntimeError) as caught:
        runner(made.batch)
    text = "".join(traceback.format_exception(caught.value))
    assert "steps.py:" in "\n".join(caught.value.__notes__)
    assert "program: line " in text
    assert "after: nothing of the model has changed; the step can be called again" in text


def test_an_interrupt_from_the_keyboard_is_handled_like_an_error():
    made, runner = with_plan(plain, warm=1)
    before = made.state()
    with DiesAt(30, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        runner(made.batch)
    assert same(before, made.state())
    runner(made.batch)
    last = operations(plain, atomic=False, warm=1)
    with DiesAt(last, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        runner(made.batch)
    with pytest.raises(StepInterrupted) as caught:
        runner(made.batch)
    assert any("weight" in name for name in caught.value.updated)
    assert caught.value.next_step
    runner.reset()
    runner(made.batch)


def test_a_held_error_keeps_no_activation_alive():
    made, runner = with_plan(normed, atomic=True, warm=1)
    owned = {t.untyped_storage().data_ptr() for t in [*runner.persistent(), made.batch]}
    live: list[weakref.ref[Any]] = []

    class Watching(DiesAt):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = super().__torch_dispatch__(func, types, args, kwargs)
            if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in owned:
                live.append(weakref.ref(out.untyped_storage()))
            return out

    with Watching(60) as _:
        try:
            runner(made.batch)
        except RuntimeError as error:
            held = error
    gc.collect()
    assert len(live) > 5
    assert not [ref for ref in live if ref() is not None]
    assert held.__notes__


# -- gradients that exist before the step


def clearing_first(model, other, optimizer):
    """A step that clears gradients before it computes any, and reads another parameter without training it."""

    def step(batch):
        optimizer.zero_grad()
        loss = (model(batch) * other.detach()).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_a_gradient_that_the_step_throws_away_is_gone_when_it_dies_and_the_rest_stays():
    model, other = nn.Linear(4, 4), nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = clearing_first(model, other, optimizer)
    batch = torch.randn(3, 4)
    other.grad = torch.ones(4)
    runner = planned(step, batch)
    runner(batch)
    assert model.weight.grad is not None
    runner._select((batch,), {})
    with DiesAt(12), pytest.raises(RuntimeError):
        runner(batch)
    assert model.weight.grad is None
    assert other.grad is not None
    runner(batch)
    assert other.grad.tolist() == [1, 1, 1, 1]


# -- calls that differ


def test_mismatches_are_counted_by_reason_and_replanned_once():
    made = plain()
    runner = planned(made.step, made.batch, key=plain)
    for batch in (made.batch, made.batch[:3], made.batch, made.batch[:3]):
        runner(batch)
    assert (runner.counts.planned, runner.counts.eager, runner.counts.replans) == (4, 0, 1)
    ((reason, count),) = runner.counts.mismatches.items()
    assert reason == "batch has shape (3, 4), was (5, 4)"
    assert count == 1
    assert "1 replanned" in runner.counts.describe()


def test_eager_calls_and_errors_are_counted_too():
    made = plain()
    eager = planned(made.step, made.batch, key=plain, on_mismatch="eager")
    eager(made.batch)
    for _ in range(2):
        eager(made.batch[:3])
    assert (eager.counts.planned, eager.counts.eager) == (1, 2)
    assert list(eager.counts.mismatches.values()) == [2]
    strict = planned(made.step, made.batch, key=plain, on_mismatch="error")
    before = made.state()
    with pytest.raises(StepMismatch, match=r"\(3, 4\)") as caught:
        strict(made.batch[:3])
    assert "replan" in caught.value.next_step
    assert same(before, made.state())
    assert strict.counts.planned == 0


@pytest.mark.parametrize("change", ["mode", "hyper", "frozen", "dtype"])
def test_flags_hyper_parameters_and_requires_grad_are_guarded(change):
    made = plain()
    runner = planned(made.step, made.batch, key=plain, on_mismatch="error")
    runner(made.batch)
    batch, told = made.batch, ""
    if change == "mode":
        made.model.eval()
        told = "training is False, was True"
    elif change == "hyper":
        made.optimizer.param_groups[0]["weight_decay"] = 0.5
        told = "weight_decay is 0.5"
    elif change == "frozen":
        made.model[0].weight.requires_grad_(False)
        told = "0.weight has requires_grad False, was True"
    else:
        batch, told = batch.double(), "is float64, was float32"
    with pytest.raises(StepMismatch, match=told):
        runner(batch)


def test_the_least_recently_used_plan_goes_when_there_are_many(monkeypatch, caplog):
    monkeypatch.setattr(planned_step, "MOST_VARIANTS", 2)
    made = plain()
    runner = planned(made.step, made.batch, key=plain)
    with caplog.at_level(logging.WARNING):
        for size in (5, 4, 5, 3, 5):
            runner(made.batch[:size])
        assert runner.counts.replans == 2
        runner(made.batch[:4])
    assert runner.counts.replans == 3, "4 was used least recently when 3 came"
    assert "kinds of calls were planned" in caplog.text
    assert len(runner._variants) == 2


def test_all_that_an_atomic_step_can_compute_comes_before_its_first_update():
    made, runner = with_plan(normed, atomic=True, warm=1)
    seen = []
    for number in range(1, operations(normed, atomic=True, warm=1) + 1):
        with DiesAt(number) as mode, pytest.raises(RuntimeError):
            runner(made.batch)
        if runner._interrupted:
            seen.append(mode.op)
            runner.reset()
    assert seen
    assert {op.split(".")[1] for op in seen} <= {"mul_", "add_", "mul", "detach"}


def test_dying_while_results_are_written_back_counts_as_updated(monkeypatch):
    made, runner = with_plan(plain)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("neaptide.runtime.calls.binding.pytree.tree_unflatten", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner(made.batch)
    with pytest.raises(StepInterrupted) as caught:
        runner(made.batch)
    assert len(caught.value.updated) >= 4


def test_a_step_that_begins_with_zero_grad_needs_the_bytes_that_were_predicted():
    """Its gradients live from one step to the next, and are let go of before anything is computed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(batch):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    batch = torch.randn(8, 32)
    found = prepare(step, (batch,), run_operations=False).plan(Ask(Budget("100%"), limits=LIMITS))
    runner = PlannedStep(step, _never, found.variant, on_mismatch="error")
    for _ in range(2):
        runner(batch)
    assert all(parameter.grad is not None for parameter in model.parameters())
    measured = contestants.measure_memory(runner, batch).measured_peak_bytes
    assert measured == found.plan.program("steady").predictions.peak_bytes


def test_a_gradient_that_nobody_knows_about_is_captured_again_rather_than_guessed():
    model, other = nn.Linear(4, 4), nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([*model.parameters(), other], lr=0.1)

    step = clearing_first(model, other, optimizer)
    batch = torch.randn(3, 4)
    runner = planned(step, batch)
    runner(batch)
    other.grad = torch.ones(4)
    runner(batch)
    assert runner.counts.replans == 1
    assert other.grad is None


def test_the_learning_rate_is_no_mismatch():
    made, reference = plain(), plain()
    runner = planned(made.step, made.batch, key=plain, on_mismatch="error")
    torch.manual_seed(1)
    for rate in (0.01, 0.5):
        made.optimizer.param_groups[0]["lr"] = rate
        runner(made.batch)
    torch.manual_seed(1)
    for rate in (0.01, 0.5):
        reference.optimizer.param_groups[0]["lr"] = rate
        reference.step(reference.batch)
    assert same(made.state(), reference.state())


def test_a_dropped_plan_lets_go_of_the_model_it_was_captured_with(monkeypatch):
    monkeypatch.setattr(planned_step, "MOST_VARIANTS", 1)
    holder = {"model": nn.Linear(4, 3)}
    batch = torch.randn(5, 4)

    def step(rows):
        model = holder["model"]
        loss = model(rows).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
        model.zero_grad()
        return loss.detach()

    runner = planned(step, batch)
    runner._make_variant = lambda args, _, __: planned(step, *args)._variants[0].planned
    runner(batch)
    old = weakref.ref(holder["model"])
    holder["model"] = nn.Linear(4, 3)
    runner(batch)
    gc.collect()
    assert runner.counts.replans == 1
    assert old() is None


def test_an_argument_that_cannot_be_guarded_is_refused():
    made = plain()
    runner = planned(made.step, made.batch, key=plain)
    with pytest.raises(CaptureError, match="object"):
        runner(object())
