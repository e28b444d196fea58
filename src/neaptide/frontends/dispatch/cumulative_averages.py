"""Batch norm with `momentum=None`: its running statistics are averages over all batches so far.

Torch reads the count of batches from a buffer and divides by it in Python, and hands the quotient to an operation that
takes plain numbers only. In a trace the quotient is a symbol. The operation is called with a number that stands for it,
and the recorder writes down the symbol.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.recorder import Recorder

_STAND_IN = 0.123456789012345  # no argument of a batch norm that anyone would write


@contextlib.contextmanager
def cumulative_averages(recorder: Recorder) -> Iterator[None]:
    """Let batch norms count their batches in the program while the context is open."""
    normalise: Any = torch.batch_norm
    momentum_at = 6

    @functools.wraps(normalise)
    def batch_norm(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= momentum_at or not isinstance(args[momentum_at], torch.SymFloat):
            return normalise(*args, **kwargs)
        with recorder.stands_for(_STAND_IN, args[momentum_at]):
            return normalise(*args[:momentum_at], _STAND_IN, *args[momentum_at + 1 :], **kwargs)

    torch.batch_norm = batch_norm
    namespace = private.batch_norm_namespace()
    namespace["float"] = _float_of
    try:
        yield
    finally:
        torch.batch_norm = normalise
        del namespace["float"]


def _float_of(item: Any) -> Any:
    """The number in a tensor, as a symbol where only the data knows it."""
    return item.item() if isinstance(item, torch.Tensor) else float(item)
