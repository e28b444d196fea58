"""The catalogue makes each thing once, and notices what a test does to it."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.runtime.comparing import contestants
from neaptide.runtime.steps import capturing
from support import catalogue
from support.steps import rows_step, trained

ASK = Ask(Budget("80%"), limits=Limits(work=20))


def one_layer(width=3):
    model = torch.nn.Linear(width, 2)
    return trained(
        torch.optim.SGD(model.parameters(), lr=0.1), lambda x: model(x).square().mean()
    ), torch.randn(4, width)


def test_each_thing_is_made_once_and_goes_by_what_it_is_made_of():
    assert catalogue.graph_of(rows_step) is catalogue.graph_of(rows_step)
    assert catalogue.programs_of(rows_step) == tuple(p.graph for p in catalogue.captured(rows_step).programs)
    assert catalogue.captured(rows_step) is catalogue.captured(rows_step)
    narrow, wide = (catalogue.graph_of(partial(one_layer, width)) for width in (3, 5))
    assert narrow != wide
    assert catalogue.graph_of(partial(one_layer, 3)) is narrow
    made = catalogue.planned(one_layer, ASK, device="rtx3090")
    assert catalogue.planned(one_layer, ASK, device="rtx3090") is made
    assert catalogue.planned(one_layer, ASK, device="a100-80g") is not made

    def local():
        return one_layer()

    with pytest.raises(AssertionError, match="no name of its own"):
        catalogue.graph_of(local)


def test_another_process_of_this_run_has_the_graphs_from_a_file(monkeypatch):
    factory = partial(one_layer, 7)
    here = catalogue.programs_of(factory)
    for made in ("_MADE", "_CAPTURED"):
        monkeypatch.setattr(catalogue, made, {})  # as in a process that has made nothing
    monkeypatch.setattr(catalogue, "capture_step", None)
    assert catalogue.programs_of(factory) == here
    monkeypatch.delenv("CATALOGUE_OF_TESTS")
    monkeypatch.setattr(catalogue, "_MADE", {})
    with pytest.raises(TypeError):
        catalogue.programs_of(factory)


def test_a_capture_is_put_on_a_step_of_ones_own_and_one_that_is_run_is_noticed(monkeypatch):
    monkeypatch.setattr(catalogue, "_CAPTURED", {})
    shared = catalogue.captured(one_layer)
    step, batch = contestants.build(one_layer, 0)
    own = catalogue.captured_on(one_layer, step, batch)
    assert own.programs == shared.programs
    assert own.step is step
    step(batch)
    assert catalogue.damaged() == []
    shared.step(batch)
    assert [name.rpartition(".")[2] for name in catalogue.damaged()] == ["one_layer"]


def test_public_functions_trace_a_step_once_and_any_other_step_as_ever(traced_once, monkeypatch):
    monkeypatch.setattr(catalogue, "_TRACED", {})
    first, again = (capture(*one_layer()) for _ in range(2))
    assert again.programs == first.programs
    assert again.step is not first.step
    assert capture(*one_layer(5)).programs != first.programs
    step, batch = one_layer()
    step(batch)
    for _ in range(2):  # no optimizer state without momentum: the same programs, whether traced or not
        assert capture(step, batch).programs == first.programs
    ((found),) = catalogue._TRACED.values()
    assert len(found) == 2


def capture(step, batch):
    return capturing.capture(step, (batch,))
