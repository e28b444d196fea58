"""Gives attention its `is_causal` flag back where a traced mask is proved to be the causal one.

Model libraries build the causal mask as a tensor when they notice that they are traced, and pass `is_causal`
otherwise. The mask costs bytes and the other kernel branch costs bits. Where the mask depends on no input of the
step it is computed here, once, and compared with the lower triangle; where its sizes vary, its elements are worked
out as formulas. Either is a proof, not a guess.

A mask that the user's own code makes is left alone, causal or not: eager uses it as well, and its bits are eager's.

With it go grouped heads. Without a mask, transformers hands keys and values of fewer heads to the attention
(`enable_gqa`). Under a mask, as traced, it repeats them for every head: more bytes, and a backward that sums the heads of
a group in another order. Where the mask is proved causal afterwards, the step is traced again with transformers' own
switch for this choice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from neaptide.frontends.kernels.mask_elements import is_causal_for_all_sizes
from neaptide.frontends.recording.constant_values import constant_value, has_sizes, is_constant
from neaptide.frontends.recording.recording import Record, Recording

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001

# operation: (position of the flag, position of the mask or None when it is a keyword argument)
_CAUSAL_FLAG = {_FORWARD: 4, _BACKWARD: 7}

_SWITCH: Final = "TRANSFORMERS_SDPA_FORCE_GQA"  # read at each call of its attention
_CAST: Final = torch.ops.aten._to_copy.default  # noqa: SLF001
_COPIES: Final = (torch.ops.aten._unsafe_view.default, torch.ops.aten.clone.default)  # noqa: SLF001

# Code that makes a mask only when it is traced.
_MASK_MAKERS = (os.path.join("transformers", "masking_utils.py"),)  # noqa: PTH118


def restore_causal_attention(recording: Recording) -> list[str]:
    """Rewrites attention under a proved causal mask, in place; says in words what was done.

    The forward and the backward of one attention share their mask, so either both are rewritten or none.
    """
    proved: dict[Record, bool] = {}
    rewritten = 0
    for record in recording.records:
        flag = _CAUSAL_FLAG.get(record.target)
        mask = record.kwargs.get("attn_mask")
        if flag is None or not isinstance(mask, Record):
            continue
        if mask not in proved:
            proved[mask] = _is_causal(mask, recording)
        if not proved[mask]:
            continue
        record.kwargs = {k: v for k, v in record.kwargs.items() if k != "attn_mask"}
        defaults: list[Any] = list(record.args) + [0.0, False][len(record.args) - (flag - 1) :]
        defaults[flag] = True
        record.args = tuple(defaults)
        rewritten += 1
    if not rewritten:
        return []
    return [f"{rewritten} attention ops: a materialised mask is proved causal and replaced by is_causal"]


def _is_causal(mask: Record, recording: Recording) -> bool:
    rows, columns = mask.result.shape[-2:]
    sources: set[Record] = set()
    if rows != columns or not is_constant(mask, recording, sources) or not _is_made_for_tracing(sources):
        return False
    if any(map(has_sizes, sources)):
        return is_causal_for_all_sizes(mask)
    real = constant_value(mask, recording)
    if real is None:
        return False
    lower = torch.ones(rows, columns, dtype=torch.bool).tril()
    if real.dtype == torch.bool:
        return bool((real == lower).all())
    return bool((real == torch.zeros(rows, columns).masked_fill(~lower, float("-inf"))).all())


def _is_made_for_tracing(records: set[Record]) -> bool:
    return any(record.line is not None and record.line.file.endswith(_MASK_MAKERS) for record in records)


# -- grouped heads


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
    return any(_is_repeated(call.args[1]) for call in recording.records if call.target is _FORWARD)


def has_masked_attention(recording: Recording) -> bool:
    """Whether some attention still reads a mask: there, eager repeats the heads."""
    attention = (call for call in recording.records if call.target is _FORWARD)
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
