"""What operations give for fake tensors, where torch's own answer is not that of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

_ALIGNMENT_BYTES = 16  # of the rows of what grouped products give


def _grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,  # noqa: ARG001 - the kernels refuse one
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of groups of rows, as mixtures of experts use them.

    torch's answer takes bfloat16 only and does not pad rows on the CPU; its kernels take other types, and pad.
    """
    dtype = out_dtype or left.dtype
    groups = () if offs is None else (offs.shape[0],)
    rows, columns = left.shape[-2], right.shape[-1]
    if left.dim() == right.dim():
        batch = (left.shape[0],) if left.dim() == 3 else groups
        size: tuple[int, ...] = (*batch, rows, columns)
    else:
        size = (rows, columns)
    per_row = _ALIGNMENT_BYTES // dtype.itemsize
    padded = -(-columns // per_row) * per_row
    strides = (rows * padded, padded, 1)[-len(size) :]
    return torch.empty_strided(size, strides, dtype=dtype, device=left.device)


FAKE_KERNELS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {torch.ops.aten._grouped_mm.default: _grouped_mm}  # noqa: SLF001
)
"""By operation: a function of the same arguments that gives a tensor of the right geometry."""
