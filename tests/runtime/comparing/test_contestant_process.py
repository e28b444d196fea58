"""Programs that are compared in processes of their own: the same programs, and what goes wrong there is told here."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import PlanMismatch, ProgramError, UsageError
from neaptide.outcome import Limits
from neaptide.runtime.comparing import contestant_worker, contestants
from neaptide.runtime.comparing.contestant_process import SentVariant, Wanted, rivals
from neaptide.runtime.steps.capturing import capture
from runtime.comparing.steps_elsewhere import unruly_factory
from support import catalogue
from support.steps import deep_factory, dropout_factory

CLOSE = Ask(Budget("min"), limits=Limits(work=50), numerics="close", workers=1)


def prepared(factory):
    return catalogue.prepared(factory, run_operations=False)


@pytest.mark.slow
def test_what_goes_wrong_in_a_process_of_its_own_is_told_here():
    with rivals(unruly_factory, 0, own_processes=True) as make:
        eager = make("eager", None)
        assert eager.first_steps() == 1  # what it prints does not come between the answers
        with pytest.raises(ProgramError) as failed:
            eager.steps(1)
        assert failed.value.why == "KeyError: 'a key'"
        assert "steps_elsewhere.py" in failed.value.where
        eager.steps(1)
        with pytest.raises(ProgramError, match="'eager' died") as died:
            eager.memory()
    assert died.value.why.endswith("no memory")
    assert "exit code 3" in died.value.where


def test_a_factory_that_another_process_cannot_make_is_refused():
    def local():
        return deep_factory()

    with rivals(local, 0, own_processes=True) as make, pytest.raises(UsageError, match="cannot make"):
        make("eager", None)


@pytest.mark.parametrize("factory", [deep_factory, pytest.param(dropout_factory, marks=pytest.mark.slow)])
def test_a_variant_is_put_on_another_capture_of_the_same_step(factory):
    made = prepared(factory).baseline_variant()
    if factory is deep_factory:  # of a rewritten graph
        made = catalogue.planned(factory, CLOSE, run_operations=False).variant
    step, batch = contestants.build(factory, 0)
    there = capture(step, (batch,))
    found = SentVariant.of(made).on(there)
    assert found.captured is there
    assert [graph.program for graph in found.graphs] == list(there.programs)
    for one, other in zip(found.graphs, made.graphs, strict=True):
        assert replace(one, program=other.program) == other


def test_another_step_than_the_planned_one_does_not_run():
    sent = SentVariant.of(prepared(deep_factory).baseline_variant())
    with pytest.raises(PlanMismatch, match="'plan' is of another step"):
        contestant_worker.made(Wanted("plan", dropout_factory, 0, torch.get_num_threads(), sent))
