"""The border between forward and backward, as one operation of a joint graph.

Its operands are what the forward pass hands to the caller, its results are the gradients that come back, and the operands as
the caller holds them from there on. So data flow alone says what runs before it and what after it, what autograd saves (what
lives across it), when the bytes of these gradients begin, and that no recomputation takes from the caller what it has. It
overwrites the inputs that the caller overwrites between both passes (the statistics of a batch norm, say): what
reads their old contents is never run after it, and they are never saved.

Searches, evaluators and checkers need no other notion of two programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import torch

_NAME: Final = "neaptide::border"
torch.library.define(_NAME, "(Tensor[] outputs, Tensor(a!)[] overwritten) -> Tensor[]")

_coming: list[list[torch.Tensor]] = []


@torch.library.register_fake(_NAME)  # type: ignore[untyped-decorator]
def _fake(outputs: Sequence[torch.Tensor], overwritten: Sequence[torch.Tensor]) -> list[torch.Tensor]:  # noqa: ARG001
    return [*(output.view_as(output) for output in outputs), *_coming[-1]]


def cross_border(
    outputs: Sequence[torch.Tensor], overwritten: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Run the border on fake tensors: it gives the outputs, as the caller has them, and `tangents`, which nothing has used yet."""
    with _results(tangents):
        found: list[torch.Tensor] = torch.ops.neaptide.border(list(outputs), list(overwritten))
    return found


@contextlib.contextmanager
def _results(tangents: Sequence[torch.Tensor]) -> Iterator[None]:
    _coming.append(list(tangents))
    try:
        yield
    finally:
        _coming.pop()
