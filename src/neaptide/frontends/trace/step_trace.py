"""Runs a training step once on fake tensors and records every operation below autograd.

The user's parameters, buffers, gradients and optimizer state are replaced by fakes for the duration of the
trace and put back afterwards; nothing of model size is allocated and no user tensor is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError, NeaptideError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.card.operations import operations_of_card
from neaptide.frontends.dims.dynamic_dims import DynamicDim
from neaptide.frontends.dispatch.answers import answered_as_eager, known_truths
from neaptide.frontends.dispatch.host_numbers import HostNumbers
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.dispatch.torch_functions import torch_functions
from neaptide.frontends.dispatch.trace_notes import noted_backward, noted_modules
from neaptide.frontends.guards.fact_words import user_names
from neaptide.frontends.kernels.branching_gradients import take_eagers_gradients
from neaptide.frontends.objects.batch_objects import Unseen, flatten
from neaptide.frontends.objects.places import MISSING, Place, all_replaced, read
from neaptide.frontends.objects.unread import StandIns
from neaptide.frontends.recording.determinism import list_run
from neaptide.frontends.recording.host_part import UNKNOWN, HostPart
from neaptide.frontends.recording.recording import Notes, Recording
from neaptide.frontends.source.trace_errors import explained, line_of_change, refuse_factory, unread_attribute
from neaptide.frontends.source.users_code import find_line
from neaptide.frontends.state.argument_changes import ArgumentWatch
from neaptide.frontends.state.step_slots import (
    NUMBER_TYPES,
    EntryPattern,
    InputSlot,
    OutputSlot,
    argument_name,
)
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.state.traced import Trace
from neaptide.frontends.trace.scaled_updates import ScaledUpdates
from neaptide.frontends.trace.trace_inputs import FakeInputs
from neaptide.frontends.trace.trace_outputs import TraceOutputs
from neaptide.frontends.watch.identity_keys import IdentityKeys, MissedState
from neaptide.frontends.watch.object_watch import ObjectWatch, Watched, changed_error
from neaptide.frontends.watch.optimizer_copies import Fakes, OptimizerCopies
from neaptide.frontends.watch.trace_watch import StateWatch, Write, rebound
from neaptide.frontends.world.closed import cached_error, clear_caches, locked_arrays
from neaptide.frontends.world.side_effects import (
    no_host_traffic,
    no_side_effects,
    originals_in_new_modules,
    refuse_clocks,
)


@dataclass(frozen=True)
class StepCall:
    """A call of a step: what is called with what, the objects that it works on, and the dims that may vary."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    state: StepState
    dims: tuple[DynamicDim, ...] = ()


def trace_step(
    call: StepCall, entry: EntryPattern, changing: frozenset[str] = frozenset(), *, plain: bool = False
) -> Trace:
    """Trace a step with the given pattern of gradients and optimizer state.

    Args:
        call: of the step; tensors among its arguments are replaced by fakes.
        entry: gradients and optimizer state that exist when it begins.
        changing: names of Python numbers (arguments as `batch[3]`, or places of the state) that become inputs.
        plain: Python numbers of the optimizer's state and groups stay plain numbers, whatever the step writes.
    """
    return _Tracer(call, entry, changing, plain=plain).run()


class _Tracer:
    def __init__(
        self,
        call: StepCall,
        entry: EntryPattern,
        changing: frozenset[str],
        *,
        plain: bool = False,
    ) -> None:
        self.call, self.state, self.entry = call, call.state, entry
        state = call.state
        self.changing = changing | state.counted
        self.numbers = [(place, place.get()) for place in state.scalars if place.name in self.changing]
        self.unread = [(place, place.get()) for place in state.unread]
        self.swapped: list[tuple[Place, Any]] = []  # places of numbers and of `unread`, with the stand-ins
        self.stand_ins = StandIns()
        self.leaves, self.spec = flatten((call.args, dict(call.kwargs)))
        self.originals = [(slot, slot.current()) for slot in state.tensors]
        self.fakes: dict[str, torch.Tensor] = {}  # by name of the slot, once they are in their places
        by_name = {slot.name: tensor for slot, tensor in self.originals}
        self.keys = IdentityKeys(state, by_name)
        self.optimizers = OptimizerCopies(state, entry, self.changing, plain=plain)
        self.notes = Notes()
        self.missed = MissedState(by_name.items(), self.notes)
        self.outputs = TraceOutputs(state, self.notes, self.stand_ins)
        self.exit = EntryPattern()
        self.decisions: HostPart | None = None
        self.branches: list[str] = []
        self.inputs = FakeInputs(state, entry, self.changing, self.numbers, self.leaves, call.dims)

    def run(self) -> Trace:
        watch, objects = StateWatch(self.state), ObjectWatch(self.state)
        try:
            with locked_arrays(objects.arrays), no_side_effects(self.state):
                recording = self._record()
            refuse_clocks(self.outputs.constants.values())
        except BaseException as error:
            self._restore()
            watch.restore()
            objects.put_back()
            self._check_stand_ins(error)
            self._clear_caches(error)
            if isinstance(error, NeaptideError) or not isinstance(error, Exception):
                raise
            told = explained(error, self.state.hidden)
            raise told from told.__cause__
        left = {place.identity for place in self.state.left} | self.state.once
        written = [write for identity, write in self._restore() if identity not in left]
        written += [write for write in watch.restore() if write.identity(self.state) not in left]
        for changed in objects.put_back():
            raise changed_error(changed, self._line_that_changes(changed))
        self._check_stand_ins(None)
        self._clear_caches(None)
        trace = self._as_trace(recording)
        if written:
            raise watch.refuse(list({write.name: write for write in written}.values()), trace)
        return trace

    def _as_trace(self, recording: Recording) -> Trace:
        self.scaled.settle()
        slots, outputs = self.inputs.slots, self.outputs
        without_bytes = {slot.name for slot, tensor in self.originals if tensor.device.type == "meta"}
        # Where other tensors have bytes, the step never reads the elements of those without.
        skeletons = without_bytes if len(without_bytes) < len(self.originals) else set()
        return Trace(
            recording=recording,
            inputs=_drop_unused(recording, slots, skeletons),
            outputs=tuple(outputs.slots),
            returned=outputs.returned(recording),
            entry=self.entry,
            exit=self.exit,
            kept_gradients=outputs.kept_gradients,
            written=outputs.written,
            decisions=self.decisions,
            sizes=self.inputs.sizes.settled(),
            listing=list_run(recording, [slot.name for slot in slots], self.result),
            branches=tuple(dict.fromkeys(self.branches)),
            undoes_checkpoints=self.state.undoes_checkpoints,
        )

    def _check_stand_ins(self, error: BaseException | None) -> None:
        """Say what was read that the step was taken not to read."""
        for position in sorted(self.stand_ins.read.arguments):
            if isinstance(leaf := self.leaves[position], Unseen):
                name = user_names(self.spec)[argument_name(position)]
                raise unread_attribute(name, leaf.content, error) from None
        self.stand_ins.check()

    def _clear_caches(self, error: BaseException | None) -> None:
        """Leave no tensor of the trace in a cache of a function, and refuse a step that left one."""
        for name in clear_caches(self.state.caches):
            raise cached_error(name, find_line(name, self.state.codes)) from error

    def _line_that_changes(self, watched: Watched) -> str | None:
        again = _Tracer(self.call, self.entry, self.changing)
        watch = StateWatch(self.state)
        try:
            return line_of_change(watched.has_changed, again._record)
        finally:
            again._restore()
            watch.restore()
            watched.put_back()

    # -- trace ----------------------------------------------------------------------------------------------

    def _record(self) -> Recording:
        recorder = Recorder(self.notes)
        for fake in self.inputs.fakes:
            recorder.add_input(fake)
        batch = {s.key: self.leaves[s.key[1]] for s in self.inputs.slots if s.role == "batch"}
        self.host = HostNumbers(recorder, self.inputs.known, [s.key for s in self.inputs.slots], batch)
        self.scaled = ScaledUpdates(self.state, self.optimizers, recorder, self.notes)
        with contextlib.ExitStack() as stack:
            for context in self._contexts(recorder):
                stack.enter_context(context)
            recording = recorder.finish(self._run(self.inputs.fakes))
        take_eagers_gradients(recording, self.notes)
        return recording

    def _contexts(self, recorder: Recorder) -> Iterator[contextlib.AbstractContextManager[Any]]:
        """All that stands around the call of the step, outermost first."""
        state, notes, host = self.state, self.notes, self.host
        yield originals_in_new_modules()
        yield private.no_structured_log()
        yield self.inputs.mode
        yield self.inputs.sizes.traced()
        yield torch.autograd.set_multithreading_enabled(False)
        yield private.inlined_compile()
        yield operations_of_card()
        yield all_replaced(torch_functions(recorder, host, notes, undone=state.undoes_checkpoints))
        yield no_host_traffic(state)
        yield all_replaced(known_truths(host))
        yield all_replaced(answered_as_eager(host.is_known, self.branches))
        yield noted_modules(state.module_paths, notes)
        yield all_replaced(noted_backward(notes))
        yield self.optimizers.noted(notes)
        yield self.scaled.noted()
        yield all_replaced(host.replacements())
        yield self.missed.watched()
        yield recorder

    def _run(self, inputs: list[torch.Tensor]) -> list[Any]:
        """Call the step on the fakes; gives all that its program returns, in the order of the output slots."""
        fakes = dict(zip((slot.key for slot in self.inputs.slots), inputs, strict=True))
        self.fakes = {slot.name: fakes["tensor", slot.name] for slot in self.state.tensors}
        for slot in self.state.tensors:
            for place in slot.places:
                place.set(self.fakes[slot.name])
        self.keys.fill(self.fakes)
        for name in self.entry.gradients:
            self.fakes[name].grad = fakes["gradient", name]
        self.optimizers.fill(fakes)
        leaves = [self._leaf(position, fakes) for position in range(len(self.leaves))]
        for place, _ in self.numbers:
            self._swap(place, fakes["scalar", place.name].item())
        for place, _ in self.unread:
            self._swap(place, self.stand_ins.of_place(place.name))
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        watch = ArgumentWatch((args, kwargs), self.state)
        storages = {name: fake.untyped_storage() for name, fake in self.fakes.items()}
        self.result = self.call.step(*args, **kwargs)
        for name, storage in storages.items():
            if private.storage_key(self.fakes[name].untyped_storage()) != private.storage_key(storage):
                raise CaptureError(
                    f"the step puts another tensor into {name}.data",
                    where=find_line("data", self.state.codes),
                    why="no operation does that, so the program would leave the tensor as it was",
                    next_step="write the numbers in place: .data.copy_(...), or copy_ under torch.no_grad()",
                )
        return self._collect(fakes, watch)

    def _leaf(self, position: int, fakes: Fakes) -> Any:
        """What the step is given for a leaf of the arguments."""
        leaf = self.leaves[position]
        if position in self.state.unread_arguments or isinstance(leaf, Unseen):
            return self.stand_ins.of_argument(position)
        if ("argument", position) in fakes:
            return fakes["argument", position].item()
        return fakes.get(("batch", position), leaf)

    def _swap(self, place: Place, stand_in: Any) -> None:
        self.swapped.append((place, stand_in))
        place.set(stand_in)

    def _collect(self, fakes: Fakes, watch: ArgumentWatch) -> list[Any]:
        outputs, state = self.outputs, self.state
        outputs.add_result(self.result, watch, self.fakes)
        outputs.changes.check((self.call.args, self.call.kwargs), state)
        refuse_factory(outputs.constants.values(), self.call.step)
        gradients = outputs.add_gradients(self.originals, fakes)
        found = self.optimizers.collect(outputs.write)
        self.scaled.check_writes()
        for label, flag in self.scaled.skipped.items():
            outputs.write(OutputSlot("skipped", f"{label} is skipped", (label,)), flag)
        flags = {**self.entry.flags, **outputs.flags}
        self.exit = EntryPattern(gradients, found, self._numbers_after(), flags)
        for fake in self.fakes.values():
            fake.grad = None
        outputs.add_arguments(self.leaves, fakes)
        outputs.add_numbers(self.swapped[: len(self.numbers)])
        outputs.add_left(fakes)
        return outputs.values

    def _numbers_after(self) -> dict[tuple[Any, ...], Any]:
        """The numbers that the host knows when the step is over; notes the decisions."""
        records = {}
        after = {}
        counted = [p for p, _ in self.numbers if p.name in self.state.counted and read(p) is not MISSING]
        numbers = ((("scalar", place.name), place.get()) for place in counted)
        for key, content in (*self.optimizers.contents(), *numbers):
            if isinstance(content, (torch.Tensor, torch.SymInt, torch.SymFloat)):
                record = self.host.record_of(content)
                if record is not None:
                    records[key] = record
            elif type(content) in NUMBER_TYPES:
                after[key] = content
        self.decisions = self.host.part(records)
        after |= {key: self.host.value_of(record) for key, record in records.items()}
        return {key: number for key, number in after.items() if number is not UNKNOWN}

    # -- the end --------------------------------------------------------------------------------------------

    def _restore(self) -> list[tuple[Any, Write]]:
        """Puts the user's things back; returns what the step had written to their places, by identity of the place."""
        found: list[tuple[Any, Write]] = [*self.keys.put_back()]
        for slot, tensor in self.originals:
            fake = self.fakes.get(slot.name)
            for place in slot.places:
                content = read(place)
                if content is not tensor and content is not fake:
                    found.append((place.identity, rebound(place, tensor, self.state)))
                with contextlib.suppress(LookupError):  # a list that was shortened; it is put back whole
                    place.set(tensor)
        before = (*self.numbers, *self.unread)
        for (place, content), (_, stand_in) in zip(before, self.swapped, strict=False):
            if place.name not in self.state.counted and read(place) is not stand_in:
                found.append((place.identity, Write(place.name)))
            place.set(content)
        self.optimizers.put_back()
        return found


def _drop_unused(recording: Recording, slots: list[InputSlot], skeletons: set[str]) -> tuple[InputSlot, ...]:
    """The inputs without what the step does not use of loose tensors (a data set in a list, say) and of skeletons."""
    users = recording.users()
    inputs = [record for record in recording.records if record.kind == "input"]
    unused = {
        record
        for record, slot in zip(inputs, slots, strict=True)
        if (slot.role == "tensor" or slot.name in skeletons) and not users.get(record)
    }
    recording.records = [record for record in recording.records if record not in unused]
    return tuple(slot for record, slot in zip(inputs, slots, strict=True) if record not in unused)
