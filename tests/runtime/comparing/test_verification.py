from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.frontends.torch_step import capture_step
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import (
    GROUPS,
    StepRecord,
    captured_tolerance,
    compare_records,
    perturbed_eager,
    record_eager,
    record_planned,
    verify_eager,
    verify_planned,
)
from neaptide.runtime.measuring.tolerance import Tolerance
from neaptide.runtime.steps.planned_step import PlannedStep
from support import catalogue
from support.step_checks import as_variant, needs_varying_dims, verify
from support.together import together


def records(change=lambda _model: None):
    """Eager's record and that of a planned step on a model that was changed in between."""
    torch.manual_seed(0)
    step, batch = steps.batch_norm()
    expected = record_eager(step, (batch,), steps=2, seed=1)
    torch.manual_seed(0)
    step, batch = steps.batch_norm()
    captured = catalogue.captured_on(steps.batch_norm, step, batch)
    runner = PlannedStep(step, contestants.never_again, as_variant(captured))
    change(next(iter(captured.state.modules.values())))
    return record_planned(runner, captured.state, (batch,), steps=2, seed=1), expected


def test_equal_steps_have_equal_records_in_every_group():
    found, expected = records()
    outcome = compare_records(found, expected)
    assert outcome.bitwise_equal
    assert outcome.max_abs_diff == dict.fromkeys(GROUPS, 0.0)
    assert outcome.worst == {}
    assert all(expected.tensors[group] for group in GROUPS)
    assert {name.split()[1] for name in expected.tensors["gradients"]} == {"0", "1"}


def test_a_result_that_autograd_sees_otherwise_is_a_difference(monkeypatch):
    def factory():
        net = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            loss = net(x).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return step, torch.ones(3, 4)

    assert verify(factory).bitwise_equal
    monkeypatch.setattr("neaptide.runtime.calls.binding.attached", lambda tensor, is_leaf: tensor)
    outcome = verify(factory)
    assert not outcome.bitwise_equal
    assert not outcome.agrees
    assert outcome.worst == {"loss": "step 0 result 0, in requires_grad, is_leaf or grad_fn"}
    assert set(outcome.max_abs_diff.values()) == {0.0}


def test_a_difference_is_found_in_every_group_it_reaches():
    def change(model: nn.Module) -> None:
        with torch.no_grad():
            next(model.parameters())[0] += 1e-3

    outcome = compare_records(*records(change))
    assert not outcome.bitwise_equal
    assert set(outcome.worst) == set(GROUPS)
    assert all(0 < difference < math.inf for difference in outcome.max_abs_diff.values())


def one(**tensors):
    record = StepRecord(random_states=(bytes(3),))
    record.tensors["parameters"] = tensors
    return record


def test_bits_and_numbers_are_compared_apart():
    plus, minus = one(w=torch.tensor([0.0])), one(w=torch.tensor([-0.0]))
    outcome = compare_records(plus, minus)
    assert outcome.max_abs_diff["parameters"] == 0
    assert not outcome.bitwise_equal
    nan = one(w=torch.tensor([math.nan, 1.0]))
    assert compare_records(nan, nan).bitwise_equal
    assert compare_records(nan, one(w=torch.tensor([2.0, 1.0]))).max_abs_diff["parameters"] == math.inf


def test_missing_tensors_and_other_shapes_are_infinitely_far():
    whole = one(w=torch.ones(2), b=torch.ones(1))
    for other in (one(w=torch.ones(2)), one(w=torch.ones(3), b=torch.ones(1)), one()):
        outcome = compare_records(other, whole)
        assert outcome.max_abs_diff["parameters"] == math.inf
        assert not outcome.bitwise_equal


def test_another_random_state_is_a_difference():
    a, b = one(w=torch.ones(1)), one(w=torch.ones(1))
    b.random_states = (bytes([1, 1, 1]),)
    outcome = compare_records(a, b)
    assert not outcome.bitwise_equal
    assert outcome.worst == {}


def test_a_model_that_only_host_code_behind_the_program_uses_changes_no_name():
    def factory():
        model = steps.net()
        average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=None)
        optimizer = steps.sgd(model)

        def step(x):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            return loss.detach()

        return step, steps.batch()

    expected = verify_eager(factory, seed=0)
    step, batch = contestants.build(factory, 0)
    make = contestants.rebind(as_variant(capture_step(step, (batch,))))
    outcome, record = verify_planned(factory, 0, make, expected)
    assert record.tensors["gradients"].keys() == expected.tensors["gradients"].keys()
    assert outcome.bitwise_equal, outcome.worst


def steps_of(parameter, gradient, dtype=torch.float32):
    """The record of one step of one parameter."""
    record = StepRecord(random_states=(bytes(3),))
    record.tensors["parameters"] = {"w": torch.tensor(parameter, dtype=dtype)}
    record.tensors["gradients"] = {"step 0 w.grad@0": torch.tensor(gradient, dtype=dtype)}
    return record


@together(
    ("parameter", "gradient", "agrees"),
    [
        ([1.0, 1.0], [0.5, 0.0], True),
        ([1.0, 1.0001], [0.5, 0.0], True),  # within half of the digits
        ([1.0, 1.01], [0.5, 1e-7], True),  # a step of Adam along what is nothing but rounding
        ([1.01, 1.0], [0.5, 0.0], False),
        ([1.0, 1.01], [0.5, 1e-3], False),
        ([1.0, 1.0], [0.501, 0.0], False),
        ([1.0, 1.0], [0.5, 3e-6], True),
        ([1.0, float("nan")], [0.5, 0.0], False),
    ],
)
def test_sums_in_another_order_may_differ_by_their_rounding(parameter, gradient, agrees):
    tolerance = Tolerance(torch.finfo(torch.float32).eps, 4096)
    expected = steps_of([1.0, 1.0], [0.5, gradient[1] if gradient[1] > 1e-4 else 0.0])
    assert compare_records(steps_of(parameter, gradient), expected, tolerance).agrees is agrees
    exact = parameter == [1.0, 1.0] and gradient == expected.tensors["gradients"]["step 0 w.grad@0"].tolist()
    assert compare_records(steps_of(parameter, gradient), expected).agrees is exact


@needs_varying_dims
def test_the_deepest_sum_is_that_of_the_captured_program_at_the_sizes_of_a_batch():
    net = nn.Linear(24, 3)

    def step(x):
        loss = net(x).square().sum()
        loss.backward()
        return loss.detach()

    dims = {"x": {0: torch.export.Dim("rows", min=2, max=400)}}
    captured = capture_step(step, (torch.ones(9, 24),), dynamic=dims)
    for rows, terms in ((5, 24), (70, 3 * 70)):  # the width, or all squares
        assert captured_tolerance(captured, torch.ones(rows, 24)).terms == terms


def test_each_entry_of_an_optimizers_state_has_a_scale_of_its_own():
    def state(moment):
        record = StepRecord(random_states=(bytes(3),))
        record.tensors["optimizer_state"] = {
            "adam.w.step": torch.tensor([3.0]),
            "adam.w.exp_avg_sq": torch.tensor([moment]),
        }
        return record

    tolerance = Tolerance(torch.finfo(torch.float32).eps, 4096)
    assert compare_records(state(1.00001e-10), state(1e-10), tolerance).agrees
    assert not compare_records(state(2e-10), state(1e-10), tolerance).agrees


def cancelling_step(parts, wrong=1.0):
    """Gradients that cancel are roundings, of which Adam makes whole steps; the next gradients are made of these."""

    def factory():
        rows = torch.randn(60, 256)
        w, p, q = (nn.Parameter(t) for t in (torch.ones(60, 1), torch.zeros(256), torch.zeros(256)))
        optimizer = torch.optim.Adam([w, p, q], lr=0.1, eps=1e-30)

        def step(x):
            optimizer.zero_grad()
            shares = sum(part.sum(0) for part in (x * w).split(-(-len(x) // parts)))
            loss = shares @ p + wrong * (p * q).sum() + (w * w).sum() / 100
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, rows - rows.mean(0)

    return factory


def test_what_training_magnifies_is_told_by_eager_itself_and_a_fault_is_no_rounding():
    tolerance = Tolerance(torch.finfo(torch.float32).eps, 4096)
    expected = verify_eager(cancelling_step(1), 0)
    perturbed = [perturbed_eager(cancelling_step(1), 0, tolerance.eps)]
    found = verify_eager(cancelling_step(7), 0)
    assert not compare_records(found, expected, tolerance).agrees
    assert compare_records(found, expected, tolerance, perturbed).agrees
    assert not compare_records(found, expected).agrees
    for wrong in (40.0, float("nan")):
        found = verify_eager(cancelling_step(1, wrong), 0)
        assert not compare_records(found, expected, tolerance, perturbed).agrees
    again = verify_eager(cancelling_step(1), 0)
    first = {n: g for n, g in again.tensors["gradients"].items() if n.startswith("step 0 ")}
    name = max(first, key=lambda n: float(first[n].abs().max()))
    again.tensors["gradients"][name] = first[name] * 1.01
    assert not compare_records(again, expected, tolerance, perturbed).agrees


def test_gradients_of_complex_parameters_are_compared_as_numbers():
    def factory():
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(7, dtype=torch.cfloat))
        optimizer = torch.optim.SGD([weight], lr=0.05)

        def step(x):
            loss = ((weight * x).conj() * weight.conj()).real.square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step, torch.randn(9, 7, dtype=torch.cfloat)

    outcome = verify(factory)
    assert outcome.bitwise_equal, outcome.worst
    assert not any(outcome.max_abs_diff.values())


def test_hooks_on_the_optimizer_are_gone_after_an_eager_record():
    step, batch = steps.mlp()
    record_eager(step, (batch,), steps=1, seed=0)
    optimizer = next(iter(capture_step(step, (batch,)).state.optimizers.values()))
    assert not optimizer._optimizer_step_pre_hooks


@together(
    ("dtype", "terms", "roundings"),
    [
        (torch.float32, 1, 1.0),
        (torch.float32, 100, 10.0),
        (torch.float32, 4096, 64.0),
        (torch.float32, 2**20, 1024.0),
        (torch.bfloat16, 64, 8.0),
        (torch.bfloat16, 4096, 128**0.5),  # no sum of so many terms is taken in bfloat16
        (torch.float16, 10**6, 32.0),
    ],
)
def test_noise_is_the_rounding_of_the_deepest_sum(dtype, terms, roundings):
    eps = torch.finfo(dtype).eps
    tolerance = Tolerance(eps, terms)
    assert tolerance.noise(2.0) == pytest.approx(2.0 * roundings * eps)
    beside = tolerance.allowed(torch.ones(3, dtype=dtype), 2.0) - math.sqrt(eps)
    assert beside == pytest.approx(2.0 * roundings * eps, rel=1e-6)
    assert terms > 4096 or tolerance.noise(1.0) <= 64 * eps


def test_an_imaginary_part_that_differs_is_a_difference():
    found, expected = (one(w=torch.tensor([1.0 + part * 1j])) for part in (0.5, 0.25))
    outcome = compare_records(found, expected, Tolerance(torch.finfo(torch.float32).eps, 4096))
    assert outcome.max_abs_diff["parameters"] == 0.25
    assert not outcome.agrees
