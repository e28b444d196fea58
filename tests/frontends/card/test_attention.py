"""Which attention a card runs, row by row of PyTorch's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from neaptide.frontends.card import attention
from neaptide.frontends.card.attention import Asked, chosen

AMPERE, ADA, HOPPER, TURING = (8, 0), (8, 9), (9, 0), (7, 5)
SHAPE = (2, 4, 128, 64)
HALF = Asked(torch.bfloat16, SHAPE, SHAPE, SHAPE)
FP16, FP32 = replace(HALF, dtype=torch.float16), replace(HALF, dtype=torch.float32)


def heads(size: int, asked: Asked = HALF) -> Asked:
    """The same with heads of another size."""
    shape = (*SHAPE[:3], size)
    return replace(asked, query=shape, key=shape, value=shape)


ROWS = (
    (HALF, ADA, "flash"),
    (HALF, AMPERE, "flash"),
    (HALF, HOPPER, "cudnn"),
    (HALF, TURING, "math"),  # no bfloat16 there
    (FP16, TURING, "efficient"),
    (FP32, ADA, "efficient"),
    (FP32, HOPPER, "efficient"),
    (FP32, TURING, "efficient"),
    (replace(HALF, dtype=torch.float64), ADA, "math"),
    (replace(HALF, has_mask=True), ADA, "efficient"),
    (replace(HALF, has_mask=True), HOPPER, "cudnn"),
    (replace(HALF, is_causal=True), ADA, "flash"),
    (replace(HALF, is_causal=True, key=(2, 4, 64, 64), value=(2, 4, 64, 64)), ADA, "efficient"),
    (heads(256), AMPERE, "flash"),
    (heads(256), ADA, "flash"),
    (replace(heads(256), dropout=0.25), ADA, "efficient"),
    (heads(200), ADA, "efficient"),
    (replace(heads(200), gradients=False), ADA, "flash"),
    (heads(264), ADA, "efficient"),
    (heads(60), ADA, "flash"),  # padded before
    (heads(60), HOPPER, "flash"),
    (heads(60, replace(HALF, has_mask=True)), ADA, "math"),
    (heads(6, FP32), ADA, "math"),
    (heads(6, FP32), TURING, "efficient"),
    (replace(HALF, unit_strides=False), ADA, "math"),
    (replace(HALF, value=(2, 4, 128, 32)), ADA, "efficient"),
    (replace(HALF, key=(2, 2, 128, 64), value=(2, 2, 128, 64)), ADA, "math"),
    (replace(HALF, key=(2, 2, 128, 64), value=(2, 2, 128, 64), repeats_heads=True), ADA, "flash"),
    (replace(FP32, key=(2, 2, 128, 64), value=(2, 2, 128, 64), repeats_heads=True), ADA, "math"),
    (replace(HALF, query=SHAPE[1:], key=SHAPE[1:], value=SHAPE[1:]), ADA, "math"),
    (replace(HALF, deterministic=True), HOPPER, "flash"),
    (replace(HALF, enabled=frozenset({"efficient"})), ADA, "efficient"),
    (replace(HALF, enabled=frozenset()), HOPPER, "math"),
    (replace(FP32, aligned=False), ADA, "math"),
)


@pytest.mark.parametrize(("asked", "capability", "kernel"), ROWS)
def test_the_kernel_is_that_of_the_rules(asked: Asked, capability: tuple[int, int], kernel: str) -> None:
    assert chosen(asked, capability) == kernel


@pytest.mark.parametrize(
    ("release", "dropout", "head", "kernel"),
    [
        ((2, 11), 0.1, 64, "cudnn"),
        ((2, 14), 0.1, 64, "flash"),  # not a multiple of a sixteenth
        ((2, 14), 0.125, 64, "cudnn"),
        ((2, 11), 0.0, 256, "flash"),
        ((2, 14), 0.0, 256, "cudnn"),
        ((2, 14), 0.0, 160, "flash"),  # no such backward
    ],
)
def test_newer_versions_ask_more_of_cudnn(
    monkeypatch: pytest.MonkeyPatch, release: tuple[int, int], dropout: float, head: int, kernel: str
) -> None:
    monkeypatch.setattr(attention, "release", lambda: release)
    assert chosen(replace(heads(head), dropout=dropout), HOPPER) == kernel
