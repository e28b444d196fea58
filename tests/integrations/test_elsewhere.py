"""What counts into the budget of a compiled graph beside its own bytes: the caller's code, and a card's allocator and libraries."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from neaptide.cost.cards.cublas import library_blocks
from neaptide.integrations.torch_compile import card, ledgers, neaptide
from neaptide.integrations.torch_compile import ledger as ledger_module
from neaptide.integrations.torch_compile.elsewhere import Elsewhere, PassMeter
from neaptide.integrations.torch_compile.ledger import Piece

_CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch._dynamo.reset()
    monkeypatch.setattr(ledger_module, "_ledgers", [])
    yield
    torch._dynamo.reset()


def model_and_batch() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.GELU())]
    return nn.Sequential(*layers), torch.randn(256, 32)


def compiled(model: nn.Module, peak: str | None) -> Any:
    given = {"peak": peak, "time_limit": 1, "on_infeasible": "best"}
    return torch.compile(model, backend=lambda module, inputs: neaptide(module, inputs, options=given))


def the_piece() -> Piece:
    (piece,) = ledgers()[-1].pieces.values()
    return piece


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ((180, 700), Elsewhere(held=60, between=580)),
        # The counter says no more than that the highest bytes were earlier.
        ((180, 500), Elsewhere(held=60, between=60)),
        ((90, 500), Elsewhere(held=0, between=0)),
    ],
)
def test_bytes_between_the_passes_are_read_off_counters_once(
    monkeypatch: pytest.MonkeyPatch, after: tuple[int, int], told: Elsewhere
) -> None:
    found: list[Elsewhere] = []
    meter = PassMeter(_CPU, 1, found.append)
    counters = iter([(100, 500), after])
    monkeypatch.setattr(meter, "_counters", lambda: next(counters))
    forward, backward = meter.forward(lambda args: args), meter.backward(lambda args: args[0])
    for _ in range(2):
        forward([])
        assert backward([7, torch.zeros(5)]) == 7
    assert found == [told]


def test_what_the_callers_code_takes_is_counted_from_the_next_call_on() -> None:
    model, batch = model_and_batch()
    eager = copy.deepcopy(model)
    compiled(model, None)(batch).sum().backward()
    before = the_piece()
    torch._dynamo.reset()
    step = compiled(model, f"{before.predicted_peak_bytes}B")
    for _ in range(2):
        model.zero_grad()
        step(batch).sum().backward()
        (frame,) = ledgers()[-1].pieces
        ledgers()[-1].measured(frame, Elsewhere(held=0, between=3 * batch.nbytes))
    piece = the_piece()
    assert before.recomputed == 0 < piece.recomputed
    assert piece.between_bytes == 3 * batch.nbytes
    assert piece.predicted_peak_bytes <= before.predicted_peak_bytes
    eager(batch).sum().backward()
    for mine, other in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(mine.grad, other.grad)


def test_budgets_on_a_card_count_its_libraries_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "usual_device", lambda _: "cuda:0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    model, batch = model_and_batch()
    compiled(model, None)(batch).sum().backward()
    plain, kept = the_piece(), sum(library_blocks(9))
    assert kept < plain.outside_bytes < kept + batch.nbytes
    torch._dynamo.reset()
    budget = plain.predicted_peak_bytes - 2 * batch.nbytes
    compiled(model, f"{budget}B")(batch).sum().backward()
    piece = the_piece()
    assert piece.recomputed > 0
    assert piece.outside_bytes >= plain.outside_bytes
    assert piece.predicted_peak_bytes <= budget
