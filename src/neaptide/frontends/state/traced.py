"""A traced call of a step: what goes in, what comes out, what it leaves behind, and the operations between."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from neaptide.frontends.recording.determinism import Listing
from neaptide.frontends.recording.host_part import HostPart
from neaptide.frontends.recording.recording import Recording
from neaptide.frontends.recording.traced_sizes import NO_SIZES, SizeFacts
from neaptide.frontends.state.argument_changes import NO_CHANGES, ArgumentChanges
from neaptide.frontends.state.step_slots import EntryPattern, InputSlot, OutputSlot


@dataclass(frozen=True)
class Returned:
    """What goes back to the caller, by position of the leaf: of the return value, then of what changes among the arguments.

    Attributes:
        spec: how the return value is put together again.
        constants: leaves that are no tensors.
        borrowed: leaves that are the user's own: `("tensor", name)` of a slot, `("object", name)` of a place,
            `("held", path)` of what lies among the arguments, or what the step does not read: `("unread", name)`,
            `("argument", position)`.
        attached: tensors that autograd knows how to go back through, with whether they are its leaves.
        open_results: lines of what made those of them that no backward of the step goes through.
        argument_flags: by leaf of the arguments, `requires_grad` where the step leaves it changed.
        changes: what the step leaves in containers among its arguments.
    """

    spec: Any
    constants: Mapping[int, Any]
    borrowed: Mapping[int, tuple[str, Any]] = field(default_factory=dict)
    attached: Mapping[int, bool] = field(default_factory=dict)
    open_results: Mapping[int, str] = field(default_factory=dict)
    argument_flags: Mapping[int, bool] = field(default_factory=dict)
    changes: ArgumentChanges = NO_CHANGES


@dataclass(frozen=True, kw_only=True)
class TracedCall:
    """What a call takes and leaves, whatever runs between.

    Attributes:
        inputs: meaning of each input, in order.
        outputs: meaning of each output, in order.
        entry: gradients and optimizer state that exist when it begins; `exit` those that it leaves.
        kept_gradients: parameters whose entry gradient is still theirs after the step.
        written: outputs that are the same plain value at each call.
        decisions: the branches taken by numbers that the host knows: it is for calls that take the same; None for none.
        sizes: the dims that may vary, and for which sizes it holds.
    """

    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    returned: Returned
    entry: EntryPattern
    exit: EntryPattern
    kept_gradients: frozenset[str]
    written: Mapping[OutputSlot, Any] = field(default_factory=dict)
    decisions: HostPart | None = None
    sizes: SizeFacts = NO_SIZES

    def boundary(self) -> dict[str, Any]:
        """All of this by name, for what is made of it."""
        return {item.name: getattr(self, item.name) for item in fields(TracedCall)}


@dataclass(frozen=True, kw_only=True)
class Trace(TracedCall):
    """A traced call with the operations that were dispatched.

    Attributes:
        listing: what was recorded, to be compared with another run.
        branches: lines of libraries that took their branch for traces, in words.
        undoes_checkpoints: functions that the user checkpoints ran once.
    """

    recording: Recording
    listing: Listing
    branches: tuple[str, ...] = ()
    undoes_checkpoints: bool = False

    def without_outputs(self, role: str) -> Trace:
        """The same without the outputs of a role."""
        recording = copy.copy(self.recording)
        output = copy.copy(recording.records[-1])
        kept = [k for k, slot in enumerate(self.outputs) if slot.role != role]
        output.args = tuple(output.args[k] for k in kept)
        recording.records = [*recording.records[:-1], output]
        return replace(self, recording=recording, outputs=tuple(self.outputs[k] for k in kept))
