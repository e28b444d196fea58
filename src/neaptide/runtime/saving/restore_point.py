"""What a step that dies early is taken back to: the random state, and copies of what is written before the updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from neaptide.lower.random_states import random_state, set_random_state


class RestorePoint:
    """The state of a few tensors and random generators when a step begins.

    A copy holds the whole storage, so that views of it need no copy of their own. Random states are kept outside of
    tensors: they are not part of any peak.

    Args:
        tensors: one on each storage to copy.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], random_devices: Sequence[str]) -> None:
        with torch.no_grad():
            self._copies = [(whole, whole.clone()) for whole in map(whole_storage, tensors)]
        self._random = [(device, random_state(device)) for device in random_devices]

    def put_back(self) -> None:
        """Make everything what it was."""
        with torch.no_grad():
            for whole, copy in self._copies:
                whole.copy_(copy)
        for device, state in self._random:
            set_random_state(device, state)

    def let_go(self) -> None:
        """Keep nothing alive any more."""
        self._copies.clear()


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes that a tensor sees a part of, as a flat alias that is not recorded for autograd."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0)
