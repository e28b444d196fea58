"""What a traced step returns and leaves behind, as outputs of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.objects.batch_objects import flatten, is_object, leaves_of
from neaptide.frontends.objects.places import Place
from neaptide.frontends.objects.unread import StandIns, is_unread
from neaptide.frontends.recording.notes import Notes
from neaptide.frontends.state.argument_changes import NO_CHANGES, ArgumentChanges, ArgumentWatch
from neaptide.frontends.state.attachment import open_end, refuse_kept_gradient
from neaptide.frontends.state.step_slots import NUMBER_TYPES, OutputSlot, TensorSpec, argument_name
from neaptide.frontends.state.step_state import StepState, TensorSlot
from neaptide.frontends.watch.optimizer_twins import Twins

_MADE: Final = (torch.Tensor, torch.SymFloat, torch.SymInt, torch.SymBool)


class LeftOnceError(CaptureError):
    """The step leaves a tensor somewhere at its first call, and not at later ones.

    Attributes:
        place: where.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(
            f"the step leaves a tensor in {place.name} at its first call only",
            next_step="call the step once before it is planned",
        )
        self.place = place


class TraceOutputs:
    """Outputs of a traced step, collected when it has returned.

    Attributes:
        slots: one for each output.
        returned: what the program returns, in the same order.
        result_spec: structure of what the step returned.
        constants: leaves of it that are no outputs, by position.
        borrowed: leaves of it that are objects of the step, or what it does not read, by position: kind and name.
        attached: positions of leaves that require a gradient, with whether they are leaves of autograd as well.
        ends: numbers of the autograd nodes that made those which no backward of the step goes through, by position.
        kept_gradients: names of tensors whose gradients are the objects that the step found.
        changes: what it leaves in containers among its arguments; leaves of that are behind those of the result.
        written: what the step wrote that is no output, by slot.
        flags: `requires_grad` of the tensors of the step, by name.
        argument_flags: likewise of those among the arguments whose flag has changed, by leaf position.
    """

    def __init__(self) -> None:
        self.slots: list[OutputSlot] = []
        self.returned: list[Any] = []
        self.result_spec: Any = None
        self.constants: dict[int, Any] = {}
        self.borrowed: dict[int, tuple[str, Any]] = {}
        self.attached: dict[int, bool] = {}
        self.ends: dict[int, int] = {}
        self.kept_gradients: frozenset[str] = frozenset()
        self.changes = NO_CHANGES
        self.written: dict[OutputSlot, Any] = {}
        self.flags: dict[str, bool] = {}
        self.argument_flags: dict[int, bool] = {}

    def _add(self, slot: OutputSlot, content: Any) -> None:
        self.slots.append(slot)
        self.returned.append(content)

    def write(self, slot: OutputSlot, content: Any) -> None:
        """Note what the step wrote: an output where it is a tensor or a number of the program."""
        if isinstance(content, (torch.Tensor, torch.SymInt, torch.SymFloat)):
            self._add(slot, content)
        else:
            self.written[slot] = content

    def add_result(
        self,
        result: Any,
        watch: ArgumentWatch,
        state: StepState,
        twins: Mapping[str, torch.Tensor],
        notes: Notes,
        stand_ins: StandIns,
    ) -> None:
        """Note what the step returned, and what it left in containers among its arguments.

        Args:
            result: what it returned.
            watch: of its arguments.
            state: what the step works on.
            twins: of its tensors, by name.
            notes: of the trace.
            stand_ins: for what it does not read.

        Raises:
            CaptureError: a result has a gradient of its own, or a change cannot be done at each call.
        """
        own: dict[int, tuple[str, Any]] = {
            id(p.get()): ("object", p.name) for p in state.objects if is_there(p)
        }
        own |= stand_ins.keys
        own |= {id(twin): ("tensor", name) for name, twin in twins.items()}
        leaves, self.result_spec = flatten(result, lambda part: id(part) in own or _is_fixed(part))
        self._add_leaves(leaves, own, notes)
        changed = watch.changed()
        if changed:
            own |= watch.held
            more, spec = flatten(list(changed.values()), lambda part: id(part) in own)
            watch.refuse_odd(leaf for leaf in more if id(leaf) not in own and not isinstance(leaf, _MADE))
            watch.refuse_shared(changed.values(), own)
            self.changes = ArgumentChanges(tuple(changed), spec)
            self._add_leaves(more, own, notes, len(leaves))

    def _add_leaves(
        self, leaves: Sequence[Any], own: Mapping[int, tuple[str, Any]], notes: Notes, first: int = 0
    ) -> None:
        for position, leaf in enumerate(leaves, first):
            if id(leaf) in own:
                self.borrowed[position] = own[id(leaf)]
            elif isinstance(leaf, _MADE):
                slot = OutputSlot("result", f"result_{position}", (position,))
                self._add(slot, leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    self._add_attached(position, leaf, notes)
            else:
                self.constants[position] = leaf

    def _add_attached(self, position: int, leaf: torch.Tensor, notes: Notes) -> None:
        refuse_kept_gradient(leaf, position)
        self.attached[position] = leaf.is_leaf
        end = open_end(leaf, notes)
        if end is not None:
            self.ends[position] = end

    def add_gradients(
        self, originals: Sequence[tuple[TensorSlot, torch.Tensor]], twins: Twins
    ) -> dict[str, TensorSpec]:
        """Note the gradients and flags that the step leaves; returns the gradients by name of the tensor.

        Args:
            originals: tensors of the step, and the user's own in their place.
            twins: by slot key.

        Raises:
            CaptureError: a gradient belongs to what was computed outside the step.
        """
        gradients: dict[str, TensorSpec] = {}
        kept = set()
        for slot, original in originals:
            fake = twins["tensor", slot.name]
            if original.is_leaf and fake.is_leaf:
                self.flags[slot.name] = fake.requires_grad
            if not fake.is_leaf or fake.grad is None:
                continue
            if not original.is_leaf:
                raise CaptureError(
                    f"the step computes a gradient for {slot.name}, which was computed outside the step",
                    next_step="compute it inside the step, or detach it",
                )
            gradients[slot.name] = TensorSpec.of(fake.grad)
            if fake.grad is twins.get(("gradient", slot.name)):
                kept.add(slot.name)
                continue
            self._add(OutputSlot("gradient", f"{slot.name}.grad", (slot.name,)), fake.grad)
        self.kept_gradients = frozenset(kept)
        return gradients

    def add_numbers(self, counted: frozenset[str], places: Sequence[Place], before: Sequence[Any]) -> None:
        """Note the numbers that the step leaves in places of the user's.

        Args:
            counted: names of the places that it may write.
            places: of the numbers that are inputs.
            before: what was there, in the same order.

        Raises:
            CaptureError: something else than a number is there.
        """
        for place, symbol in zip(places, before, strict=True):
            content = place.get() if is_there(place) else None
            if place.name not in counted or content is symbol:
                continue
            if not isinstance(content, (torch.SymInt, torch.SymFloat)) and type(content) not in NUMBER_TYPES:
                raise CaptureError(
                    f"the step writes a {type(content).__name__} where a number was: {place.name}",
                    why="a program writes a number there at each call",
                    next_step="keep it in another variable, or update it outside the step",
                )
            self.write(OutputSlot("number", place.name, (place.name,)), content)

    def add_argument_flags(self, leaves: Sequence[Any], twins: Twins) -> None:
        """Note the arguments whose `requires_grad` the step leaves changed.

        Args:
            leaves: of the arguments.
            twins: by slot key.
        """
        for position, leaf in enumerate(leaves):
            twin = twins.get(("batch", position))
            if twin is not None and twin.is_leaf and twin.requires_grad != leaf.requires_grad:
                self.argument_flags[position] = twin.requires_grad

    def add_left(self, left: Sequence[Place], twins: Twins) -> None:
        """Note the tensors that the step leaves in places of the user's.

        Raises:
            LeftOnceError: there is none in such a place, or the one that was there.
        """
        for position, place in enumerate(left):
            content = place.get() if is_there(place) else None
            if not isinstance(content, torch.Tensor) or content is twins.get(("tensor", place.name)):
                raise LeftOnceError(place)
            self._add(OutputSlot("left", place.name, (position,)), content.detach())


def refuse_batch_gradients(count: int, twins: Twins, notes: Notes) -> None:
    """Refuse a step that computes gradients of the caller's batch.

    Args:
        count: leaves of the arguments.
        twins: by slot key.
        notes: of the trace.

    Raises:
        CaptureError: naming the argument.
    """
    for position in range(count):
        if ("batch", position) in twins and twins["batch", position].grad is not None:
            name, line = argument_name(position), notes.flag_lines.get(id(twins["batch", position]))
            raise CaptureError(
                f"the step computes a gradient for {name}",
                where=f"{name}, which was passed in with requires_grad" if line is None else line.location,
                why="it would be accumulated in the caller's batch",
                next_step="use `.detach().requires_grad_()` of it in the step, or make that tensor a parameter",
            )


def _is_fixed(part: Any) -> bool:
    """Whether something returned is an object without anything in it that the program makes or hands on."""
    return is_object(part) and not any(is_unread(leaf) or isinstance(leaf, _MADE) for leaf in leaves_of(part))


def is_there(place: Place) -> bool:
    """Whether a place holds anything by now."""
    try:
        place.get()
    except (LookupError, AttributeError, ValueError):
        return False
    return True
