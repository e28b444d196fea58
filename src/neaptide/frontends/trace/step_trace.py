"""Runs a training step once on fake tensors and records every operation below autograd.

The user's parameters, buffers, gradients and optimizer state are replaced by fake twins for the duration of the
trace and put back afterwards; nothing of model size is allocated and no user tensor is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError, NeaptideError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.dims.dynamic_dims import DynamicDim
from neaptide.frontends.dispatch._torch_checkpoints import noted_checkpoints
from neaptide.frontends.dispatch._torch_collectives import functional_all_reduce
from neaptide.frontends.dispatch._torch_copies import copied_fakes
from neaptide.frontends.dispatch.composite_losses import seen_through_ctc_loss
from neaptide.frontends.dispatch.cumulative_averages import cumulative_averages
from neaptide.frontends.dispatch.host_numbers import HostNumbers
from neaptide.frontends.dispatch.known_results import KnownResults
from neaptide.frontends.dispatch.library_questions import answered_as_eager
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.dispatch.trace_notes import noted_backward, noted_modules
from neaptide.frontends.dispatch.trace_truths import known_truths
from neaptide.frontends.guards.fact_words import user_names
from neaptide.frontends.kernels.branching_gradients import check_gradients, drop_replaced
from neaptide.frontends.objects.batch_objects import Unseen, flatten
from neaptide.frontends.objects.places import Place
from neaptide.frontends.objects.unread import StandIns
from neaptide.frontends.recording.host_part import UNKNOWN, HostPart
from neaptide.frontends.recording.line_notes import noted_flags
from neaptide.frontends.recording.notes import Notes
from neaptide.frontends.recording.recording import Recording
from neaptide.frontends.recording.same_twice import NO_LISTING, Listing, list_run
from neaptide.frontends.source.trace_errors import explained, line_of_change, refuse_factory, unread_attribute
from neaptide.frontends.source.users_code import find_line
from neaptide.frontends.state.argument_changes import ArgumentWatch
from neaptide.frontends.state.attachment import lines_of_ends
from neaptide.frontends.state.step_slots import (
    NUMBER_TYPES,
    EntryPattern,
    InputSlot,
    OutputSlot,
    Trace,
    argument_name,
)
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.trace.light_passes import LightPasses
from neaptide.frontends.trace.scaled_updates import ScaledUpdates
from neaptide.frontends.trace.trace_inputs import FakeInputs
from neaptide.frontends.trace.trace_outputs import TraceOutputs, is_there, refuse_batch_gradients
from neaptide.frontends.watch.identity_keys import IdentityKeys, MissedState
from neaptide.frontends.watch.object_watch import ObjectWatch, Watched, changed_error
from neaptide.frontends.watch.optimizer_twins import OptimizerTwins, Twins
from neaptide.frontends.watch.trace_watch import StateWatch, Write, rebound
from neaptide.frontends.world.closed import cached_error, clear_caches, locked_arrays
from neaptide.frontends.world.outside_world import (
    no_host_traffic,
    no_outside_world,
    originals_in_new_modules,
    refuse_clocks,
)


def trace_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    state: StepState,
    entry: EntryPattern,
    changing: frozenset[str] = frozenset(),
    *,
    plain: bool = False,
    dims: Sequence[DynamicDim] = (),
) -> Trace:
    """Trace a step with the given pattern of gradients and optimizer state.

    Args:
        step: what is traced.
        args: of the call; tensors in it are replaced by fake twins.
        kwargs: likewise.
        state: what the step works on.
        entry: gradients and optimizer state that exist when it begins.
        changing: names of Python numbers (arguments as `batch[3]`, or places of the state) that become inputs.
        plain: Python numbers of the optimizer's state and groups stay plain numbers, whatever the step writes.
        dims: of the arguments, that may vary.

    Raises:
        CaptureError: naming the user's line, when the step cannot become one straight-line program.
    """
    return _Tracer(step, args, kwargs, state, entry, changing, plain=plain, dims=dims).run()


def rehearse_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    state: StepState,
    entry: EntryPattern,
    changing: frozenset[str],
    dims: Sequence[DynamicDim],
    before: Listing,
) -> tuple[Listing, frozenset[str]]:
    """What a step does, as `trace_step` would list it, without the passes that run no code of the user's.

    Args:
        step: as for `trace_step`.
        args: likewise.
        kwargs: likewise.
        state: likewise.
        entry: likewise.
        changing: likewise.
        dims: likewise.
        before: what it did in another run.

    Returns:
        The listing, and the phases that are not complete in it.

    Raises:
        CaptureError: this time the step does what cannot be captured.
    """
    tracer = _Tracer(step, args, kwargs, state, entry, changing, before=before, dims=dims)
    return tracer.run().listing, frozenset(tracer.left_out)


class _Tracer:
    def __init__(
        self,
        step: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        state: StepState,
        entry: EntryPattern,
        changing: frozenset[str],
        *,
        plain: bool = False,
        before: Listing | None = None,
        dims: Sequence[DynamicDim] = (),
    ) -> None:
        self.step = step
        self.call = (args, kwargs)
        self.state = state
        self.entry = entry
        self.changing = changing = changing | state.counted
        self.dims = dims
        self.numbers = [(place, place.get()) for place in state.scalars if place.name in changing]
        self.symbols: list[Any] = []
        self.stand_ins = StandIns()
        self.unread = [(place, place.get()) for place in state.unread]
        self.standing: list[Any] = []
        self.batch_leaves, self.batch_spec = flatten((args, dict(kwargs)))
        self.twins: dict[str, torch.Tensor] = {}
        self.outputs = TraceOutputs()
        self.exit = EntryPattern()
        self.originals = [(slot, slot.current()) for slot in state.tensors]
        self.missed = MissedState((slot.name, tensor) for slot, tensor in self.originals)
        self.keys = IdentityKeys(state, {slot.name: tensor for slot, tensor in self.originals})
        self.optimizers = OptimizerTwins(state, entry, changing, plain=plain)
        self.scaled = ScaledUpdates(state, self.optimizers)
        self.decisions: HostPart | None = None
        self.before = before
        self.left_out: set[str] = set()
        self.branches: list[str] = []
        self.result: Any = None

    def run(self) -> Trace:
        self._fake_inputs()
        slots = self.inputs.slots
        watch = StateWatch(self.state)
        objects = ObjectWatch(self.state)
        try:
            with locked_arrays(objects.arrays), no_outside_world(self.state):
                recording = self._trace()
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
        self.scaled.settle()
        listing = NO_LISTING
        if self.state.is_watched:
            listing = list_run(recording, [slot.name for slot in slots], self.result)
        outputs = self.outputs
        trace = Trace(
            recording,
            _drop_unused(recording, slots, self._skeletons()),
            tuple(outputs.slots),
            outputs.result_spec,
            outputs.constants,
            self.entry,
            self.exit,
            outputs.kept_gradients,
            outputs.borrowed,
            outputs.attached,
            lines_of_ends(outputs.ends, recording),
            self.decisions,
            outputs.written,
            listing,
            self.inputs.sizes.settled(),
            tuple(dict.fromkeys(self.branches)),
            self.state.undoes_checkpoints,
            outputs.argument_flags,
            outputs.changes,
        )
        if written:
            raise watch.refuse(list({write.name: write for write in written}.values()), trace)
        return trace

    def _check_stand_ins(self, error: BaseException | None) -> None:
        """Say what was read that the step was taken not to read.

        Raises:
            CaptureError: an attribute of the batch without a value that can be guarded.
            ReadError: something else.
        """
        for position in sorted(self.stand_ins.read.arguments):
            if isinstance(leaf := self.batch_leaves[position], Unseen):
                name = user_names(self.batch_spec)[argument_name(position)]
                raise unread_attribute(name, leaf.content, error) from None
        self.stand_ins.check()

    def _clear_caches(self, error: BaseException | None) -> None:
        """Leave no tensor of the trace in a cache of a function.

        Raises:
            CaptureError: there was one.
        """
        for name in clear_caches(self.state.caches):
            raise cached_error(name, find_line(name, self.state.codes)) from error

    def _skeletons(self) -> frozenset[str]:
        """Names of tensors without bytes in a step whose others have bytes: the step never reads their elements."""
        without = frozenset(slot.name for slot, tensor in self.originals if tensor.device.type == "meta")
        return without if len(without) < len(self.originals) else frozenset()

    def _line_that_changes(self, watched: Watched) -> str | None:
        again = _Tracer(self.step, *self.call, self.state, self.entry, self.changing, dims=self.dims)
        again._fake_inputs()
        watch = StateWatch(self.state)
        try:
            return line_of_change(watched.has_changed, again._trace)
        finally:
            again._restore()
            watch.restore()
            watched.put_back()

    def _fake_inputs(self) -> None:
        self.inputs = FakeInputs(
            self.state, self.entry, self.changing, self.batch_leaves, self.numbers, self.dims
        )
        slots = self.inputs.slots
        batch = {slot.key: self.batch_leaves[slot.key[1]] for slot in slots if slot.role == "batch"}
        self.host = HostNumbers(self.inputs.known, [slot.key for slot in slots], batch)

    # -- trace ----------------------------------------------------------------------------------------------

    def _trace(self) -> Recording:
        notes = self.notes = Notes()
        known = None
        if self.before is not None:
            known = KnownResults(self.before, [slot.name for slot in self.inputs.slots], self.inputs.mode)
        recorder = Recorder(notes, known)
        for fake in self.inputs.fakes:
            recorder.add_input(fake)
        light = LightPasses(self.state, notes)
        self.left_out = light.left_out
        with contextlib.ExitStack() as stack:
            stack.enter_context(originals_in_new_modules())
            stack.enter_context(private.no_structured_log())
            stack.enter_context(functional_all_reduce())
            stack.enter_context(self.inputs.mode)
            stack.enter_context(self.inputs.sizes.traced())
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(noted_checkpoints(notes, undone=self.state.undoes_checkpoints))
            stack.enter_context(private.inlined_compile())
            stack.enter_context(copied_fakes())
            stack.enter_context(cumulative_averages(recorder))
            stack.enter_context(no_host_traffic(self.state))
            stack.enter_context(known_truths(self.host))
            stack.enter_context(answered_as_eager(self.host.is_known, self.branches))
            stack.enter_context(noted_modules(self.state.module_paths, notes))
            stack.enter_context(noted_backward(notes))
            stack.enter_context(self.optimizers.noted(notes))
            stack.enter_context(self.scaled.noted(recorder, notes))
            stack.enter_context(self.host.traced(recorder))
            stack.enter_context(seen_through_ctc_loss(self.host))
            if self.before is not None:
                stack.enter_context(light.open())
            stack.enter_context(noted_flags(notes))
            stack.enter_context(self.missed.watched())
            stack.enter_context(recorder)
            recording = recorder.finish(self._program(self.inputs.fakes))
        check_gradients(recording, notes.branched)
        drop_replaced(recording, notes.replaced)
        return recording

    def _program(self, inputs: list[torch.Tensor]) -> list[Any]:
        twins = dict(zip((slot.key for slot in self.inputs.slots), inputs, strict=True))
        self.twins = {slot.name: twins["tensor", slot.name] for slot in self.state.tensors}
        for slot in self.state.tensors:
            for place in slot.places:
                place.set(twins["tensor", slot.name])
        self.keys.fill(self.twins)
        for name in self.entry.gradients:
            twins["tensor", name].grad = twins["gradient", name]
        self.optimizers.fill(twins)
        leaves = list(self.batch_leaves)
        for position in range(len(leaves)):
            if ("batch", position) in twins:
                leaves[position] = twins["batch", position]
            elif ("argument", position) in twins:
                leaves[position] = twins["argument", position].item()
        for place, _ in self.numbers:
            self.symbols.append(twins["scalar", place.name].item())
            place.set(self.symbols[-1])
        unseen = {position for position, leaf in enumerate(leaves) if isinstance(leaf, Unseen)}
        for position in self.state.unread_arguments | unseen:
            leaves[position] = self.stand_ins.of_argument(position)
        for place, _ in self.unread:
            self.standing.append(self.stand_ins.of_place(place.name))
            place.set(self.standing[-1])
        args, kwargs = pytree.tree_unflatten(leaves, self.batch_spec)
        watch = ArgumentWatch((args, kwargs), self.state)
        storages = {name: twin.untyped_storage() for name, twin in self.twins.items()}
        self.result = self.step(*args, **kwargs)
        self._refuse_other_bytes(storages)
        return self._collect(twins, watch)

    def _refuse_other_bytes(self, storages: Mapping[str, torch.UntypedStorage]) -> None:
        """Refuse `parameter.data = ...`: autograd sees no operation, so the program would not have it."""
        for name, storage in storages.items():
            if private.storage_key(self.twins[name].untyped_storage()) != private.storage_key(storage):
                raise CaptureError(
                    f"the step puts another tensor into {name}.data",
                    where=find_line("data", self.state.codes),
                    why="no operation does that, so the program would leave the tensor as it was",
                    next_step="write the numbers in place: .data.copy_(...), or copy_ under torch.no_grad()",
                )

    def _collect(self, twins: Twins, watch: ArgumentWatch) -> list[Any]:
        """All that the program returns, in the order of the output slots."""
        outputs, state = self.outputs, self.state
        outputs.add_result(self.result, watch, state, self.twins, self.notes, self.stand_ins)
        outputs.changes.check(self.call, state)
        refuse_factory(outputs.constants.values(), self.step)
        gradients = outputs.add_gradients(self.originals, twins)
        outputs.add_argument_flags(self.batch_leaves, twins)
        found = self.optimizers.collect(outputs.write)
        self.scaled.check_writes()
        for label, flag in self.scaled.skipped.items():
            outputs.write(OutputSlot("skipped", f"{label} is skipped", (label,)), flag)
        self.exit = EntryPattern(
            gradients, found, self._numbers_after(), {**self.entry.flags, **outputs.flags}
        )
        for slot in state.tensors:
            twins["tensor", slot.name].grad = None
        refuse_batch_gradients(len(self.batch_leaves), twins, self.notes)
        outputs.add_numbers(state.counted, [place for place, _ in self.numbers], self.symbols)
        outputs.add_left(state.left, twins)
        return outputs.returned

    def _numbers_after(self) -> dict[tuple[Any, ...], Any]:
        """The numbers that the host knows when the step is over; notes the decisions."""
        records = {}
        after = {}
        counted = [place for place, _ in self.numbers if place.name in self.state.counted and is_there(place)]
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
        """Puts the user's tensors back; returns what the step had written to their places, by identity of the place."""
        found: list[tuple[Any, Write]] = [*self.keys.put_back()]
        for slot, tensor in self.originals:
            twin = self.twins.get(slot.name)
            for place in slot.places:
                if not _holds(place, tensor, twin):
                    found.append((place.identity, rebound(place, tensor, self.state)))
                with contextlib.suppress(LookupError):  # a list that was shortened; it is put back whole
                    place.set(tensor)
        for (place, number), symbol in zip(self.numbers, self.symbols, strict=False):
            if place.name not in self.state.counted and not _holds(place, symbol):
                found.append((place.identity, Write(place.name)))
            place.set(number)
        for (place, content), stand_in in zip(self.unread, self.standing, strict=False):
            if not _holds(place, stand_in):
                found.append((place.identity, Write(place.name)))
            place.set(content)
        self.optimizers.put_back()
        return found


def _holds(place: Place, *contents: Any) -> bool:
    try:
        found = place.get()
    except (LookupError, AttributeError, ValueError):  # deleted meanwhile
        return False
    return any(found is content for content in contents)


def _drop_unused(
    recording: Recording, slots: list[InputSlot], skeletons: frozenset[str]
) -> tuple[InputSlot, ...]:
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
