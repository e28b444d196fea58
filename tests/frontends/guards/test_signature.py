"""What changes between calls is noticed, named and counted; what may change without a new plan runs through."""

from __future__ import annotations

import copy
import types

import pytest
import torch
from torch import nn

from frontends.steps import update
from neaptide.errors import CaptureError, StepMismatch
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_like_eager, planned
from support.together import together

FACTOR = 1.0


class Case:
    """A step with a bit of everything, and a twin of it that runs eagerly."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.0), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scale = 1.0
        self.settings = types.SimpleNamespace(power=2, parts=["a"], nested={"offset": 0.0})
        self.offset = torch.zeros(3)
        self.extra = [torch.zeros(3)]

    def step(self, x):
        out = self.model(x) * self.scale * FACTOR + self.offset + self.settings.nested["offset"]
        for tensor in self.extra:
            out = out + tensor
        return update(out.pow(self.settings.power).mean() * len(self.settings.parts), self.optimizer)


def batch(n=6):
    return torch.randn(n, 4)


def set_attribute(name, value):
    return lambda case: setattr(case, name, value)


def double(case):
    case.model.double()
    case.optimizer = torch.optim.SGD(case.model.parameters(), lr=0.1)


def add_group(case):
    case.optimizer.add_param_group({"params": [torch.zeros(3, requires_grad=True)]})


# Each is told by the name of what changed; `runtime/test_changes_between_calls.py` has every sort of change.
CHANGES = {
    "self.scale": set_attribute("scale", 2.0),
    "training": lambda case: case.model.eval(),
    "is float64, was float32": double,
    "param_groups": add_group,
    "len(self.extra)": lambda case: case.extra.append(torch.ones(3)),
}


@together("reason", CHANGES)
def test_change_is_noticed_and_planned_again(reason):
    case, twin = Case(), Case()
    run = planned(case.step, batch(), key=Case)
    x = batch()
    assert torch.equal(run(x), twin.step(x))
    assert run.counts.replans == 0
    for each in (case, twin):
        torch.manual_seed(3)
        CHANGES[reason](each)
    if reason == "is float64, was float32":
        x = x.double()
    torch.manual_seed(1)
    found = [run(x), run(x)]
    assert run.counts.replans == 1
    assert reason in " ".join(run.counts.mismatches)
    torch.manual_seed(1)
    assert all(torch.equal(a, twin.step(x)) for a in found)
    for a, b in zip(case.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_global_number_is_a_guard(monkeypatch):
    case = Case()
    x = batch()
    run = planned(case.step, x, key=Case)
    run(x)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    run(x)
    assert list(run.counts.mismatches) == ["FACTOR is 3.0, was 1.0"]


def test_closure_variable_is_a_guard():
    model, power = nn.Linear(4, 3), 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        return update(model(x).pow(power).mean(), optimizer)

    x = batch()
    run = planned(step, x)
    power = 4
    run(x)
    assert list(run.counts.mismatches) == ["power is 4, was 2"]


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (lambda x: x[:3], "batch has shape (3, 4), was (6, 4)"),
        (lambda x: x.t().contiguous().t(), "batch has strides (1, 6), was (4, 1)"),
        (lambda x: x.clone().requires_grad_(), "batch has requires_grad True, was False"),
        (
            lambda x: nn.Parameter(x.double()),
            "batch is float64, was float32 and has requires_grad True, was False",
        ),
        (lambda x: nn.Parameter(x, False), "batch is a Parameter, was Tensor"),
        (lambda x: x.neg().to(torch.cfloat).imag, "batch has strides (8, 2), was (4, 1)"),
    ],
    ids=["shape", "strides", "requires_grad", "dtype", "kind", "view"],
)
def test_other_batches_are_noticed(other, word):
    case = Case()
    x = batch()
    run = planned(case.step, x, key=Case, on_mismatch="error")
    run(x)
    with pytest.raises(StepMismatch) as caught:
        run(other(x))
    assert word in caught.value.where
    assert "on_mismatch" in caught.value.next_step
    assert caught.value.exit_code == 4
    run(x)
    assert run.counts.planned == 2


def test_mismatch_can_run_eagerly_and_is_told_once(caplog):
    case, twin = Case(), Case()
    x = batch()
    run = planned(case.step, x, key=Case, on_mismatch="eager")
    for n in (6, 3, 6, 3, 2):
        assert torch.equal(run(x[:n]), twin.step(x[:n]))
    assert (run.counts.planned, run.counts.eager, run.counts.replans) == (2, 3, 0)
    assert "3 eager" in run.counts.describe()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition(": ")[2] for text in told] == [
        "batch has shape (3, 4), was (6, 4)",
        "batch has shape (2, 4), was (6, 4)",
    ]
    assert all("without its budget" in text for text in told)


def test_plans_of_before_are_used_again():
    case = Case()
    x = batch()
    run = planned(case.step, x, key=Case)
    for n in (6, 3, 6, 3):
        run(x[:n])
    assert run.counts.replans == 1
    case.model.eval()
    run(x)
    case.model.train()
    run(x)
    assert run.counts.replans == 2


def made():
    case = Case()
    return case.step, case


def test_what_may_change_without_a_new_plan():
    """Loading state, new bytes, other rates and tensors of the same shape are read anew at each call."""

    def between(call, found):
        case = found[1]
        if call == 0:
            case.saved = copy.deepcopy((case.model.state_dict(), case.optimizer.state_dict()))
            case.optimizer.param_groups[0]["lr"] = 0.05
        if call == 1:
            case.offset = torch.ones(3)
            case.extra[0] = torch.full((3,), 2.0)
        if call == 2:
            case.model[0].weight.data = torch.ones(8, 4)
        if call == 3:
            case.model.load_state_dict(case.saved[0])
            case.optimizer.load_state_dict(copy.deepcopy(case.saved[1]))

    assert assert_like_eager(made, 5, between).counts.replans == 0


def test_state_that_was_assigned_is_not_what_the_optimizer_updates():
    """`assign=True` gives the module new parameters; eager's optimizer goes on with the old ones."""

    def between(call, found):
        if call == 0:
            model = found[1].model
            model.load_state_dict({k: torch.ones_like(v) for k, v in model.state_dict().items()}, assign=True)

    assert_like_eager(made, 3, between)


def stepping(case, loss_of):
    return lambda x: update(loss_of(case.model, x), case.optimizer)


def test_attributes_of_tensors_are_read_and_guarded():
    def make():
        case = Case()
        case.model[0].weight.gain = 3.0
        gained = lambda model, x: model(x).square().mean() * getattr(model[0].weight, "gain", 1.0)  # noqa: E731
        return stepping(case, gained), case

    def between(_call, found):
        found[1].model[0].weight.gain = 5.0

    assert_like_eager(make, 2, between)


@pytest.mark.parametrize("scheduled", [False, True])
def test_code_that_may_read_any_attribute_meets_no_note_of_the_update_itself(scheduled):
    def make():
        case = Case()
        any_attribute = lambda model, x: getattr(torch, "square")(model(x)).mean()  # noqa: E731, B009
        return stepping(case, any_attribute), case

    def between(call, found):
        if scheduled and call == 0:
            torch.optim.lr_scheduler.LinearLR(found[1].optimizer)

    assert assert_like_eager(make, 3, between).counts.replans == 0


def test_weights_that_are_no_longer_tied_are_noticed():
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return lambda x: update(model(x).square().mean(), optimizer), model

    def between(call, found):
        if call == 0:
            found[1][1].weight = nn.Parameter(torch.ones(4, 4))

    told = " ".join(assert_like_eager(make, 3, between).counts.mismatches)
    assert "untied" in told or "is new" in told


@pytest.mark.parametrize("argument", [object(), torch.nn.Linear, {1, 2}, bytearray(b"x")])
def test_arguments_that_cannot_be_guarded_are_refused(argument):
    with pytest.raises(CaptureError, match="argument 1 of the step is a"):
        capture_step(lambda x, other: x, (batch(), argument))
