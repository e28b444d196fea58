"""Steps whose state is on the host between two calls: eager's bits, the predicted peak, and nothing lost."""

from __future__ import annotations

import pytest
import torch

from neaptide import zoo
from neaptide.errors import InvalidBudget, StepInterrupted, TransferError, UsageError
from neaptide.movers.host_pool import HostCopy
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.runtime import contestants
from neaptide.runtime.planned_step import PlannedStep
from neaptide.runtime.prepared_step import prepare
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.verification import verify_eager, verify_planned
from neaptide.schedule.state_bounds import lower_bound_with_state_between


def planned(spec, share=1.2, work=500):
    """The plan of a model for so many times the least bytes that it could do with."""
    factory = zoo.factory(spec)
    step, batch = contestants.build(factory, 0)
    prepared = prepare(step, (batch,), name=spec)
    least = lower_bound_with_state_between(prepared.problem())
    budget = Budget(int(share * least), host="64MiB", state_between_steps=True)
    return factory, prepared, prepared.plan(SearchOptions(budget, limits=Limits(work=work, seed=0)))


@pytest.mark.parametrize(
    "spec",
    [
        "mlp@tiny",
        pytest.param("gpt2@tiny", marks=pytest.mark.slow),
        pytest.param("bert@tiny", marks=pytest.mark.slow),
        pytest.param("llama@tiny", marks=pytest.mark.slow),
    ],
)
def test_a_step_with_state_between_steps_gives_the_bits_and_the_peak_that_were_predicted(spec):
    factory, prepared, found = planned(spec, work=500 if spec == "mlp@tiny" else 4000)
    predicted = found.plan.programs[0].predictions
    assert predicted.peak_bytes < prepared.problem().resident_bytes
    verify = contestants.rebind(found.variant)
    outcome, _ = verify_planned(factory, 0, verify, verify_eager(factory, 0))
    assert outcome.bitwise_equal
    made = contestants.planned_contestant("planned", factory, 0, verify)
    made.run()
    made.run()
    there = sum(tensor.untyped_storage().nbytes() for tensor in made.resident())
    assert there < prepared.problem().resident_bytes
    measured = contestants.measure_step(made.run, made.resident)
    assert measured.measured_peak_bytes == predicted.peak_bytes


@pytest.fixture(scope="module")
def mlp():
    return planned("mlp@tiny")


def fresh(mlp, batches=2):
    """A planned step on objects of its own, with its module, optimizer and batch."""
    factory, _, found = mlp
    step, batch = contestants.build(factory, 0)
    runner = PlannedStep(
        step, contestants.never_again, contestants.rebind(found.variant)(step, batch), on_mismatch="error"
    )
    state = runner._variants[0].planned.captured.state
    return runner, batch, next(iter(state.modules.values())), next(iter(state.optimizers.values()))


def away(module, optimizer):
    tensors = [*module.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
    return [t for t in tensors if t.numel() and not t.untyped_storage().nbytes()]


def after(mlp, steps):
    """Parameters after some steps that nothing disturbs."""
    runner, batch, module, _ = fresh(mlp)
    with runner.state_on_host():
        for _ in range(steps):
            runner(batch)
    return [p.detach().clone() for p in module.parameters()]


def test_inside_of_the_context_state_waits_and_outside_everything_is_there(mlp):
    runner, batch, module, optimizer = fresh(mlp)
    with pytest.raises(UsageError, match="nobody holds it there"):
        runner(batch)
    with runner.state_on_host():
        assert not away(module, optimizer)
        runner(batch)
        assert away(module, optimizer)
        with pytest.raises(UsageError, match="already"), runner.state_on_host():
            pass
    assert not away(module, optimizer)


@pytest.mark.parametrize("ask", ["module", "optimizer", "by name"])
def test_who_asks_for_state_inside_of_the_context_gets_it_and_the_next_step_has_it_leave(mlp, ask):
    expected = after(mlp, 2)
    runner, batch, module, optimizer = fresh(mlp)
    with runner.state_on_host():
        runner(batch)
        assert away(module, optimizer)
        {"module": module.state_dict, "optimizer": optimizer.state_dict, "by name": runner.bring_state_back}[
            ask
        ]()
        assert not away(module, optimizer)
        runner(batch)
        assert away(module, optimizer)
    assert all(map(torch.equal, module.parameters(), expected))
    module.state_dict()


def fails_at(monkeypatch, method, number, *, for_good=False):
    """Copies fail at the so-many-th call of a method, and from then on if it is for good."""
    count = 0
    whole = getattr(HostCopy, method)

    def failing(self):
        nonlocal count
        count += 1
        if count == number or (for_good and count > number):
            raise TransferError("the file is gone")
        return whole(self)

    monkeypatch.setattr(HostCopy, method, failing)


@pytest.mark.parametrize("method", ["leave", "arrive"])
@pytest.mark.parametrize("number", [1, 3])
def test_a_copy_that_fails_in_a_step_brings_all_state_back(mlp, monkeypatch, method, number):
    runner, batch, module, optimizer = fresh(mlp)
    with runner.state_on_host():
        runner(batch)
        with monkeypatch.context() as patch:
            fails_at(patch, method, number)
            with pytest.raises(TransferError, match="the file is gone") as failed:
                runner(batch)
        assert not away(module, optimizer)
        told = "".join(failed.value.__notes__)
        if "the step can be called again" in told:
            runner(batch)
            expected = after(mlp, 2)
            runner.bring_state_back()
            assert all(map(torch.equal, module.parameters(), expected))
        else:
            assert "already updated" in told


def test_state_that_cannot_come_back_is_named(mlp, monkeypatch):
    runner, batch, _, _ = fresh(mlp)
    with monkeypatch.context() as patch:
        context = runner.state_on_host()
        context.__enter__()
        runner(batch)
        fails_at(patch, "arrive", 1, for_good=True)
        with pytest.raises(StepInterrupted) as lost:
            context.__exit__(None, None, None)
        assert lost.value.updated
    with pytest.raises(StepInterrupted, match="died"), runner.state_on_host():
        runner(batch)


def test_state_between_steps_needs_room_on_the_host():
    with pytest.raises(InvalidBudget, match="no room on the host"):
        Budget("50%", state_between_steps=True)


def test_a_plan_with_state_between_steps_is_the_same_from_its_file(mlp, tmp_path):
    from neaptide.plans import Plan

    plan = mlp[2].plan
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
