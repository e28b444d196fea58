"""Facts about optimizers: the parameters and hyper-parameters of their groups."""

from __future__ import annotations

from typing import Any

from neaptide.frontends.guards.place_facts import Fact, read
from neaptide.frontends.guards.tensor_facts import TensorFacts
from neaptide.frontends.objects.contents import fact_of
from neaptide.frontends.objects.same_object import Same
from neaptide.frontends.objects.sweep import GONE
from neaptide.frontends.state.step_slots import hyper_parameters
from neaptide.frontends.state.step_state import StepState


class GroupFacts:
    """Reads the parameter groups of the optimizers of a step."""

    def __init__(self, state: StepState, tensors: TensorFacts, changing: frozenset[str]) -> None:
        self._changing = changing
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
            for entry in hyper_parameters(label, optimizer):
                is_input = entry.is_input(self._changing)
                facts.append((entry.name, type(entry.content) if is_input else fact_of(entry.content)))
        return facts

    def arm(self) -> None:
        """Remember what is there."""
        groups = [group for o in self._state.optimizers.values() for group in o.param_groups]
        listed = {id(parameter) for group in groups for parameter in group["params"]}
        self._owned = [i for i, tensor in enumerate(self._tensors.now()) if id(tensor) in listed]
        self._known = self._measured()

    def unchanged(self) -> bool:
        """Whether all is as it was, but for what is an input of the program. O(entries)."""
        try:
            return bool(self._measured() == self._known)
        except GONE:
            return False

    def _measured(self) -> Any:
        optimizers = self._state.optimizers
        groups = [group for optimizer in optimizers.values() for group in optimizer.param_groups]
        tensors = self._tensors.now()
        entries = [entry for label, o in optimizers.items() for entry in hyper_parameters(label, o)]
        return (
            [id(tensors[i]) for i in self._owned],
            [list(map(id, group["params"])) for group in groups],
            [(e.name, type(e.content) if e.is_input(self._changing) else Same(e.content)) for e in entries],
        )
