"""What this processor has no kernel for: eager PyTorch fails there, so there is nothing to compare with."""

from __future__ import annotations

import functools

import pytest
import torch


@functools.cache
def has_bf16_recurrent_kernel() -> bool:
    """Whether an LSTM runs under bfloat16 autocast on this processor."""
    layer = torch.nn.LSTM(8, 8)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(torch.ones(2, 1, 8))
    except RuntimeError as error:
        if "could not create a primitive" in str(error):
            return False
        raise
    return True


@functools.cache
def has_mixed_squares() -> bool:
    """Whether the backward of squared errors takes operands of two dtypes; before torch 2.12 it takes one."""
    half = torch.ones(1, dtype=torch.half, requires_grad=True)
    try:
        torch.nn.functional.mse_loss(half, torch.ones(1)).backward()
    except RuntimeError as error:
        if "Found dtype" in str(error):
            return False
        raise
    return True


def skip_without_kernel(name: str, precision: str) -> None:
    """Skip a zoo model that eager PyTorch cannot run here."""
    if name == "lstm" and precision == "bf16" and not has_bf16_recurrent_kernel():
        pytest.skip("oneDNN has no bfloat16 recurrent kernel for this processor")
