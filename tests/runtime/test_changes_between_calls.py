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
from neaptide.runtime.planned_step import PlannedStep
from runtime import code_changes, mode_changes, model_changes, value_changes
from runtime.changes import KINDS
from runtime.changing_case import Case
from step_checks import as_variant


def batch():
    torch.manual_seed(7)
    return torch.randn(5, 3)


WRITTEN_IN = (code_changes, value_changes, model_changes, mode_changes)


def run(call):
    """What a call gives, or the error that it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception as error:  # noqa: BLE001 - eager may fail in any way
        return error


def agree(case, twin, found, wanted):
    """A call gave what eager gives, or failed where eager fails, or was refused with a reason."""
    if isinstance(wanted, Exception) or isinstance(found, CaptureError):
        return isinstance(found, Exception)
    assert not isinstance(found, Exception), found
    then, now = twin.state(), case.state()
    same = found.dtype == wanted.dtype and torch.equal(found, wanted) and then.keys() == now.keys()
    return same and all(
        torch.equal(now[key], then[key]) if isinstance(then[key], torch.Tensor) else now[key] == then[key]
        for key in then
    )


@functools.cache
def first_capture():
    return capture_step(Case().step, (batch(),))


@pytest.mark.parametrize("name", KINDS)
def test_after_a_change_the_numbers_are_those_of_eager(name):
    change, is_global = KINDS[name]
    case, twin, x = Case(), Case(), batch()

    def again(args, kwargs, changing):
        return as_variant(capture_step(case.step, args, kwargs, changing=changing))

    variant = as_variant(rebind_step(first_capture(), case.step, (x,)))
    runners = {
        policy: PlannedStep(case.step, again, variant, on_mismatch=policy)
        for policy in ("error", "eager", "replan")
    }
    assert all(agree(case, twin, runner(x), twin.step(x)) for runner in runners.values())
    assert all(runner.counts.planned == 1 for runner in runners.values())
    with contextlib.ExitStack() as stack:
        for target in [stack] if is_global else [case, twin]:
            torch.manual_seed(3)
            change(target)
        for policy, runner in runners.items():
            torch.manual_seed(4)
            found = run(lambda runner=runner: runner(x))
            if policy == "error" and isinstance(found, StepMismatch):
                assert found.where
                continue
            torch.manual_seed(4)
            wanted = run(lambda: twin.step(x))
            assert agree(case, twin, found, wanted), (policy, runner.counts.describe(), found, wanted)


def test_there_are_enough_kinds():
    assert len(KINDS) >= 60
    assert {change.__module__ for change, _ in KINDS.values()} == {one.__name__ for one in WRITTEN_IN}


def test_nothing_that_does_not_change_is_planned_again():
    case, x = Case(), batch()
    runner = PlannedStep(case.step, None, as_variant(capture_step(case.step, (x,))), on_mismatch="error")
    case.unread = collections.Counter()
    for number in range(3):
        runner(x)
        case.unread[number] += 1
        case.model.note = types.SimpleNamespace(number=number)
    assert runner.counts.planned == 3
