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


def repeats_grouped_heads(module: torch.fx.GraphModule) -> bool:
    """Whether some attention reads keys that were copied once for each head of their group."""
    return any(_is_repeated(node.args[1]) for node in module.graph.nodes if node.target is _ATTENTION)


def has_masked_attention(module: torch.fx.GraphModule) -> bool:
    """Whether some attention still reads a mask: there, eager repeats the heads."""
    attention = (node for node in module.graph.nodes if node.target is _ATTENTION)
    return any(node.kwargs.get("attn_mask") is not None for node in attention)


def _is_repeated(key: object) -> bool:
    node = key
    if isinstance(node, torch.fx.Node) and node.target is _CAST:  # under autocast
        node = node.args[0]
    for target in _COPIES:
        if not isinstance(node, torch.fx.Node) or node.target is not target:
            return False
        node = node.args[0]
    if not isinstance(node, torch.fx.Node) or node.target is not torch.ops.aten.expand.default:
        return False
    fake = node.meta["val"]
    return bool(fake.dim() == 5 and fake.stride(2) == 0 and fake.shape[2] > 1)
