"""Keeps the heads of grouped-query attention grouped while a step is traced.

Without a mask, transformers hands keys and values of fewer heads to the attention (`enable_gqa`). Traced, it makes
the causal mask as a tensor, and under a mask it repeats keys and values for every head: more bytes, and a backward
that sums the heads of a group in another order. Where the mask is proved causal afterwards, the step is traced again
with transformers' own switch for this choice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from neaptide.frontends.recording.recording import Record, Recording

_SWITCH: Final = "TRANSFORMERS_SDPA_FORCE_GQA"  # read at each call of its attention
_ATTENTION: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
_CAST: Final = torch.ops.aten._to_copy.default  # noqa: SLF001
_COPIES: Final = (torch.ops.aten._unsafe_view.default, torch.ops.aten.clone.default)  # noqa: SLF001


@contextmanager
def grouped_heads() -> Iterator[None]:
    """Within, transformers passes `enable_gqa` under a mask, too. Not for use by several threads at once."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = before


def repeats_grouped_heads(recording: Recording) -> bool:
    """Whether some attention reads keys that were copied once for each head of their group."""
    return any(_is_repeated(call.args[1]) for call in recording.records if call.target is _ATTENTION)


def has_masked_attention(recording: Recording) -> bool:
    """Whether some attention still reads a mask: there, eager repeats the heads."""
    attention = (call for call in recording.records if call.target is _ATTENTION)
    return any(call.kwargs.get("attn_mask") is not None for call in attention)


def _is_repeated(key: object) -> bool:
    record = key
    if isinstance(record, Record) and record.target is _CAST:  # under autocast
        record = record.args[0]
    for target in _COPIES:
        if not isinstance(record, Record) or record.target is not target:
            return False
        record = record.args[0]
    if not isinstance(record, Record) or record.target is not torch.ops.aten.expand.default:
        return False
    expanded = record.result
    return bool(len(expanded.shape) == 5 and expanded.strides[2] == 0 and expanded.shape[2] != 1)
