"""Names of PyTorch of this room that carry no types, in one place."""

from __future__ import annotations

import torch


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of a CUDA device."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
