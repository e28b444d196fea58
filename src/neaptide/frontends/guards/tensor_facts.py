"""Facts about the tensors of a step, and about the parameter groups of its optimizers."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.guards.place_facts import Fact, Facts
from neaptide.frontends.objects.containers import entry
from neaptide.frontends.objects.places import GONE, MISSING, ItemPlace, Place, read
from neaptide.frontends.objects.values import Same, fact_of
from neaptide.frontends.state.step_slots import (
    EntryPattern,
    HyperParameter,
    PlainSpec,
    TensorSpec,
    hyper_parameters,
)
from neaptide.frontends.state.step_state import StepState

_GRAD = operator.attrgetter("grad")
_IS_LEAF = operator.attrgetter("is_leaf")
_TENSORS = {torch.Tensor, torch.nn.Parameter}


class Presence:
    """Notices when other gradients or other optimizer state exist than when it was armed.

    A tensor of the state is known by itself and by where its bytes are; nothing is held on to.
    """

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._tensors = TensorFacts(state)
        self._known: Any = None
        self._objects: list[Callable[[], Any]] = []

    def arm(self) -> None:
        """Remember what exists; state of another form than torch's own is looked at anew at each call."""
        try:
            objects, self._known = self._look()
            self._objects = list(map(_reference, objects))
        except (*GONE, RuntimeError):
            self._known = None

    def unchanged(self) -> bool:
        """Whether the same exists as then. O(tensors), a tenth of a microsecond for each."""
        try:
            objects, now = self._look()
        except (*GONE, RuntimeError):
            return False
        same = self._known is not None and len(objects) == len(self._objects)
        same = same and all(map(operator.is_, objects, map(operator.call, self._objects)))
        return same and bool(now == self._known)

    def _look(self) -> tuple[list[Any], Any]:
        """The parameters that have optimizer state and its entries, in order; and what is compared as it is."""
        tensors = self._tensors.now()
        flags = self._tensors.flags(tensors)
        if not all(map(_IS_LEAF, tensors)):  # the gradient of one that was computed is none of the step's
            tensors = list(filter(_IS_LEAF, tensors))
        gradients = list(map(_GRAD, tensors))
        there = [gradient for gradient in gradients if gradient is not None]
        kept = [table for _, table in self._state.kept_state()]
        tables = list(chain.from_iterable(map(dict.values, kept)))
        entries = list(chain.from_iterable(map(dict.values, tables)))
        stored = entries
        if not set(map(type, entries)) <= _TENSORS:
            stored = [entry for entry in entries if isinstance(entry, torch.Tensor)]
        return [*chain.from_iterable(kept), *entries], (
            list(map(id, tensors)),
            [gradient is not None for gradient in gradients] if there else None,
            geometries(there) if there else None,
            list(map(tuple, tables)),
            list(map(torch.Tensor.data_ptr, stored)),
            flags,
        )


def fits(entry: EntryPattern, now: EntryPattern, *, reads_gradients: bool) -> bool:
    """Whether what exists has the geometry that a program was captured with."""
    state = _agree(entry.optimizer_state, now.optimizer_state)
    return state and (not reads_gradients or _agree(entry.gradients, now.gradients))


def _agree(then: Mapping[Any, Any], now: Mapping[Any, Any]) -> bool:
    return then.keys() == now.keys() and all(_geometry(then[key]) == _geometry(now[key]) for key in then)


def _geometry(spec: TensorSpec | PlainSpec) -> tuple[Any, ...]:
    if isinstance(spec, PlainSpec):
        return spec.kind, spec.content
    device = spec.device.type
    return spec.shape, spec.strides, spec.dtype, "cpu" if device == "meta" else device


def _reference(item: Any) -> Callable[[], Any]:
    return weakref.ref(item) if isinstance(item, torch.Tensor) else lambda: item


# -- facts


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
_PLAIN = (dict, list)


def geometries(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The geometry of many tensors as something to compare, at a third of a microsecond a tensor."""
    return [list(map(method, tensors)) for method in _METHODS]


class TensorFacts(Facts):
    """Reads the parameters, buffers and loose tensors of a step; they themselves are not held on to."""

    def __init__(self, state: StepState) -> None:
        super().__init__()
        self._state = state
        flagged = state.flagged or frozenset()
        self._flagged = [number for number, slot in enumerate(state.tensors) if slot.name in flagged]
        self._further = [(n, place) for n, slot in enumerate(state.tensors) for place in slot.places[1:]]
        first = [slot.places[0] for slot in state.tensors]
        self._getters: list[Callable[[Any], Any]] = [_reader(place) for place in first]
        self._holders = [place.holder if isinstance(place, ItemPlace) else place for place in first]
        self._addresses: list[int] = []
        self._storages: dict[int, str] = {}

    def now(self) -> list[Any]:
        """What is in the places of the tensors, in their order; raises one of `GONE` where a place is gone."""
        return list(map(operator.call, self._getters, self._holders))

    def read(self) -> list[Fact]:
        """Geometry, hooks and sharing of each."""
        found = {slot.name: read(slot.places[0]) for slot in self._state.tensors}
        facts: list[Fact] = [(name, geometry(t)) for name, t in found.items() if t is not MISSING]
        flagged = self._state.flagged or frozenset()
        for number, (name, fact) in enumerate(facts):
            if name in flagged and isinstance(fact, Geometry):
                facts[number] = name, fact._replace(requires_grad=False)
        tensors = {name: t for name, t in found.items() if isinstance(t, torch.Tensor)}
        for name, tensor in tensors.items():
            facts += hooks_of(tensor, name)
        facts += [
            (place.name, "untied")
            for number, place in self._further
            if read(place) is not found[self._state.tensors[number].name]
        ]
        return facts + _shared(tensors)

    def arm(self) -> None:
        super().arm()
        try:
            tensors = self.now()
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
            if self._known is None or self._measured(tensors) != self._known:
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
        return all(read(place) is tensors[number] for number, place in self._further)

    def named_storages(self) -> Mapping[int, str]:
        """The name of a tensor on each storage, by its address."""
        return self._storages

    def measured(self) -> Any:
        return self._measured(self.now())

    def _measured(self, tensors: list[torch.Tensor]) -> Any:
        hooks = list(map(_HOOKS, tensors))
        kept = [hook for pair in hooks for hooks in pair if hooks for hook in hooks.values()]
        flags = list(map(_FLAG, tensors))
        for number in self._flagged:
            flags[number] = False
        return geometries(tensors), flags, kept

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
    owners = [(name, first.setdefault(storage_of(tensor), name)) for name, tensor in tensors.items()]
    return [(f"{name} shares bytes with", owner) for name, owner in owners if owner != name]


def _reader(place: Place) -> Callable[[Any], Any]:
    if not isinstance(place, ItemPlace):
        return operator.methodcaller("get")
    if type(place.holder) in _PLAIN:
        return operator.itemgetter(place.key)
    return lambda holder: entry(holder, place.key)


class GroupFacts(Facts):
    """Reads the parameters and hyper-parameters of the groups of the optimizers of a step."""

    def __init__(self, state: StepState, tensors: TensorFacts, changing: frozenset[str]) -> None:
        super().__init__()
        self._changing = changing
        self._state = state
        self._tensors = tensors
        # Where the parameters of the groups stand among the tensors of the step.
        self._owned: list[int] = []

    def _fact(self, entry: HyperParameter, fact: Callable[[Any], Any]) -> Fact:
        return entry.name, (type if entry.is_input(self._changing) else fact)(entry.content)

    def read(self) -> list[Fact]:
        """All of them, by name."""
        names = {id(read(slot.places[0])): slot.name for slot in self._state.tensors}
        facts: list[Fact] = []
        for label, optimizer in self._state.optimizers.items():
            for index, group in enumerate(optimizer.param_groups):
                parameters = tuple(names.get(id(p)) for p in group["params"])
                facts.append((f"{label}.param_groups[{index}].params", parameters))
            facts += [self._fact(entry, fact_of) for entry in hyper_parameters(label, optimizer)]
        return facts

    def arm(self) -> None:
        groups = [group for o in self._state.optimizers.values() for group in o.param_groups]
        listed = {id(parameter) for group in groups for parameter in group["params"]}
        self._owned = [i for i, tensor in enumerate(self._tensors.now()) if id(tensor) in listed]
        super().arm()

    def measured(self) -> Any:
        tensors = self._tensors.now()
        return (
            [id(tensors[i]) for i in self._owned],
            [list(map(id, g["params"])) for o in self._state.optimizers.values() for g in o.param_groups],
            [
                self._fact(entry, Same)
                for label, optimizer in self._state.optimizers.items()
                for entry in hyper_parameters(label, optimizer)
            ],
        )
