"""Which kernel `batch_norm` runs on a card: the rules of `_select_batch_norm_backend` in aten/src/ATen/native/Normalization.cpp.

A wheel with CUDA decides so by itself, one without takes PyTorch's own kernel for every batch.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
_MOST_IN_TRAINING, _MOST_IN_EVALUATION = 880801, 65535  # images of a batch
_LEAST_AXES = 3


def takes_cudnn(
    images: torch.Tensor,
    scales: tuple[torch.Tensor | None, torch.Tensor | None],
    statistics: tuple[torch.Tensor | None, torch.Tensor | None],
    *,
    training: bool,
) -> bool:
    """Whether cuDNN normalises a batch with scales (weight and bias) and running statistics; of any epsilon, since cuDNN 7.5."""
    weight, bias = scales
    missing = [running is None for running in statistics]
    return (
        weight is not None
        and bias is not None
        and torch.bfloat16 not in (images.dtype, weight.dtype)
        and (images.dtype != torch.float16 or weight.dtype == torch.float32)
        and (not any(missing) or (all(missing) and training))
        and images.dim() >= _LEAST_AXES
        and images.shape[0] <= (_MOST_IN_TRAINING if training else _MOST_IN_EVALUATION)
        and torch.backends.cudnn.enabled
        and images.numel() < torch.iinfo(torch.int32).max
    )


def batch_norm(
    images: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    training: bool,
    *rest: Any,
) -> torch.Tensor:
    """What `aten::batch_norm` does with gradients on a card; the rest are momentum, epsilon and whether cuDNN is on."""
    given: tuple[Any, ...] = (images, weight, bias, mean, variance, training, *rest[:2])
    if takes_cudnn(images, (weight, bias), (mean, variance), training=training):
        given = (images.contiguous(memory_format=_layout(images)), *given[1:])
        return aten.cudnn_batch_norm(*given)[0]  # type: ignore[no-any-return]
    return aten.native_batch_norm(*given)[0]  # type: ignore[no-any-return]


def _layout(images: torch.Tensor) -> torch.memory_format:
    if images.dim() == 4 and images.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format
