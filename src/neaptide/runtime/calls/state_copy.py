"""The user's objects as they are before some steps that must leave no trace, and how they are put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from neaptide.errors import UsageError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.objects.containers import copied, refill
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.state.argument_changes import containers_in
from neaptide.frontends.watch.trace_watch import StateWatch
from neaptide.lower.random_states import random_state, set_random_state
from neaptide.runtime.calls.binding import state_tensors
from neaptide.runtime.measuring.process import available_bytes
from neaptide.runtime.saving.restore_point import whole_storage
from neaptide.runtime.saving.scratch_file import ScratchFile
from neaptide.units import format_bytes


class StateCopy:
    """All that a captured step can change: tensors and gradients, optimizers, scalers, Python state, random numbers.

    Bytes are copied to the host's memory, or to a file. What a step cannot change is not copied: it could not have been
    captured.

    Args:
        file: for the bytes; it is open as long as they are needed. None: the host's memory.
    """

    def __init__(
        self,
        captured: CapturedStep,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        file: ScratchFile | None = None,
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
            (scaler, private.scaler_notes(scaler), dict(private.scaler_notes(scaler)))
            for scaler in state.scalers.values()
        ]
        leaves = leaves_of((args, dict(kwargs)))
        there = [*state_tensors(state), *tensors, *(gradient for _, gradient, _ in self._gradients), *leaves]
        wholes = _wholes(found for found in there if isinstance(found, torch.Tensor))
        self._file = file
        self._on_host = _copies(wholes) if file is None else []
        self._in_file = (
            [] if file is None else [(s, file.put(s)) for s in (w.untyped_storage() for w in wholes)]
        )
        self._random = [(device, random_state(device)) for device in _random_devices()]

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
            private.set_scaler_notes(scaler, notes)
        with torch.no_grad():
            for whole, copy in self._on_host:
                whole.copy_(copy)
        for storage, at in self._in_file:
            assert self._file is not None
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


def _wholes(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Each storage of some tensors once, as a flat alias."""
    wholes: dict[tuple[torch.device, int], torch.Tensor] = {}
    for tensor in tensors:
        if tensor.device.type != "meta" and tensor.untyped_storage().nbytes():
            wholes.setdefault((tensor.device, tensor.untyped_storage().data_ptr()), whole_storage(tensor))
    return list(wholes.values())


def _copies(wholes: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Whole storages, each with a copy on the host."""
    needed = sum(whole.untyped_storage().nbytes() for whole in wholes)
    free = available_bytes()
    if free is not None and needed > free:
        raise _too_large(needed, f"{format_bytes(free)} are free")
    try:
        with torch.no_grad():
            return [(whole, whole.to("cpu", copy=True)) for whole in wholes]
    except (MemoryError, RuntimeError) as error:
        raise _too_large(needed, str(error).splitlines()[0]) from error


def _too_large(needed: int, why: str) -> UsageError:
    return UsageError(
        f"plans cannot be tried on these objects: a copy of them takes {format_bytes(needed)}",
        why=why,
        next_step="leave out trials, or choose among plans with a factory (neaptide plan --trials) and apply that plan",
    )


def _random_devices() -> list[str]:
    """Devices whose default generators may be drawn from."""
    cuda = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    return ["cpu", *(f"cuda:{index}" for index in cuda)]
