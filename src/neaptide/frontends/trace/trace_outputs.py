"""What a traced step returns and leaves behind, as outputs of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.batch_objects import flatten, is_object, leaves_of
from neaptide.frontends.objects.places import MISSING, Place, read
from neaptide.frontends.objects.unread import StandIns, is_unread
from neaptide.frontends.recording.recording import Notes, Recording
from neaptide.frontends.state.argument_changes import NO_CHANGES, ArgumentChanges, ArgumentWatch
from neaptide.frontends.state.step_slots import NUMBER_TYPES, OutputSlot, TensorSpec, argument_name
from neaptide.frontends.state.step_state import StepState, TensorSlot
from neaptide.frontends.state.traced import Returned
from neaptide.frontends.watch.optimizer_copies import Fakes

_LEAF_GRADIENT = "AccumulateGrad"


class OpenResultError(CaptureError):
    """A result through which a backward pass outside of the step would go in eager, into the step's own graph."""


def open_end(tensor: torch.Tensor, notes: Notes) -> int | None:
    """The number of the autograd node that made a tensor, where no backward of the step has gone through its graph.

    None where one has: what autograd kept is gone then, and a second backward raises in eager as well.
    """
    if tensor.grad_fn is None:
        return None
    for node in private.autograd_nodes([tensor]):
        if private.sequence_of(node) in notes.consumed and _LEAF_GRADIENT not in node.name():
            return None
    return private.sequence_of(tensor.grad_fn)


def lines_of_ends(ends: Mapping[int, int], recording: Recording) -> dict[int, str]:
    """Where operations of autograd nodes, by position of the result, stand in the user's code; empty where nobody knows."""
    lines: dict[int, str] = {}
    for record in recording.records if ends else ():
        if record.sequence is not None and record.phase == "forward" and record.line is not None:
            lines.setdefault(record.sequence, record.line.location)  # later ones may be without a node
    return {position: lines.get(number, "") for position, number in ends.items()}


def refuse_open_results(open_results: Mapping[int, str]) -> None:
    """Refuse a step that returns what is differentiated outside of it: lines of such results, by position."""
    for position, line in open_results.items():
        raise OpenResultError(
            f"the step returns a tensor (result {position}) that requires a gradient, and no backward of the step goes through it",
            where=line or None,
            why="a program keeps nothing for a backward outside of it: what made this tensor would not be trained",
            next_step="put loss and backward inside the step, return it with .detach(), or call the step under torch.no_grad()",
        )


def refuse_kept_gradient(tensor: torch.Tensor, position: int) -> None:
    """Refuse a result that has a gradient of its own: it would be without one."""
    if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
        raise CaptureError(
            f"the step returns a tensor (result {position}) with its gradient",
            why="a program returns tensors, and what is in .grad of them only for parameters",
            next_step="return x.detach() and x.grad of it as two results",
        )


# -- outputs


_MADE: Final = (torch.Tensor, torch.SymFloat, torch.SymInt, torch.SymBool)
Own = dict[int, tuple[str, Any]]  # by `id`, what is the user's: kind and name


class LeftOnceError(CaptureError):
    """The step leaves a tensor at `place` at its first call, and not at later ones."""

    def __init__(self, place: Place) -> None:
        super().__init__(
            f"the step leaves a tensor in {place.name} at its first call only",
            next_step="call the step once before it is planned",
        )
        self.place = place


class TraceOutputs:
    """Outputs of a traced step, collected when it has returned; see `Returned` and `TracedCall`."""

    def __init__(self, state: StepState, notes: Notes, stand_ins: StandIns) -> None:
        self._state, self._notes, self._stand_ins = state, notes, stand_ins
        self.slots: list[OutputSlot] = []
        self.values: list[Any] = []
        self.constants: dict[int, Any] = {}
        self.changes = NO_CHANGES
        self.written: dict[OutputSlot, Any] = {}
        self.flags: dict[str, bool] = {}
        self.kept_gradients: frozenset[str] = frozenset()
        self._spec: Any = None
        self._borrowed: Own = {}
        self._attached: dict[int, bool] = {}
        self._ends: dict[
            int, int
        ] = {}  # by position: autograd nodes that no backward of the step goes through
        self._argument_flags: dict[int, bool] = {}

    def returned(self, recording: Recording) -> Returned:
        """All that goes back to the caller."""
        ends = lines_of_ends(self._ends, recording)
        return Returned(
            *(self._spec, self.constants, self._borrowed, self._attached, ends),
            *(self._argument_flags, self.changes),
        )

    def _add(self, slot: OutputSlot, content: Any) -> None:
        self.slots.append(slot)
        self.values.append(content)

    def write(self, slot: OutputSlot, content: Any) -> None:
        """Note what the step wrote: an output where it is a tensor or a number of the program."""
        if isinstance(content, (torch.Tensor, torch.SymInt, torch.SymFloat)):
            self._add(slot, content)
        else:
            self.written[slot] = content

    def add_result(self, result: Any, watch: ArgumentWatch, fakes: Mapping[str, torch.Tensor]) -> None:
        """Note what the step returned, and what it left in containers among its arguments; `fakes` go by name."""
        own: Own = {id(p.get()): ("object", p.name) for p in self._state.objects if read(p) is not MISSING}
        own |= self._stand_ins.keys
        own |= {id(fake): ("tensor", name) for name, fake in fakes.items()}
        leaves, self._spec = flatten(result, lambda part: id(part) in own or _is_fixed(part))
        self._add_leaves(leaves, own)
        changed = watch.changed()
        if changed:
            own |= watch.held
            more, spec = flatten(list(changed.values()), lambda part: id(part) in own)
            watch.refuse_odd(leaf for leaf in more if id(leaf) not in own and not isinstance(leaf, _MADE))
            watch.refuse_shared(changed.values(), own)
            self.changes = ArgumentChanges(tuple(changed), spec)
            self._add_leaves(more, own, len(leaves))

    def _add_leaves(self, leaves: Sequence[Any], own: Own, first: int = 0) -> None:
        for position, leaf in enumerate(leaves, first):
            if id(leaf) in own:
                self._borrowed[position] = own[id(leaf)]
            elif isinstance(leaf, _MADE):
                slot = OutputSlot("result", f"result_{position}", (position,))
                self._add(slot, leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    refuse_kept_gradient(leaf, position)
                    self._attached[position] = leaf.is_leaf
                    end = open_end(leaf, self._notes)
                    if end is not None:
                        self._ends[position] = end
            else:
                self.constants[position] = leaf

    def add_gradients(
        self, originals: Sequence[tuple[TensorSlot, torch.Tensor]], fakes: Fakes
    ) -> dict[str, TensorSpec]:
        """Note the gradients and flags that the step leaves; returns the gradients by name of the tensor."""
        gradients: dict[str, TensorSpec] = {}
        kept = set()
        for slot, original in originals:
            fake = fakes["tensor", slot.name]
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
            if fake.grad is fakes.get(("gradient", slot.name)):
                kept.add(slot.name)
                continue
            self._add(OutputSlot("gradient", f"{slot.name}.grad", (slot.name,)), fake.grad)
        self.kept_gradients = frozenset(kept)
        return gradients

    def add_arguments(self, leaves: Sequence[Any], fakes: Fakes) -> None:
        """Note the arguments whose `requires_grad` the step leaves changed."""
        for position, leaf in enumerate(leaves):
            fake = fakes.get(("batch", position))
            if fake is None:
                continue
            if fake.is_leaf and fake.requires_grad != leaf.requires_grad:
                self._argument_flags[position] = fake.requires_grad
            if fake.grad is not None:
                name, line = argument_name(position), self._notes.flag_lines.get(id(fake))
                raise CaptureError(
                    f"the step computes a gradient for {name}",
                    where=f"{name}, which was passed in with requires_grad"
                    if line is None
                    else line.location,
                    why="it would be accumulated in the caller's batch",
                    next_step="use `.detach().requires_grad_()` of it in the step, or make that tensor a parameter",
                )

    def add_numbers(self, swapped: Sequence[tuple[Place, Any]]) -> None:
        """Note the numbers that the step leaves in places that it may write, given with the symbols that were there."""
        for place, symbol in swapped:
            content = read(place)
            if place.name not in self._state.counted or content is symbol:
                continue
            if not isinstance(content, (torch.SymInt, torch.SymFloat)) and type(content) not in NUMBER_TYPES:
                kind = "nothing" if content is MISSING else f"a {type(content).__name__}"
                raise CaptureError(
                    f"the step writes {kind} where a number was: {place.name}",
                    why="a program writes a number there at each call",
                    next_step="keep it in another variable, or update it outside the step",
                )
            self.write(OutputSlot("number", place.name, (place.name,)), content)

    def add_left(self, fakes: Fakes) -> None:
        """Note the tensors that the step leaves in places of the user's."""
        for position, place in enumerate(self._state.left):
            content = read(place)
            if not isinstance(content, torch.Tensor) or content is fakes.get(("tensor", place.name)):
                raise LeftOnceError(place)
            self._add(OutputSlot("left", place.name, (position,)), content.detach())


def _is_fixed(part: Any) -> bool:
    """Whether something returned is an object without anything in it that the program makes or hands on."""
    return is_object(part) and not any(is_unread(leaf) or isinstance(leaf, _MADE) for leaf in leaves_of(part))
