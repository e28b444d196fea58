"""Names of PyTorch of this room that carry no types, in one place."""

from __future__ import annotations

import torch


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of a CUDA device."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def storage_identity(storage: torch.UntypedStorage) -> int:
    """One number for a storage while it lives, unchanged by a resize."""
    return int(storage._cdata)
