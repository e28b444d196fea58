"""Whether a step fits a card, and which change makes it fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

import neaptide
from neaptide.cost import presets
from neaptide.cost.devices import MemorySpace
from neaptide.errors import UsageError
from neaptide.frontends.recording._torch_sizes import keeps_sizes
from neaptide.report.fit_text import fit_document
from neaptide.report.model import FitReport, to_json

MIB = 2**20
QUICK: Any = {"device": "t4", "time_limit_s": 0.3}


class Block(nn.Module):
    """What a model is strung from."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Strung(nn.Module):
    """Blocks in a list."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def made(width: int = 64, count: int = 2, rows: int = 512, kind: Any = torch.optim.SGD) -> tuple[Any, Tensor]:
    """A step whose activations are most of its bytes."""
    net = Strung(width, count)
    optimizer = kind(net.parameters())

    def step(x: Tensor) -> Tensor:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.ones(rows, width)


@pytest.fixture
def card_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A T4 of another capacity."""

    def make(nbytes: int) -> None:
        usual = presets.PRESETS["t4"]
        space = MemorySpace("device", nbytes, usual.main_space.bandwidth_bytes_per_s, 512)
        small = dataclasses.replace(usual, spaces=(space,), reserved_bytes=0)
        monkeypatch.setitem(presets.PRESETS, "t4", small)

    return make


def test_a_step_that_fits_says_its_margin_and_largest_batch(card_of: Any) -> None:
    card_of(64 * MIB)
    step, batch = made()
    report = neaptide.fits(step, batch, **QUICK)
    assert report.fits
    assert not report.changes
    assert report.margin_bytes == 64 * MIB - report.predicted_peak_bytes
    assert report.library_bytes == presets.cublas_workspace_bytes(presets.PRESETS["t4"])
    assert report.captured_on == "cuda"
    assert "Yes: " in fit_document(report).plain()
    if not keeps_sizes():
        assert any("largest batch is not known" in line for line in report.notes)
        return
    (largest,) = report.largest
    assert largest.in_program_order is not None
    assert largest.in_program_order > 512


@pytest.mark.slow
def test_the_largest_batch_is_the_last_that_fits(card_of: Any) -> None:
    card_of(64 * MIB)
    (largest,) = neaptide.fits(*made(), **QUICK).largest
    assert largest.in_program_order is not None
    assert neaptide.fits(*made(rows=largest.in_program_order), **QUICK).fits
    assert not neaptide.fits(*made(rows=largest.in_program_order + 1), **QUICK).fits


def test_a_step_that_does_not_fit_says_what_makes_it_fit(card_of: Any) -> None:
    step, batch = made(rows=2048, kind=torch.optim.AdamW)
    card_of(28 * MIB)
    forwards = [block.forward for block in step.__closure__[0].cell_contents.blocks]
    report = neaptide.fits(step, batch, **QUICK)
    assert not report.fits
    assert report.margin_bytes < 0
    changes = {change.name: change for change in report.changes}
    assert list(changes) == [
        *(
            "8-bit optimizer states",
            "bf16 autocast",
            "checkpointing by hand",
            "a plan",
            "a plan with offload",
        ),
    ]
    assert changes["bf16 autocast"].fits
    assert changes["8-bit optimizer states"].predicted_peak_bytes < report.predicted_peak_bytes
    assert changes["checkpointing by hand"].fits
    assert changes["checkpointing by hand"].predicted_time > 1
    assert changes["a plan"].fits
    assert [block.forward for block in step.__closure__[0].cell_contents.blocks] == forwards
    assert not any("forward" in vars(block) for block in step.__closure__[0].cell_contents.blocks)
    text = fit_document(report).plain()
    assert text.startswith("No: ")
    assert "checkpointing by hand" in text
    assert msgspec.json.decode(to_json(report), type=FitReport) == report


def test_bad_input_is_named() -> None:
    step, batch = made()
    with pytest.raises(UsageError, match="rtx9040") as caught:
        neaptide.fits(step, batch, device="rtx9040")
    assert "rtx4090" in caught.value.render()
    with pytest.raises(UsageError, match="budget"):
        neaptide.fits(step, batch, device="t4", budget="60%")  # type: ignore[call-arg]
