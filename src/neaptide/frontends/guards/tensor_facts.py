"""Facts about the tensors of a step: geometry, hooks, which are the same and which share bytes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.guards.place_facts import MISSING, Fact, read
from neaptide.frontends.objects.containers import entry
from neaptide.frontends.objects.places import ItemPlace, Place
from neaptide.frontends.objects.same_object import Same
from neaptide.frontends.objects.sweep import GONE
from neaptide.frontends.state.step_state import StepState


class Geometry(NamedTuple):
    """What operations ask of a tensor before they read its numbers. A size that may vary is the name of its dim."""

    shape: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    kind: type
    view: tuple[str, ...]


def geometry(tensor: Any) -> Any:
    """The geometry of a tensor; the type of something else that is where a tensor was."""
    if not isinstance(tensor, torch.Tensor):
        return type(tensor)
    device = tensor.device.type
    strided = tensor.layout is torch.strided
    kinds = {
        str(tensor.layout).removeprefix("torch."): not strided,
        "conjugated": tensor.is_conj(),
        "negated": tensor.is_neg(),
        "computed from others": tensor.requires_grad and not tensor.is_leaf,
    }
    return Geometry(
        tuple(tensor.shape),
        tensor.stride() if strided else (),
        tensor.dtype,
        device if device != "meta" else "cpu",
        tensor.requires_grad,
        type(tensor),
        tuple(name for name, holds in kinds.items() if holds),
    )


def hooks_of(tensor: torch.Tensor, name: str) -> list[Fact]:
    """Hooks that autograd runs when the gradient of a tensor is there, by the method that registers them."""
    labels = ("register_hook", "register_post_accumulate_grad_hook")
    found = zip(labels, private.parameter_hooks(tensor), strict=True)
    return [(f"{name}.{label}", tuple(map(Same, hooks))) for label, hooks in found if hooks]


_METHODS: tuple[Callable[[torch.Tensor], Any], ...] = (
    type,
    operator.attrgetter("shape", "dtype", "device", "layout", "is_leaf"),
    torch.Tensor.stride,
    torch.Tensor.is_conj,
    torch.Tensor.is_neg,
)
_FLAG = operator.attrgetter("requires_grad")
_HOOKS = operator.attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")


def measured(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The geometry of many tensors as something to compare, at a third of a microsecond a tensor."""
    return [list(map(method, tensors)) for method in _METHODS]


class TensorFacts:
    """Reads the parameters, buffers and loose tensors of a step."""

    def __init__(self, state: StepState) -> None:
        self._state = state
        flagged = state.flagged or frozenset()
        self._flagged = [number for number, slot in enumerate(state.tensors) if slot.name in flagged]
        self._further = [(slot, place) for slot in state.tensors for place in slot.places[1:]]
        first = [slot.places[0] for slot in state.tensors]
        self._getters: list[Callable[[Any], Any]] = [_reader(place) for place in first]
        self._holders = [place.holder if isinstance(place, ItemPlace) else place for place in first]
        index = {id(slot): number for number, slot in enumerate(state.tensors)}
        self._same = [(index[id(slot)], place) for slot, place in self._further]
        self._known: Any = None
        self._addresses: list[int] = []
        self._storages: dict[int, str] = {}

    def now(self) -> list[Any]:
        """What is in the places of the tensors, in their order.

        Raises:
            LookupError: a place is gone, among other errors of its kind (`sweep.GONE`).
        """
        return list(map(operator.call, self._getters, self._holders))

    def read(self) -> list[Fact]:
        """Geometry, hooks and sharing of each."""
        found = {slot.name: read(slot.places[0]) for slot in self._state.tensors}
        facts: list[Fact] = [(name, geometry(t)) for name, t in found.items() if t is not MISSING]
        flagged = self._state.flagged or frozenset()
        facts = [
            (
                name,
                fact._replace(requires_grad=False)
                if name in flagged and isinstance(fact, Geometry)
                else fact,
            )
            for name, fact in facts
        ]
        tensors = {name: t for name, t in found.items() if isinstance(t, torch.Tensor)}
        for name, tensor in tensors.items():
            facts += hooks_of(tensor, name)
        facts += [
            (place.name, "untied")
            for slot, place in self._further
            if read(place) is not found.get(slot.name, MISSING)
        ]
        return facts + _shared(tensors)

    def arm(self) -> None:
        """Remember how the tensors are; they themselves are not held on to."""
        try:
            tensors = self.now()
            self._known = self._measured(tensors)
            self._addresses = list(map(torch.Tensor.data_ptr, tensors))
        except (*GONE, RuntimeError):
            self._known, self._addresses = None, []
            return
        self._note_storages(tensors)

    def _note_storages(self, tensors: list[torch.Tensor]) -> None:
        self._storages = {}
        for slot, tensor in zip(self._state.tensors, tensors, strict=True):
            self._storages.setdefault(storage_of(tensor), slot.name)

    def unchanged(self) -> bool:
        """Whether all are as they were, but for their numbers and where their bytes are. O(tensors)."""
        try:
            tensors = self.now()
            if self._measured(tensors) != self._known:
                return False
            addresses = list(map(torch.Tensor.data_ptr, tensors))
        except (*GONE, RuntimeError):
            return False
        if addresses != self._addresses:
            before = len(self._storages)
            self._note_storages(tensors)
            self._addresses = addresses
            if len(self._storages) != before or before != len(tensors):
                return False  # some share bytes now, or did: the facts tell which
        return all(read(place) is tensors[number] for number, place in self._same)

    def named_storages(self) -> Mapping[int, str]:
        """The name of a tensor on each storage, by its address."""
        return self._storages

    def _measured(self, tensors: list[torch.Tensor]) -> Any:
        hooks = list(map(_HOOKS, tensors))
        kept = [hook for pair in hooks for hooks in pair if hooks for hook in hooks.values()]
        flags = list(map(_FLAG, tensors))
        for number in self._flagged:
            flags[number] = False
        return measured(tensors), flags, kept

    def flags(self, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """`requires_grad` of those of the tensors that are in the places now whose flag the step itself sets."""
        return [tensors[number].requires_grad for number in self._flagged]


def storage_of(tensor: torch.Tensor) -> int:
    """Where the bytes of a tensor are; a number of its own for one that has none."""
    if tensor.layout is not torch.strided:
        return -id(tensor)
    return tensor.untyped_storage().data_ptr() or -id(tensor)


def _shared(tensors: Mapping[str, torch.Tensor]) -> list[Fact]:
    first: dict[int, str] = {}
    facts: list[Fact] = []
    for name, tensor in tensors.items():
        earlier = first.setdefault(storage_of(tensor), name)
        if earlier != name:
            facts.append((f"{name} shares bytes with", earlier))
    return facts


def _reader(place: Place) -> Callable[[Any], Any]:
    if not isinstance(place, ItemPlace):
        return _content
    return operator.itemgetter(place.key) if type(place.holder) in _PLAIN else partial(_entry, place.key)


def _entry(key: Any, holder: Any) -> Any:
    return entry(holder, key)


_PLAIN = (dict, list)


def _content(place: Place) -> Any:
    return place.get()
