"""Python numbers that change from call to call: inputs where that is possible, guards elsewhere."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from frontends.steps import update
from neaptide.frontends.torch_step import capture_step
from step_checks import planned


def weighted(settings):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch, weight=1.0):
        return update(model(batch).square().mean() * (weight * settings.scale), optimizer)

    return model, step


def test_a_float_that_changes_costs_one_plan():
    model, step = weighted(SimpleNamespace(scale=0.5))
    settings = SimpleNamespace(scale=0.5)
    twin, twin_step = weighted(settings)
    batch = torch.randn(5, 4)
    run = planned(twin_step, batch, further=(0.25,))
    for weight in (0.25, 0.5, 2.0, 0.125):
        assert torch.equal(step(batch, weight), run(batch, weight))
    assert run.counts.replans == 1
    assert torch.equal(model.weight, twin.weight)


def test_numbers_that_change_may_be_returned():
    def with_numbers(settings):
        model, plain = weighted(settings)
        return model, lambda batch, weight, epoch: {
            "loss": plain(batch, weight) * epoch,
            "weight": weight,
            "next": epoch + 1,
        }

    model, step = with_numbers(SimpleNamespace(scale=0.5))
    twin, twin_step = with_numbers(SimpleNamespace(scale=0.5))
    batch = torch.randn(5, 4)
    run = planned(twin_step, batch, further=(0.25, 1))
    for epoch, weight in enumerate((0.25, 0.5, 2.0, 0.125), 1):
        expected, found = step(batch, weight, epoch), run(batch, weight, epoch)
        assert torch.equal(expected.pop("loss"), found.pop("loss"))
        assert found == expected
        assert list(map(type, found.values())) == [float, int]
    assert run.counts.replans == 1
    assert torch.equal(model.weight, twin.weight)


def test_a_float_of_the_state_is_an_input_when_asked_for():
    settings = SimpleNamespace(scale=0.5)
    _, step = weighted(settings)
    batch = torch.randn(5, 4)
    captured = capture_step(step, (batch,), changing=frozenset({"settings.scale"}))
    assert settings.scale == 0.5
    assert [slot.name for slot in captured.steady.inputs if slot.role == "rate"][-1] == "settings.scale"
    before = captured.signature
    settings.scale = 0.75
    assert captured.reader.read((batch,), {}) == before


def test_floats_that_changed_are_told_from_other_differences():
    settings = SimpleNamespace(scale=0.5)
    model, step = weighted(settings)
    batch = torch.randn(5, 4)
    captured = capture_step(step, (batch,))
    settings.scale = 0.75
    now = captured.reader.read((batch,), {})
    assert now.changed_numbers(captured.signature) == {"settings.scale"}
    model.eval()
    assert captured.reader.read((batch,), {}).changed_numbers(captured.signature) is None


def test_of_a_float_that_decides_a_branch_only_the_branch_is_guarded():
    def factory():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(batch, weight):
            loss = model(batch).square().mean()
            if weight > 0.5:
                loss = loss * weight
            return update(loss, optimizer)

        return model, step

    (model, step), (twin, twin_step) = factory(), factory()
    batch = torch.randn(5, 4)
    run = planned(twin_step, batch, further=(0.75,))
    replans = []
    for weight in (0.75, 0.625, 2.0, 0.25, 0.125, 0.875, 0.0):
        assert torch.equal(step(batch, weight), run(batch, weight))
        replans.append(run.counts.replans)
    assert replans == [0, 1, 1, 2, 2, 2, 2]
    assert torch.equal(model.weight, twin.weight)


def test_a_float_whose_type_is_asked_for_stays_a_guard():
    """A symbol is no `float`: the trace would take another branch in silence."""
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch, weight):
        loss = model(batch).square().mean() * (weight if isinstance(weight, float) else 1.0)
        return update(loss, optimizer)

    captured = capture_step(step, (torch.randn(5, 4), 0.75), changing=frozenset({"batch[1]"}))
    assert captured.changing == frozenset()


def test_whole_numbers_that_change_cost_one_plan_beside_one_that_is_a_size():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch, epoch, rows):
        loss = model(batch[:rows]).square().mean() * max(0.1, 1.0 - epoch / 10)
        if epoch >= 3:
            loss = loss * 0.5
        return update(loss, optimizer)

    twin = copy.deepcopy(model)
    batch = torch.randn(5, 4)
    run = planned(step, batch, further=(0, 5))
    replans = []
    for epoch, rows in ((0, 5), (1, 5), (2, 5), (2, 4), (4, 4), (5, 4)):
        expected = torch.nn.Linear(4, 3)
        expected.load_state_dict(model.state_dict())
        loss = expected(batch[:rows]).square().mean() * max(0.1, 1.0 - epoch / 10)
        loss = loss * 0.5 if epoch >= 3 else loss
        assert torch.equal(run(batch, epoch, rows), loss.detach())
        replans.append(run.counts.replans)
    assert replans == [0, 1, 1, 2, 3, 3]
    assert not torch.equal(twin.weight, model.weight)


def test_doubles_of_numpy_are_inputs_as_floats_are():
    settings, twin_settings = SimpleNamespace(scale=np.float64(0.5)), SimpleNamespace(scale=np.float64(0.5))
    model, step = weighted(settings)
    twin, twin_step = weighted(twin_settings)
    batch = torch.randn(5, 4)
    run = planned(twin_step, batch, further=(np.float64(0.25),))
    for weight in np.linspace(0.25, 1.5, 5):
        settings.scale = twin_settings.scale = np.cos(weight)
        assert torch.equal(step(batch, weight), run(batch, weight))
    assert run.counts.replans <= 2
    assert torch.equal(model.weight, twin.weight)


def test_a_rate_that_numpy_computes_costs_one_plan():
    def scheduled():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(batch):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    (model, optimizer, step), (twin, twin_optimizer, twin_step) = scheduled(), scheduled()
    batch = torch.randn(5, 4)
    run = planned(twin_step, batch)
    for epoch in range(6):
        for group in (*optimizer.param_groups, *twin_optimizer.param_groups):
            group["lr"] = 0.05 * (1 + np.cos(np.pi * epoch / 6))
        step(batch)
        run(batch)
        assert torch.equal(model.weight, twin.weight)
    assert run.counts.replans <= 2


def test_a_double_of_numpy_that_is_returned_comes_back_as_one():
    _, plain = weighted(SimpleNamespace(scale=0.5))
    batch = torch.randn(5, 4)
    run = planned(lambda batch, weight: (plain(batch, weight), weight), batch, further=(np.float64(0.25),))
    for weight in np.linspace(0.25, 1.5, 3):
        _, found = run(batch, weight)
        assert (type(found), found) == (np.float64, weight)
