"""Plans of a step on a card, as far as they can be made without one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.cost.cards.cublas import library_blocks
from neaptide.cost.presets import get_device
from neaptide.outcome import Limits
from neaptide.policy import costed_step
from neaptide.policy.card_bytes import allocator_peaks
from neaptide.policy.prepared_step import prepare

MIB = 2**20


def step_and_batch():
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(300, 300), nn.Tanh()) for _ in range(6)])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(1100, 300)


@pytest.fixture
def on_a_card(monkeypatch):
    """The step runs on the CPU, and is planned as if that were an H100."""
    monkeypatch.setattr(costed_step, "usual_device", lambda _: "cuda:0")
    monkeypatch.setattr(costed_step, "card", lambda *_, **__: get_device("h100"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.delenv("CUBLASLT_WORKSPACE_SIZE", raising=False)


def ask(peak):
    return Ask(Budget(peak), limits=Limits(work=20_000))


def blocks_of(prepared, found):
    """What the allocator allocates for a plan."""
    graph, schedule = found.variant.graphs[0].graph, found.variant.graphs[0].schedule
    assumed = prepared.prices(graph, schedule.bodies).assumed
    return allocator_peaks(graph, schedule, assumed, prepared.library_blocks)


@pytest.mark.usefixtures("on_a_card")
def test_a_budget_on_a_card_counts_libraries_and_blocks():
    step, batch = step_and_batch()
    prepared = prepare(step, (batch,))
    kept = 2 * 32 * MIB + MIB
    assert prepared.library_bytes == kept == sum(library_blocks(9))
    libraries, blocks = prepared.told_of_card
    assert "cuBLAS keeps 65.00 MiB" in libraries
    assert "in blocks and reserves" in blocks
    eager = prepared.as_written().peak_with_workspace_bytes
    limit = kept + int(0.8 * eager)
    found = prepared.plan(ask(limit))
    program = found.plan.programs[0]
    assert program.predictions.peak_with_workspace_bytes <= program.budget_bytes <= limit - kept
    assert found.plan.budget.outside_bytes >= kept
    assert_blocks_within(prepared, found, limit, kept)


@pytest.mark.usefixtures("on_a_card")
def test_blocks_stay_within_a_share_too():
    step, batch = step_and_batch()
    prepared = prepare(step, (batch,))
    eager = prepared.as_written().peak_with_workspace_bytes + prepared.bytes_beside
    found = prepared.plan(ask("97%"))
    assert_blocks_within(prepared, found, int(0.97 * eager), prepared.library_bytes)
    whole = prepared.plan(ask("100%"))
    assert whole.plan.budget.outside_bytes == prepared.bytes_beside, "the baseline itself"


def assert_blocks_within(prepared, found, limit, kept):
    blocks, program = blocks_of(prepared, found), found.plan.programs[0]
    assert blocks.requested == program.predictions.peak_with_workspace_bytes + kept
    assert blocks.requested < blocks.allocated <= limit


@pytest.mark.usefixtures("on_a_card")
def test_a_share_is_of_all_that_eager_has_on_the_card():
    step, batch = step_and_batch()
    prepared = prepare(step, (batch,))
    assert prepared.library_bytes < prepared.bytes_beside < prepared.library_bytes + MIB
    eager = prepared.as_written().peak_with_workspace_bytes + prepared.bytes_beside
    assert prepared.allowed(ask("95%"), 0, None) == int(0.95 * eager) - prepared.bytes_beside
    assert prepared.on_card(Budget(outside_bytes=2**30)).outside_bytes == 2**30


def test_on_the_cpu_nothing_is_added():
    step, batch = step_and_batch()
    prepared = prepare(step, (batch,))
    assert (prepared.bytes_beside, prepared.is_on_card, prepared.told_of_card) == (0, False, ())
    assert prepared.plan(ask("80%")).plan.budget.outside_bytes == 0
