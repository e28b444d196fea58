"""A step that is planned, and the same in eager, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import neaptide
from neaptide.runtime.measuring.meter import LiveBytesMeter


class PairedSteps:
    """A compiled step and the same step beside it; `make` gives a step and its model, and `options` are of `compile_step`."""

    def __init__(self, make: Callable[[], tuple[Callable[..., Any], Any]], **options: Any) -> None:
        step, self.model = make()
        self.eager, self.reference = make()
        self.fast = neaptide.compile_step(step, **options)
        self.counts = self.fast.counts

    def step(self, *batch: Any) -> int:
        """A step of both with the same bits; gives the most bytes that were live in the planned one."""
        torch.manual_seed(2)
        with LiveBytesMeter([*tree_leaves(batch), *self.fast.persistent()]) as meter:
            found = self.fast(*batch)
        torch.manual_seed(2)
        assert torch.equal(found, self.eager(*batch))
        return meter.peak_bytes

    def have_the_same_bits(self, batches: list[Any]) -> int:
        """Steps of both; gives how many were planned again."""
        before = self.counts.replans
        for batch in batches:
            self.step(batch)
        for own, other in zip(self.model.parameters(), self.reference.parameters(), strict=True):
            assert torch.equal(own, other)
        return self.counts.replans - before
