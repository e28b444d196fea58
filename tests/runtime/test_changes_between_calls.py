"""Whatever changes between two calls, a planned step gives the numbers of eager or says that it does not fit."""

from __future__ import annotations

import collections
import contextlib
import functools
import types
import warnings

import pytest
import torch

from neaptide.errors import CaptureError, StepMismatch
from neaptide.frontends.torch_step import capture_step, rebind_step
from neaptide.runtime.steps.planned_step import PlannedStep
from runtime.changes import KINDS
from runtime.changing_case import Case
from support.step_checks import as_variant, planned
from support.together import together


def batch():
    torch.manual_seed(7)
    return torch.randn(5, 3)


def run(call):
    """What a call gives, or the error that it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception as error:  # noqa: BLE001 - eager may fail in any way
        return error


def agree(case, reference, found, wanted):
    """A call gave what eager gives, or failed where eager fails, or was refused with a reason."""
    if isinstance(wanted, Exception) or isinstance(found, CaptureError):
        return isinstance(found, Exception)
    assert not isinstance(found, Exception), found
    then, now = reference.state(), case.state()
    same = found.dtype == wanted.dtype and torch.equal(found, wanted) and then.keys() == now.keys()
    return same and all(
        torch.equal(now[key], then[key]) if isinstance(then[key], torch.Tensor) else now[key] == then[key]
        for key in then
    )


@functools.cache
def first_capture():
    return capture_step(Case().step, (batch(),))


# One or two of each sort; the others are told apart by the same look at what the step reads.
QUICK = {
    "forward_hook_added",
    "method_set_on_an_instance",
    "closure_variable_changed",
    "parameter_frozen",
    "parameters_tied_by_their_bytes",
    "gradient_there",
    "sign_of_zero",
    "dataclass_field_changed",
    "torch_function_patched_where_torch_reads_it",
    "global_changed",
    "global_optimizer_hook_added",
    "no_grad_around_the_call",
    "autocast_around_the_call",
    "saved_tensors_hooks_around_the_call",
}


@together("name", KINDS, quick=QUICK)
def test_after_a_change_the_numbers_are_those_of_eager(name):
    change, is_global = KINDS[name]
    case, reference, x = Case(), Case(), batch()

    def again(args, kwargs, changing):
        return as_variant(capture_step(case.step, args, kwargs, changing=changing))

    variant = as_variant(rebind_step(first_capture(), case.step, (x,)))
    runners = {
        policy: PlannedStep(case.step, again, variant, on_mismatch=policy)
        for policy in ("error", "eager", "replan")
    }
    assert all(agree(case, reference, runner(x), reference.step(x)) for runner in runners.values())
    assert all(runner.counts.planned == 1 for runner in runners.values())
    with contextlib.ExitStack() as stack:
        for target in [stack] if is_global else [case, reference]:
            torch.manual_seed(3)
            change(target)
        for policy, runner in runners.items():
            torch.manual_seed(4)
            found = run(lambda runner=runner: runner(x))
            if policy == "error" and isinstance(found, StepMismatch):
                assert found.where
                continue
            torch.manual_seed(4)
            wanted = run(lambda: reference.step(x))
            assert agree(case, reference, found, wanted), (policy, runner.counts.describe(), found, wanted)


def test_there_are_enough_kinds():
    assert len(KINDS) >= 55


def test_nothing_that_does_not_change_is_planned_again():
    case, x = Case(), batch()
    runner = PlannedStep(case.step, None, as_variant(capture_step(case.step, (x,))), on_mismatch="error")
    case.unread = collections.Counter()
    for number in range(3):
        runner(x)
        case.unread[number] += 1
        case.model.note = types.SimpleNamespace(number=number)
    assert runner.counts.planned == 3


class Stateful(Case):
    """The same with an optimizer that keeps state."""

    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def layer_replaced_beside_its_state(case):
    torch.manual_seed(3)
    case.model.last = torch.nn.Linear(4, 2)
    case.optimizer.param_groups[0]["params"] = list(case.model.parameters())


def state_of_one_layer_cleared(case):
    del case.optimizer.state[case.model.first.weight]


def layer_in_double_precision(case):
    case.model.double()


def state_loaded_from_a_longer_run(case):
    longer = Stateful()
    for _ in range(3):
        longer.step(batch())
    case.model.load_state_dict(longer.model.state_dict())
    case.optimizer.load_state_dict(longer.optimizer.state_dict())


def weights_assigned(case):
    case.model.load_state_dict({k: 2.0 * v for k, v in case.model.state_dict().items()}, assign=True)


@pytest.mark.parametrize(
    "change",
    [
        layer_replaced_beside_its_state,
        state_loaded_from_a_longer_run,
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (state_of_one_layer_cleared, layer_in_double_precision, weights_assigned)
        ),
    ],
)
def test_gradients_and_state_that_a_change_finds_are_as_eager_leaves_them(change):
    case, reference = Stateful(), Stateful()
    runner = planned(case.step, batch())
    for number in range(6):
        x = batch()
        if number == 3:
            change(case)
            change(reference)
        x = x.to(case.model.last.weight.dtype)
        assert agree(case, reference, runner(x), reference.step(x)), (number, runner.counts.describe())
    assert runner.counts.planned == 6
    views = [
        (p.grad._is_view(), q.grad._is_view())
        for p, q in zip(*map(parameters, (case, reference)), strict=True)
        if q.grad is not None
    ]
    assert all(ours == eagers for ours, eagers in views)


def parameters(case):
    return case.model.parameters()
