"""The user's objects as they are before some steps that must leave no trace, and how they are put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from neaptide.cost.random_states import random_devices, random_state, set_random_state
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.objects.containers import copied, refill
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.state.argument_changes import containers_in
from neaptide.frontends.watch.trace_watch import StateWatch
from neaptide.runtime.calls.binding import state_tensors
from neaptide.runtime.saving.scratch_file import ScratchFile


class StateCopy:
    """All that a captured step can change: tensors and gradients, optimizers, scalers, Python state, random numbers.

    Bytes are copied to a file, which is open as long as they are needed. What a step cannot change is not copied: it could
    not have been captured.
    """

    def __init__(
        self,
        captured: CapturedStep,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        file: ScratchFile,
    ) -> None:
        state = captured.state
        slots = [*state.tensors, *state.unused]
        self._places = [(place, place.get()) for slot in slots for place in slot.places]
        self._watch = StateWatch(state)
        tensors = [slot.current() for slot in slots]
        self._gradients = [
            (tensor, tensor.grad, tensor.requires_grad) for tensor in tensors if tensor.is_leaf
        ]
        tables = [*_tables(captured), *containers_in((args, kwargs))]
        self._tables = [(table, copied(table)) for table in tables]
        self._notes = [
            (scaler, getattr(scaler, private.SCALER_NOTES), dict(getattr(scaler, private.SCALER_NOTES)))
            for scaler in state.scalers.values()
        ]
        leaves = leaves_of((args, dict(kwargs)))
        there = [*state_tensors(state), *tensors, *(gradient for _, gradient, _ in self._gradients), *leaves]
        self._file = file
        self._in_file = [(storage, file.put(storage)) for storage in _storages(there)]
        self._random = [(device, random_state(device)) for device in random_devices()]

    def put_back(self) -> None:
        """Make everything what it was."""
        for place, content in self._places:
            place.set(content)
        self._watch.restore()
        for tensor, gradient, flag in self._gradients:
            tensor.grad = gradient
            tensor.requires_grad_(flag)
        for table, before in self._tables:
            refill(table, before)
        for scaler, notes, content in self._notes:
            notes.clear()
            notes.update(content)
            setattr(scaler, private.SCALER_NOTES, notes)
        for storage, at in self._in_file:
            self._file.get(at, storage)
        for device, numbers in self._random:
            set_random_state(device, numbers)


def _tables(captured: CapturedStep) -> Iterator[dict[Any, Any]]:
    """Dicts of the optimizers and scalers that a step may write."""
    for optimizer in captured.state.optimizers.values():
        yield vars(optimizer)
        yield from optimizer.param_groups
        yield from optimizer.state.values()
        yield optimizer.state
    for scaler in captured.state.scalers.values():
        yield vars(scaler)


def _storages(tensors: Iterable[Any]) -> list[torch.UntypedStorage]:
    """The storages of some tensors, each once; what is no tensor is left out."""
    found: dict[tuple[torch.device, int], torch.UntypedStorage] = {}
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
            storage = tensor.untyped_storage()
            if storage.nbytes():
                found.setdefault((tensor.device, storage.data_ptr()), storage)
    return list(found.values())


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
        """Keep nothing live any more."""
        self._copies.clear()


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes that a tensor sees a part of, as a flat alias that is not recorded for autograd."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0)
