"""Python numbers that change from call to call: inputs where that is possible, guards elsewhere."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from frontends.steps import update
from neaptide.frontends.torch_step import capture_step
from support.step_checks import planned


def trained(loss_of, optimizer=torch.optim.SGD):
    """A model, its optimizer, and a step with the loss that is made of the model and the arguments."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = optimizer(model.parameters(), lr=0.1)
    return model, optimizer, lambda *args: update(loss_of(model, *args), optimizer)


def weighted(settings):
    return trained(lambda model, batch, weight=1.0: model(batch).square().mean() * (weight * settings.scale))


def told(result):
    """A result as data that compares, numbers with their types."""
    if isinstance(result, torch.Tensor):
        return result.tolist()
    if isinstance(result, dict):
        return [(name, told(part)) for name, part in result.items()]
    return [told(part) for part in result] if isinstance(result, tuple) else (type(result), result)


def plans(make, calls, between=lambda call, optimizer: None, wrap=lambda step: step):
    """How many further plans there are after each call; results and weights are those of eager."""
    (model, optimizer, step), (twin, twin_optimizer, twin_step) = make(), make()
    batch = torch.randn(5, 4)
    run, step, found = planned(wrap(twin_step), batch, further=calls[0]), wrap(step), []
    for call in calls:
        between(call, optimizer)
        between(call, twin_optimizer)
        assert told(step(batch, *call)) == told(run(batch, *call))
        found.append(run.counts.replans)
    assert torch.equal(model.weight, twin.weight)
    return found


def test_a_float_that_changes_costs_one_plan():
    calls = [(weight,) for weight in (0.25, 0.5, 2.0, 0.125)]
    assert plans(lambda: weighted(SimpleNamespace(scale=0.5)), calls)[-1] == 1


def test_numbers_that_change_may_be_returned():
    def wrap(plain):
        return lambda batch, weight, epoch: {
            "loss": plain(batch, weight) * epoch,
            "weight": weight,
            "next": epoch + 1,
        }

    calls = [(weight, epoch) for epoch, weight in enumerate((0.25, 0.5, 2.0, 0.125), 1)]
    assert plans(lambda: weighted(SimpleNamespace(scale=0.5)), calls, wrap=wrap)[-1] == 1


def test_a_float_of_the_state_is_an_input_when_asked_for():
    settings = SimpleNamespace(scale=0.5)
    *_, step = weighted(settings)
    batch = torch.randn(5, 4)
    captured = capture_step(step, (batch,), changing=frozenset({"settings.scale"}))
    assert settings.scale == 0.5
    assert [slot.name for slot in captured.steady.inputs if slot.role == "rate"][-1] == "settings.scale"
    before = captured.signature
    settings.scale = 0.75
    assert captured.reader.read((batch,), {}) == before


def test_floats_that_changed_are_told_from_other_differences():
    settings = SimpleNamespace(scale=0.5)
    model, _, step = weighted(settings)
    batch = torch.randn(5, 4)
    captured = capture_step(step, (batch,))
    settings.scale = 0.75
    now = captured.reader.read((batch,), {})
    assert now.changed_numbers(captured.signature) == {"settings.scale"}
    model.eval()
    assert captured.reader.read((batch,), {}).changed_numbers(captured.signature) is None


def test_of_a_float_that_decides_a_branch_only_the_branch_is_guarded():
    def loss_of(model, batch, weight):
        loss = model(batch).square().mean()
        return loss * weight if weight > 0.5 else loss

    calls = [(weight,) for weight in (0.75, 0.625, 2.0, 0.25, 0.125, 0.875, 0.0)]
    assert plans(lambda: trained(loss_of), calls) == [0, 1, 1, 2, 2, 2, 2]


def test_a_float_whose_type_is_asked_for_stays_a_guard():
    """A symbol is no `float`: the trace would take another branch in silence."""

    def loss_of(model, batch, weight):
        return model(batch).square().mean() * (weight if isinstance(weight, float) else 1.0)

    *_, step = trained(loss_of)
    captured = capture_step(step, (torch.randn(5, 4), 0.75), changing=frozenset({"batch[1]"}))
    assert captured.changing == frozenset()


def test_whole_numbers_that_change_cost_one_plan_beside_one_that_is_a_size():
    def loss_of(model, batch, epoch, rows):
        loss = model(batch[:rows]).square().mean() * max(0.1, 1.0 - epoch / 10)
        return loss * 0.5 if epoch >= 3 else loss

    calls = [(0, 5), (1, 5), (2, 5), (2, 4), (4, 4), (5, 4)]
    assert plans(lambda: trained(loss_of), calls) == [0, 1, 1, 2, 3, 3]


def test_doubles_of_numpy_are_inputs_as_floats_are():
    settings = SimpleNamespace(scale=np.float64(0.5))

    def between(call, _optimizer):
        settings.scale = np.cos(call[0])

    calls = [(weight,) for weight in np.linspace(0.25, 1.5, 5)]
    assert plans(lambda: weighted(settings), calls, between)[-1] <= 2


def test_a_rate_that_numpy_computes_costs_one_plan():
    def between(call, optimizer):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + np.cos(np.pi * call[0] / 6))

    def make():
        return trained(lambda model, batch, _epoch: model(batch).square().mean(), torch.optim.AdamW)

    assert plans(make, [(epoch,) for epoch in range(6)], between)[-1] <= 2


def test_a_double_of_numpy_that_is_returned_comes_back_as_one():
    calls = [(weight,) for weight in np.linspace(0.25, 1.5, 3)]
    plans(
        lambda: weighted(SimpleNamespace(scale=0.5)),
        calls,
        wrap=lambda plain: lambda batch, weight: (plain(batch, weight), weight),
    )
