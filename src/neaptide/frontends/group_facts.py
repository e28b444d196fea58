"""Facts about optimizers: hyper-parameters of their groups, and what they keep in Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch

from neaptide.frontends.contents import fact_of
from neaptide.frontends.place_facts import Fact, read
from neaptide.frontends.same_object import Same
from neaptide.frontends.step_slots import IGNORED_GROUP_KEYS
from neaptide.frontends.step_state import StepState
from neaptide.frontends.sweep import GONE
from neaptide.frontends.tensor_facts import TensorFacts

_TENSORS = {torch.Tensor, torch.nn.Parameter}


class GroupFacts:
    """Reads the parameter groups of the optimizers of a step, and the entries of their state that are no tensors."""

    def __init__(self, state: StepState, tensors: TensorFacts) -> None:
        self._state = state
        self._tensors = tensors
        self._known: Any = None
        # Where the parameters of the groups stand among the tensors of the step.
        self._owned: list[int] = []

    def read(self) -> list[Fact]:
        """All of them, by name."""
        names = {id(read(slot.places[0])): slot.name for slot in self._state.tensors}
        facts: list[Fact] = []
        for label, optimizer in self._state.optimizers.items():
            for index, group in enumerate(optimizer.param_groups):
                where = f"{label}.param_groups[{index}]"
                facts.append((f"{where}.params", tuple(names.get(id(p)) for p in group["params"])))
                facts.append((f"{where}.lr", type(group.get("lr")).__name__))
                facts += [(f"{where}.{key}", fact_of(content)) for key, content in _settings(group)]
            for key, entries in optimizer.state.items():
                owner = names.get(id(key), "another key") if isinstance(key, torch.Tensor) else repr(key)
                facts += [
                    (f"{label}.state.{owner}.{entry}", fact_of(content))
                    for entry, content in (entries.items() if isinstance(entries, dict) else [("", entries)])
                    if not isinstance(content, torch.Tensor)
                ]
        return facts

    def arm(self) -> None:
        """Remember what is there."""
        groups = [group for o in self._state.optimizers.values() for group in o.param_groups]
        listed = {id(parameter) for group in groups for parameter in group["params"]}
        self._owned = [i for i, tensor in enumerate(self._tensors.now()) if id(tensor) in listed]
        self._known = self._measured()

    def unchanged(self) -> bool:
        """Whether all is as it was, but for the tensors and the learning rates. O(entries)."""
        try:
            return bool(self._measured() == self._known)
        except GONE:
            return False

    def _measured(self) -> Any:
        optimizers = self._state.optimizers.values()
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        kept = [list(optimizer.state.values()) for optimizer in optimizers]
        tensors = self._tensors.now()
        return (
            [id(tensors[i]) for i in self._owned],
            [list(map(id, group["params"])) for group in groups],
            [type(group.get("lr")) for group in groups],
            [(key, Same(content)) for group in groups for key, content in _settings(group)],
            list(map(len, groups)),
            _plain_entries(kept),
        )


def _plain_entries(kept: list[list[Any]]) -> list[Same]:
    """What optimizers keep of their parameters that is no tensor: usually nothing."""
    try:
        entries = list(chain.from_iterable(map(dict.values, chain.from_iterable(kept))))
    except TypeError:  # state that does not belong to a parameter
        entries = list(chain.from_iterable(kept))
    if set(map(type, entries)) <= _TENSORS:
        return []
    return [Same(entry) for entry in entries if not isinstance(entry, torch.Tensor)]


def _settings(group: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, content in group.items():
        if key not in IGNORED_GROUP_KEYS and not isinstance(content, torch.Tensor):
            yield key, content
