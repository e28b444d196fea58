"""Which gradients and which optimizer state exist: they pick the program of a step, at each call."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import torch

from neaptide.frontends.guards.tensor_facts import TensorFacts, geometries
from neaptide.frontends.objects.places import GONE
from neaptide.frontends.state.step_slots import EntryPattern, PlainSpec, TensorSpec
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
