"""What a traced step reads, as fake tensors: nothing of model size is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.card.pretended import current_card, device_of_copy
from neaptide.frontends.dims.dynamic_dims import DynamicDim
from neaptide.frontends.dims.traced_dims import TracedDims
from neaptide.frontends.objects.places import Place
from neaptide.frontends.recording.host_part import is_host_number, traced_dtype
from neaptide.frontends.state.step_slots import (
    NUMBER_TYPES,
    EntryPattern,
    InputSlot,
    TensorSpec,
    argument_name,
    held_elsewhere,
    hyper_parameters,
)
from neaptide.frontends.state.step_state import StepState, TensorSlot

# As what a Python number that changes enters a trace, where it is read back at once.
_NUMBERS: dict[type, TensorSpec] = {
    kind: TensorSpec((), (), traced_dtype(kind()), torch.device("cpu")) for kind in NUMBER_TYPES
}


class FakeInputs:
    """A fake tensor of everything that a step reads, beside the slot that it fills."""

    def __init__(
        self,
        state: StepState,
        entry: EntryPattern,
        changing: frozenset[str],
        numbers: Sequence[tuple[Place, Any]],
        leaves: Sequence[Any],
        dims: Sequence[DynamicDim],
    ) -> None:
        """Fakes of all inputs: `leaves` are those of the arguments, `numbers` the places among what changes, with contents."""
        self.mode = private.new_fake_mode()
        self.sizes = TracedDims(self.mode, dims)
        self.slots: list[InputSlot] = []
        self.fakes: list[torch.Tensor] = []
        self.known: dict[tuple[Any, ...], Any] = dict(entry.numbers)
        self._wholes: dict[tuple[int, torch.device], torch.Tensor] = {}
        self._add_tensors(state, entry)
        self._add_state(state, entry)
        for label, optimizer in state.optimizers.items():
            for setting in hyper_parameters(label, optimizer):
                if setting.is_input(changing):
                    self._add_number(setting.name, setting.slot_key(label), setting.content)
        for place, number in numbers:
            self._add_number(place.name, ("scalar", place.name), number)
        for position, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                fake = self.sizes.fake(position, leaf) if self.sizes.has(position) else self._fake(leaf)
                self._add(InputSlot("batch", f"batch_{position}", ("batch", position)), fake)
            elif argument_name(position) in changing:
                self._add_number(argument_name(position), ("argument", position), leaf)

    def _add_tensors(self, state: StepState, entry: EntryPattern) -> None:
        for slot in state.tensors:
            fake = self._fake(slot.current())
            if slot.name in entry.flags:
                fake.requires_grad_(entry.flags[slot.name])
            _keep_hooks(slot, fake)
            vars(fake).update({k: v for k, v in vars(slot.current()).items() if k not in vars(fake)})
            self._add(InputSlot(slot.role, slot.name, ("tensor", slot.name)), fake)
        for name, spec in entry.gradients.items():
            self._add(InputSlot("gradient", f"{name}.grad", ("gradient", name)), self._new(placed(spec)))

    def _add_state(self, state: StepState, entry: EntryPattern) -> None:
        elsewhere = held_elsewhere(state)
        for key, spec in entry.optimizer_state.items():
            label, name, kept = key
            slot_name, slot_key = f"{label}.state.{name}.{kept}", ("state", *key)
            if key in elsewhere:
                continue
            if isinstance(spec, TensorSpec):
                # Step counts stay where they are: on the CPU, unless the optimizer's kernels read them.
                self._add(
                    InputSlot("optimizer_state", slot_name, slot_key),
                    self._new(placed(spec) if spec.shape else spec),
                )
            elif spec.kind in NUMBER_TYPES:
                self._add(InputSlot("rate", slot_name, slot_key), self._new(_NUMBERS[spec.kind]))

    def _add(self, slot: InputSlot, fake: torch.Tensor) -> None:
        self.slots.append(slot)
        self.fakes.append(fake)

    def _add_number(self, name: str, key: tuple[Any, ...], number: Any) -> None:
        """A Python number, or the tensor that stands in a parameter group."""
        if isinstance(number, torch.Tensor):
            fake = self._new(TensorSpec.of(number)) if current_card() else self._fake(number)
        else:
            fake = self._new(_NUMBERS[int if isinstance(number, int) else float])
        self._add(InputSlot("rate", name, key), fake)
        if is_host_number(number):
            self.known.setdefault(key, number)

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            raise CaptureError(
                f"a tensor with layout {tensor.layout} cannot be traced",
                next_step="make it dense, or keep what uses it outside the step",
            )
        if tensor.device.type == "meta" or device_of_copy(tensor) != tensor.device:
            # A model built without bytes stands for one on the CPU, or on a card: ops must choose real kernels.
            copy = self._placed_copy(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                return torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
            return copy.requires_grad_(tensor.requires_grad)
        if not tensor.is_leaf:  # what it was computed from is no part of the step
            return self._fake(tensor.detach()).requires_grad_(tensor.requires_grad)
        try:
            fake: torch.Tensor = self.mode.from_tensor(tensor, static_shapes=True)
            nbytes = tensor.untyped_storage().nbytes()
            if int(fake.untyped_storage().nbytes()) < nbytes:  # torch's windows see a part of what they hold
                fake.untyped_storage().resize_(nbytes)
        except Exception as error:
            raise CaptureError(
                f"a tensor of type {type(tensor).__name__} cannot be traced",
                why=str(error).splitlines()[0] if str(error) else type(error).__name__,
            ) from error
        if fake.grad is not None:
            fake.grad = None
        if any(fake is other for other in self.fakes):  # the same tensor twice, in the batch
            return fake.detach().requires_grad_(tensor.requires_grad)
        return fake

    def _placed_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a tensor on another device; what shared a storage does so there."""
        storage, device = tensor.untyped_storage(), device_of_copy(tensor)
        key = private.storage_key(storage), device
        with self.mode, torch.no_grad():
            if key not in self._wholes:
                self._wholes[key] = torch.empty(storage.nbytes(), dtype=torch.uint8, device=device)
            whole = self._wholes[key]
            of_dtype = whole[: len(whole) - len(whole) % tensor.itemsize].view(tensor.dtype)
            return of_dtype.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).detach()

    def _new(self, spec: TensorSpec) -> torch.Tensor:
        with self.mode:
            return spec.empty()


def placed(spec: TensorSpec) -> TensorSpec:
    """The spec of a gradient or a moment, on the card where one is pretended."""
    card = current_card()
    return spec if card is None else replace(spec, device=card.device)


def _keep_hooks(slot: TensorSlot, fake: torch.Tensor) -> None:
    gradient_hooks, accumulated = private.parameter_hooks(slot.current())
    if accumulated:
        raise CaptureError(
            f"{slot.name} has a post-accumulate-gradient hook",
            why="such a hook usually updates the parameter itself, found by identity, inside the backward",
            next_step="remove the hook: neaptide places each update right after its gradient where that pays",
        )
    for hook in gradient_hooks:
        fake.register_hook(hook)  # type: ignore[no-untyped-call]
