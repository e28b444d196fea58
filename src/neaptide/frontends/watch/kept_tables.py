"""The lists and dicts of optimizers, which a trace fills with twins, and how they are put back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from neaptide.frontends.objects.containers import copied, refill


class KeptTables:
    """The lists and dicts in which optimizers keep parameters, groups and state, as they were.

    Args:
        optimizers: whose they are; some may share them.
    """

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}
        for optimizer in optimizers:
            for item in (optimizer.param_groups, optimizer.state):
                self._keep(item)
            for group in optimizer.param_groups:
                self._keep(group)
                self._keep(group["params"])
            for entries in optimizer.state.values():
                self._keep(entries)

    def _keep(self, item: Any) -> None:
        if isinstance(item, (list, dict)) and id(item) not in self._copies:
            self._copies[id(item)] = item, copied(item)

    def put_back(self) -> None:
        """Make each what it was."""
        for item, before in self._copies.values():
            refill(item, before)
