"""What a traced step reads, as fake tensors: nothing of model size is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
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
_NUMBERS = {kind: TensorSpec((), (), traced_dtype(kind()), torch.device("cpu")) for kind in NUMBER_TYPES}


class FakeInputs:
    """A fake twin of everything that a step reads, beside the slot that it fills.

    Attributes:
        mode: in which the twins are made.
        slots: one for each input.
        fakes: the twins, in the same order.
        known: by slot key, numbers that the host knows when the step begins.
        sizes: the symbols of the dims that may vary.
    """

    def __init__(
        self,
        state: StepState,
        entry: EntryPattern,
        changing: frozenset[str],
        batch_leaves: Sequence[Any],
        numbers: Sequence[tuple[Place, Any]],
        dims: Sequence[DynamicDim] = (),
    ) -> None:
        """Twins of all inputs.

        Args:
            state: what the step works on.
            entry: gradients and optimizer state that exist when it begins.
            changing: names of Python numbers that are inputs.
            batch_leaves: of the arguments of the call.
            numbers: places of the state whose Python floats are inputs, with what is there.
            dims: of the arguments, that may vary.

        Raises:
            CaptureError: a tensor has no fake twin, or a hook that its twin cannot have.
        """
        self._state, self._entry, self._changing = state, entry, changing
        self._batch_leaves, self._numbers = batch_leaves, numbers
        self.mode = private.new_fake_mode()
        self.sizes = TracedDims(self.mode, dims)
        self.slots: list[InputSlot] = []
        self.fakes: list[torch.Tensor] = []
        self.known: dict[tuple[Any, ...], Any] = dict(entry.numbers)
        self._add_all()

    def _add_all(self) -> None:
        for slot in self._state.tensors:
            fake = self._fake(slot.current())
            if slot.name in self._entry.flags:
                fake.requires_grad_(self._entry.flags[slot.name])
            _keep_hooks(slot, fake)
            vars(fake).update({k: v for k, v in vars(slot.current()).items() if k not in vars(fake)})
            self._add(InputSlot(slot.role, slot.name, ("tensor", slot.name)), fake)
        for name, spec in self._entry.gradients.items():
            self._add(InputSlot("gradient", f"{name}.grad", ("gradient", name)), self._new(spec))
        elsewhere = held_elsewhere(self._state)
        for (label, name, key), entry in self._entry.optimizer_state.items():
            if (label, name, key) in elsewhere:
                continue
            slot_name, slot_key = f"{label}.state.{name}.{key}", ("state", label, name, key)
            if isinstance(entry, TensorSpec):
                self._add(InputSlot("optimizer_state", slot_name, slot_key), self._new(entry))
            elif entry.kind in NUMBER_TYPES:
                self._add(InputSlot("rate", slot_name, slot_key), self._new(_NUMBERS[entry.kind]))
        for label, optimizer in self._state.optimizers.items():
            for setting in hyper_parameters(label, optimizer):
                if setting.is_input(self._changing):
                    content = setting.content
                    fake = self._fake(content) if isinstance(content, torch.Tensor) else self._number(content)
                    self._add(InputSlot("rate", setting.name, setting.slot_key(label)), fake, content)
        for place, number in self._numbers:
            self._add(InputSlot("rate", place.name, ("scalar", place.name)), self._number(number), number)
        for position, leaf in enumerate(self._batch_leaves):
            if isinstance(leaf, torch.Tensor):
                fake = self.sizes.twin(position, leaf) if self.sizes.has(position) else self._fake(leaf)
                self._add(InputSlot("batch", f"batch_{position}", ("batch", position)), fake)
            elif argument_name(position) in self._changing:
                name = argument_name(position)
                self._add(InputSlot("rate", name, ("argument", position)), self._number(leaf), leaf)

    def _add(self, slot: InputSlot, fake: torch.Tensor, number: Any = None) -> None:
        self.slots.append(slot)
        self.fakes.append(fake)
        if is_host_number(number):
            self.known.setdefault(slot.key, number)

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            raise CaptureError(
                f"a tensor with layout {tensor.layout} cannot be traced",
                next_step="make it dense, or keep what uses it outside the step",
            )
        if tensor.device.type == "meta":
            # A model built without bytes stands for one on the CPU: ops must choose real kernels.
            twin = self._new(TensorSpec.of(tensor))
            if isinstance(tensor, torch.nn.Parameter):
                return torch.nn.Parameter(twin, requires_grad=tensor.requires_grad)
            return twin.requires_grad_(tensor.requires_grad)
        if not tensor.is_leaf:  # what it was computed from is no part of the step
            return self._fake(tensor.detach()).requires_grad_(tensor.requires_grad)
        try:
            fake: torch.Tensor = self.mode.from_tensor(tensor, static_shapes=True)
            nbytes = tensor.untyped_storage().nbytes()
            if (
                int(fake.untyped_storage().nbytes()) < nbytes
            ):  # torch's own windows see a part of what they hold
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

    def _new(self, spec: TensorSpec) -> torch.Tensor:
        with self.mode:
            return spec.empty()

    def _number(self, number: float) -> torch.Tensor:
        return self._new(_NUMBERS[int if isinstance(number, int) else float])


def _keep_hooks(slot: TensorSlot, fake: torch.Tensor) -> None:
    gradient_hooks, accumulated = private.parameter_hooks(slot.current())
    if accumulated:
        raise CaptureError(
            f"{slot.name} has a post-accumulate-gradient hook",
            why="such a hook usually updates the parameter itself, found by identity, inside the backward",
            next_step="remove the hook: neaptide places each update right after its gradient where that pays",
        )
    for hook in gradient_hooks:
        private.register_hook(fake, hook)
