"""Steps whose state is on the host between two calls: eager's bits, the predicted peak, and nothing lost."""

from __future__ import annotations

import copy
import errno
import os
import random
import time
from dataclasses import replace

import pytest
import torch

from neaptide import zoo
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.copy_engines import file_copy_engine
from neaptide.errors import InvalidBudget, StepInterrupted, TransferError, UsageError
from neaptide.outcome import Limits
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import verify_eager, verify_planned
from neaptide.runtime.steps.planned_step import PlannedStep
from support import catalogue


def planned(spec, share=1.2, work=500):
    """The plan of a model for so many times the least bytes that it could do with."""
    factory = zoo.factory(spec)
    prepared = catalogue.prepared(factory)
    least = prepared.problem().lower_bound_with_state_between
    budget = Budget(int(share * least), host="64MiB", state_between_steps=True)
    return factory, prepared, prepared.plan(Ask(budget, limits=Limits(work=work, seed=0)))


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
    assert predicted.peak_bytes < prepared.problem().persistent_bytes
    verify = contestants.rebind(found.variant)
    outcome, _ = verify_planned(factory, 0, verify, verify_eager(factory, 0))
    assert outcome.bitwise_equal
    made = contestants.planned_contestant("planned", factory, 0, verify)
    made.run()
    made.run()
    there = sum(tensor.untyped_storage().nbytes() for tensor in made.persistent())
    assert there < prepared.problem().persistent_bytes
    measured = contestants.measure_step(made.run, made.persistent)
    assert measured.measured_peak_bytes == predicted.peak_bytes


@pytest.fixture(scope="module")
def mlp():
    return planned("mlp@tiny")


def fresh(mlp, host_bytes=None):
    """A planned step on objects of its own, with its module, optimizer and batch; with so much room on the host, if told."""
    factory, _, found = mlp
    step, batch = contestants.build(factory, 0)
    variant = contestants.rebind(found.variant)(step, batch)
    if host_bytes is not None:
        variant = replace(variant, graphs=tuple(replace(g, host_bytes=host_bytes) for g in variant.graphs))
    runner = PlannedStep(step, contestants.never_again, variant, on_mismatch="error")
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


def pool_of(runner):
    """Where the state of a runner waits."""
    (pool,) = runner._variants[0].runnable(0).executable.current.pools
    return pool


def several_steps(runner, batch, count):
    for _ in range(count):
        runner(batch)


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def calls_again(runner, batch, module, optimizer, mlp, steps, told):
    """Whether a step that died left all as it was; it is called again then, and gives the bits as if nothing had been."""
    assert not away(module, optimizer)
    if "the step can be called again" not in told:
        assert "already updated" in told
        with pytest.raises(StepInterrupted):
            runner(batch)
        return False
    runner(batch)
    runner.bring_state_back()
    assert all(map(torch.equal, module.parameters(), after(mlp, steps)))
    return True


@pytest.mark.parametrize("steps_before", [0, 1])
@pytest.mark.parametrize("writes_before", [0, 1])
def test_a_disk_that_fills_up_loses_no_state(mlp, monkeypatch, steps_before, writes_before):
    runner, batch, module, optimizer = fresh(mlp)
    left, write = [writes_before], file_copy_engine.write_piece

    def until_full(*args):
        left[0] -= 1
        return write(*args) if left[0] >= 0 else no_space()

    with runner.state_on_host():
        for _ in range(steps_before):
            runner(batch)
        with monkeypatch.context() as patch:
            patch.setattr(file_copy_engine, "write_piece", until_full)
            with pytest.raises(TransferError, match="No space left") as failed:
                runner(batch)
        told = "".join(failed.value.__notes__)
        is_whole = calls_again(runner, batch, module, optimizer, mlp, steps_before + 1, told)
        # State leaves before the first operation of the first step, so nothing has been updated then.
        assert is_whole or steps_before


@pytest.mark.parametrize("noticed_by", ["the next step", "who asks for state", "the end of the context"])
def test_state_that_cannot_be_read_is_told_as_lost_and_training_goes_on_from_saved_state(
    mlp, monkeypatch, noticed_by
):
    runner, batch, module, optimizer = fresh(mlp)
    context = runner.state_on_host()
    context.__enter__()
    runner(batch)
    saved = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
    runner(batch)
    with monkeypatch.context() as patch:
        patch.setattr(file_copy_engine, "read_piece", no_space)
        if noticed_by == "the next step":
            with pytest.raises(TransferError, match="No space left") as failed:
                runner(batch)
            assert "lost: the bytes of" in "".join(failed.value.__notes__)
        elif noticed_by == "who asks for state":
            with pytest.raises(StepInterrupted, match="could not be copied back"):
                module.state_dict()
        else:
            with pytest.raises(StepInterrupted, match="could not be copied back"):
                context.__exit__(None, None, None)
            context = runner.state_on_host()
            context.__enter__()
    with pytest.raises(StepInterrupted) as lost:
        runner(batch)
    assert lost.value.updated
    module.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    runner.reset()
    runner(batch)
    context.__exit__(None, None, None)
    assert not away(module, optimizer)
    assert all(map(torch.equal, module.parameters(), after(mlp, 2)))


def test_state_in_a_file_that_was_cut_is_never_read_as_zeros(mlp):
    runner, batch, module, optimizer = fresh(mlp)
    context = runner.state_on_host()
    context.__enter__()
    for _ in range(2):
        runner(batch)
    os.ftruncate(pool_of(runner)._copy_engine._file._number, 0)
    with pytest.raises(TransferError, match="the file ends before") as failed:
        runner(batch)
    assert "lost: the bytes of" in "".join(failed.value.__notes__)
    assert not away(module, optimizer)
    with pytest.raises(StepInterrupted, match="died"):
        runner(batch)
    context.__exit__(None, None, None)


@pytest.mark.parametrize("missing", ["one byte", "nearly all"])
def test_a_pool_that_state_between_steps_fills_up_is_an_error_and_loses_nothing(mlp, missing):
    needed = pool_of(fresh(mlp)[0])._extents.capacity_bytes
    runner, batch, module, optimizer = fresh(mlp, needed - 1 if missing == "one byte" else needed // 8)
    with runner.state_on_host():
        with pytest.raises(TransferError, match="do not fit on the host") as failed:
            # The first step has no optimizer state yet, and what it stores has room beside that of the second.
            several_steps(runner, batch, 3)
        assert not away(module, optimizer)
        if "the step can be called again" in "".join(failed.value.__notes__):
            assert all(map(torch.equal, module.parameters(), after(mlp, runner.counts.planned)))
        else:
            with pytest.raises(StepInterrupted):
                runner(batch)
    assert not away(module, optimizer)


@pytest.mark.parametrize("late", ["write_piece", "read_piece"])
def test_late_copies_change_no_bits_of_state_between_steps(mlp, monkeypatch, late):
    expected = after(mlp, 2)
    chance, access = random.Random(7), getattr(file_copy_engine, late)

    def slowly(*args):
        time.sleep(chance.choice([0.0, 0.0, 0.005]))
        return access(*args)

    monkeypatch.setattr(file_copy_engine, late, slowly)
    runner, batch, module, _ = fresh(mlp)
    with runner.state_on_host():
        runner(batch)
        runner(batch)
    assert all(map(torch.equal, module.parameters(), expected))


def test_a_disk_without_room_for_the_file_is_found_before_any_state_leaves(mlp, monkeypatch):
    runner, batch, module, optimizer = fresh(mlp)
    with runner.state_on_host():
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", no_space)
            with pytest.raises(TransferError, match="No space left") as failed:
                runner(batch)
        assert calls_again(runner, batch, module, optimizer, mlp, 1, "".join(failed.value.__notes__))


def test_state_comes_back_from_a_disk_that_fails_for_a_moment(mlp, monkeypatch):
    runner, batch, module, optimizer = fresh(mlp)
    context = runner.state_on_host()
    context.__enter__()
    runner(batch)
    failed, read = [], file_copy_engine.read_piece

    def fails_once(*args):
        if not failed:
            failed.append(True)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(*args)

    monkeypatch.setattr(file_copy_engine, "read_piece", fails_once)
    context.__exit__(None, None, None)
    assert failed
    assert not away(module, optimizer)
    assert all(map(torch.equal, module.parameters(), after(mlp, 1)))


def test_state_between_steps_needs_room_on_the_host():
    with pytest.raises(InvalidBudget, match="no room on the host"):
        Budget("50%", state_between_steps=True)


def test_a_plan_with_state_between_steps_is_the_same_from_its_file(mlp, tmp_path):
    from neaptide.plans import Plan

    plan = mlp[2].plan
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
