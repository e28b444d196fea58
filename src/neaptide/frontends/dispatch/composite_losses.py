"""A loss whose composite operation asks for numbers where no trace sees it: CTC.

The lengths of the sequences decide what the loss keeps: its table is as wide as the longest target. Where they are Python
numbers, the library also writes them straight into the memory of a new tensor, and a fake tensor has none. Here such
lengths are a literal. Of lengths in tensors the longest is worked out where it depends on the batch alone, and decides
which program a call runs. The operations are those of eager, in the same order.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends.dispatch.host_numbers import HostNumbers
from neaptide.frontends.kernels.fake_kernels import longest_target

_MEAN, _SUM = 1, 2  # of `reduction`, as torch counts them
_AXES = 3  # of scores: time, batch, classes


@contextlib.contextmanager
def seen_through_ctc_loss(host: HostNumbers) -> Iterator[None]:
    """While the context is open, `torch.ctc_loss` is made of operations that a trace sees.

    Args:
        host: the numbers of the trace.
    """
    original = torch.ctc_loss

    def ctc_loss(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: int = _MEAN,
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        in_tensors = isinstance(target_lengths, torch.Tensor)
        longest = host.whole_number(target_lengths.max()) if in_tensors else max(target_lengths, default=0)
        if longest is None or log_probs.device.type != "cpu":
            given = (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
            return original(*given)
        with longest_target(longest):
            batched = log_probs if log_probs.dim() == _AXES else log_probs.unsqueeze(1)
            each = _each(
                batched, targets, (input_lengths, target_lengths), blank, zero_infinity=zero_infinity
            )
        if reduction == _MEAN:
            kind, device = each.dtype, each.device
            counts = (
                target_lengths
                if in_tensors
                else torch.tensor(list(target_lengths), dtype=kind, device=device)
            )
            return (each / counts.clamp_min(1)).mean()
        if reduction == _SUM:
            return each.sum()
        return each if batched is log_probs else each.squeeze(0)

    torch.ctc_loss = ctc_loss
    try:
        yield
    finally:
        torch.ctc_loss = original


def _each(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    lengths: tuple[Any, Any],
    blank: int,
    *,
    zero_infinity: bool,
) -> torch.Tensor:
    """The loss of each sequence, as `ctc_loss` in torch's LossCTC.cpp has it on a CPU."""
    kernels = torch.ops.aten._ctc_loss  # noqa: SLF001
    if isinstance(lengths[0], torch.Tensor):
        kernel, given = kernels.Tensor, lengths
    else:
        kernel, given = kernels.default, (list(lengths[0]), list(lengths[1]))
    result: torch.Tensor = kernel(
        log_probs, targets.to(log_probs.device, torch.int64), *given, blank, zero_infinity
    )[0]
    if zero_infinity:
        zero = torch.zeros((), dtype=result.dtype, device=result.device)
        result = torch.where(result == math.inf, zero, result)
    return result
