"""Runs a training step once on fake tensors and records every operation below autograd.

The user's parameters, buffers, gradients and optimizer state are replaced by fake twins for the duration of the
trace and put back afterwards; nothing of model size is allocated and no user tensor is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError, NeaptideError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.branching_gradients import check_gradients
from neaptide.frontends.factory_as_step import refuse_factory
from neaptide.frontends.host_numbers import HostNumbers
from neaptide.frontends.host_part import UNKNOWN, HostPart, is_host_number, traced_dtype
from neaptide.frontends.host_traffic import no_host_traffic
from neaptide.frontends.known_results import KnownResults
from neaptide.frontends.large_data import closed_data
from neaptide.frontends.light_passes import LightPasses
from neaptide.frontends.line_notes import LineNotes
from neaptide.frontends.line_of_change import line_of_change
from neaptide.frontends.locked_arrays import locked_arrays
from neaptide.frontends.notes import Notes
from neaptide.frontends.object_watch import ObjectWatch, Watched, changed_error
from neaptide.frontends.optimizer_twins import OptimizerTwins
from neaptide.frontends.outside_world import no_outside_world, refuse_clocks
from neaptide.frontends.places import Place
from neaptide.frontends.recorder import Recorder
from neaptide.frontends.recording import Recording
from neaptide.frontends.same_twice import NO_LISTING, Listing, list_run
from neaptide.frontends.scaled_updates import ScaledUpdates
from neaptide.frontends.step_slots import (
    NUMBER_TYPES,
    EntryPattern,
    InputSlot,
    OutputSlot,
    TensorSpec,
    Trace,
    argument_name,
    hyper_parameters,
)
from neaptide.frontends.step_state import StepState, TensorSlot
from neaptide.frontends.trace_errors import explained
from neaptide.frontends.trace_notes import noted_backward, noted_modules
from neaptide.frontends.trace_truths import known_truths
from neaptide.frontends.trace_watch import StateWatch, Write, rebound

# As what a Python number that changes enters a trace, where it is read back at once.
_NUMBERS = {kind: TensorSpec((), (), traced_dtype(kind()), torch.device("cpu")) for kind in NUMBER_TYPES}


def trace_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    state: StepState,
    entry: EntryPattern,
    changing: frozenset[str] = frozenset(),
    *,
    plain: bool = False,
) -> Trace:
    """Trace a step with the given pattern of gradients and optimizer state.

    Args:
        step: what is traced.
        args: of the call; tensors in it are replaced by fake twins.
        kwargs: likewise.
        state: what the step works on.
        entry: gradients and optimizer state that exist when it begins.
        changing: names of Python floats (arguments as `batch[3]`, or places of the state) that become inputs.
        plain: Python numbers of the optimizer's state and groups stay plain numbers, whatever the step writes.

    Raises:
        CaptureError: naming the user's line, when the step cannot become one straight-line program.
    """
    return _Tracer(step, args, kwargs, state, entry, changing, plain=plain).run()


def rehearse_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    state: StepState,
    entry: EntryPattern,
    changing: frozenset[str],
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
        before: what it did in another run.

    Returns:
        The listing, and the phases that are not complete in it.

    Raises:
        CaptureError: this time the step does what cannot be captured.
    """
    tracer = _Tracer(step, args, kwargs, state, entry, changing, before=before)
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
    ) -> None:
        self.step = step
        self.call = (args, kwargs)
        self.state = state
        self.entry = entry
        self.changing = changing
        self.numbers = [(place, place.get()) for place in state.scalars if place.name in changing]
        self.symbols: list[Any] = []
        self.batch_leaves, self.batch_spec = pytree.tree_flatten((args, dict(kwargs)))
        self.mode = private.new_fake_mode()
        self.slots: list[InputSlot] = []
        self.known: dict[tuple[Any, ...], Any] = dict(entry.numbers)
        self.fakes: list[torch.Tensor] = []
        self.twins: dict[str, torch.Tensor] = {}
        self.outputs: list[OutputSlot] = []
        self.constants: dict[int, Any] = {}
        self.borrowed: dict[int, tuple[str, str]] = {}
        self.attached: set[int] = set()
        self.result_spec: Any = None
        self.exit = EntryPattern()
        self.kept: frozenset[str] = frozenset()
        self.originals = [(slot, slot.current()) for slot in state.tensors]
        self.written: dict[OutputSlot, Any] = {}
        self.optimizers = OptimizerTwins(state, entry, changing, plain=plain)
        self.scaled = ScaledUpdates(state, self.optimizers)
        self.decisions: HostPart | None = None
        self.before = before
        self.left_out: set[str] = set()
        self.result: Any = None

    def run(self) -> Trace:
        self._fake_inputs()
        watch = StateWatch(self.state)
        objects = ObjectWatch(self.state)
        try:
            with locked_arrays(objects.arrays), no_outside_world(self.state):
                recording = self._trace()
            refuse_clocks(self.constants.values())
        except BaseException as error:
            self._restore()
            watch.restore()
            objects.put_back()
            if isinstance(error, NeaptideError) or not isinstance(error, Exception):
                raise
            raise explained(error, self.state.hidden) from error
        left = {place.identity for place in self.state.left}
        written = [write for identity, write in self._restore() if identity not in left]
        written += [write for write in watch.restore() if write.identity(self.state) not in left]
        for changed in objects.put_back():
            raise changed_error(changed, self._line_that_changes(changed))
        self.scaled.settle()
        listing = NO_LISTING
        if self.state.is_watched:
            listing = list_run(recording, [slot.name for slot in self.slots], self.result)
        trace = Trace(
            recording,
            _drop_unused(recording, self.slots, self._skeletons()),
            tuple(self.outputs),
            self.result_spec,
            self.constants,
            self.entry,
            self.exit,
            self.kept,
            self.borrowed,
            frozenset(self.attached),
            self.decisions,
            self.written,
            listing,
        )
        if written:
            raise watch.refuse(list({write.name: write for write in written}.values()), trace)
        return trace

    def _skeletons(self) -> frozenset[str]:
        """Names of tensors without bytes in a step whose others have bytes: the step never reads their elements."""
        without = frozenset(slot.name for slot, tensor in self.originals if tensor.device.type == "meta")
        return without if len(without) < len(self.originals) else frozenset()

    def _line_that_changes(self, watched: Watched) -> str | None:
        again = _Tracer(self.step, *self.call, self.state, self.entry, self.changing)
        again._fake_inputs()
        watch = StateWatch(self.state)
        try:
            return line_of_change(watched.has_changed, again._trace)
        finally:
            again._restore()
            watch.restore()
            watched.put_back()

    # -- inputs ---------------------------------------------------------------------------------------------

    def _fake_inputs(self) -> None:
        for slot in self.state.tensors:
            fake = self._fake(slot.current())
            _keep_hooks(slot, fake)
            vars(fake).update({k: v for k, v in vars(slot.current()).items() if k not in vars(fake)})
            self._add(InputSlot(slot.role, slot.name, ("tensor", slot.name)), fake)
        for name, spec in self.entry.gradients.items():
            self._add(InputSlot("gradient", f"{name}.grad", ("gradient", name)), self._new(spec))
        for (label, name, key), entry in self.entry.optimizer_state.items():
            slot_name, slot_key = f"{label}.state.{name}.{key}", ("state", label, name, key)
            if isinstance(entry, TensorSpec):
                self._add(InputSlot("optimizer_state", slot_name, slot_key), self._new(entry))
            elif entry.kind in NUMBER_TYPES:
                self._add(InputSlot("rate", slot_name, slot_key), self._new(_NUMBERS[entry.kind]))
        for label, optimizer in self.state.optimizers.items():
            for setting in hyper_parameters(label, optimizer):
                if setting.is_input(self.changing):
                    content = setting.content
                    fake = self._fake(content) if isinstance(content, torch.Tensor) else self._number(content)
                    self._add(InputSlot("rate", setting.name, setting.slot_key(label)), fake, content)
        for place, number in self.numbers:
            self._add(InputSlot("rate", place.name, ("scalar", place.name)), self._number(number), number)
        for position, leaf in enumerate(self.batch_leaves):
            if isinstance(leaf, torch.Tensor):
                self._add(InputSlot("batch", f"batch_{position}", ("batch", position)), self._fake(leaf))
            elif argument_name(position) in self.changing:
                name = argument_name(position)
                self._add(InputSlot("rate", name, ("argument", position)), self._number(leaf), leaf)
        self.host = HostNumbers(self.known, [slot.key for slot in self.slots])

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

    # -- trace ----------------------------------------------------------------------------------------------

    def _trace(self) -> Recording:
        notes = self.notes = Notes()
        known = None
        if self.before is not None:
            known = KnownResults(self.before, [slot.name for slot in self.slots], self.mode)
        recorder = Recorder(notes, known)
        for fake in self.fakes:
            recorder.add_input(fake)
        light = LightPasses(self.state, notes)
        self.left_out = light.left_out
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.mode)
            stack.enter_context(private.uncached_autocast())
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(private.plain_checkpoints(notes))
            stack.enter_context(private.inlined_compile())
            stack.enter_context(no_host_traffic(self.state))
            stack.enter_context(closed_data(self.state))
            stack.enter_context(known_truths(recorder))
            stack.enter_context(noted_modules(self.state.module_paths, notes))
            stack.enter_context(noted_backward(notes))
            stack.enter_context(self.optimizers.noted(notes))
            stack.enter_context(self.scaled.noted(recorder, notes))
            stack.enter_context(self.host.traced(recorder))
            if self.before is not None:
                stack.enter_context(light.open())
            stack.enter_context(LineNotes(notes))
            stack.enter_context(recorder)
            recording = recorder.finish(self._program(self.fakes))
        check_gradients(recording, notes.nodes)
        return recording

    def _program(self, inputs: list[torch.Tensor]) -> list[Any]:
        twins = dict(zip((slot.key for slot in self.slots), inputs, strict=True))
        self.twins = {slot.name: twins["tensor", slot.name] for slot in self.state.tensors}
        for slot in self.state.tensors:
            for place in slot.places:
                place.set(twins["tensor", slot.name])
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
        args, kwargs = pytree.tree_unflatten(leaves, self.batch_spec)
        self.result = self.step(*args, **kwargs)
        return self._collect(self.result, twins)

    def _flag_left_behind(self, name: str, twin: torch.Tensor) -> CaptureError:
        line = self.notes.flag_lines.get(id(twin))
        return CaptureError(
            f"the step sets requires_grad of {name} to {twin.requires_grad} and leaves it so",
            where=None if line is None else line.location,
            why="the flag would be set once, at capture, and the next step would be another program",
            next_step="set it back before the step ends, or set it outside the step",
        )

    def _collect(self, result: Any, twins: Mapping[tuple[Any, ...], torch.Tensor]) -> list[Any]:
        returned: list[Any] = []
        own: dict[int, tuple[str, str]] = {
            id(p.get()): ("object", p.name) for p in self.state.objects if _is_there(p)
        }
        own |= {id(twin): ("tensor", name) for name, twin in self.twins.items()}
        leaves, self.result_spec = pytree.tree_flatten(result, is_leaf=lambda part: id(part) in own)
        for position, leaf in enumerate(leaves):
            if id(leaf) in own:
                self.borrowed[position] = own[id(leaf)]
            elif isinstance(leaf, (torch.Tensor, torch.SymFloat, torch.SymInt, torch.SymBool)):
                self.outputs.append(OutputSlot("result", f"result_{position}", (position,)))
                returned.append(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    self.attached.add(position)
            else:
                self.constants[position] = leaf
        refuse_factory(self.constants.values(), self.step)
        gradients: dict[str, TensorSpec] = {}
        kept = set()
        for slot, original in self.originals:
            fake = twins["tensor", slot.name]
            if original.is_leaf and fake.is_leaf and fake.requires_grad != original.requires_grad:
                raise self._flag_left_behind(slot.name, fake)
            if not (fake.is_leaf and fake.requires_grad) or fake.grad is None:
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
            self.outputs.append(OutputSlot("gradient", f"{slot.name}.grad", (slot.name,)))
            returned.append(fake.grad)

        def write(slot: OutputSlot, content: Any) -> None:
            if isinstance(content, (torch.Tensor, torch.SymInt, torch.SymFloat)):
                self.outputs.append(slot)
                returned.append(content)
            else:
                self.written[slot] = content

        found = self.optimizers.collect(write)
        self.scaled.check_writes()
        for label, flag in self.scaled.skipped.items():
            write(OutputSlot("skipped", f"{label} is skipped", (label,)), flag)
        self.exit = EntryPattern(gradients, found, self._numbers_after())
        self.kept = frozenset(kept)
        for slot in self.state.tensors:
            twins["tensor", slot.name].grad = None
        for position in range(len(self.batch_leaves)):
            if ("batch", position) in twins and twins["batch", position].grad is not None:
                name, line = argument_name(position), self.notes.flag_lines.get(id(twins["batch", position]))
                raise CaptureError(
                    f"the step computes a gradient for {name}",
                    where=f"{name}, which was passed in with requires_grad"
                    if line is None
                    else line.location,
                    why="it would be accumulated in the caller's batch",
                    next_step="use `.detach().requires_grad_()` of it in the step, or make that tensor a parameter",
                )
        for position, place in enumerate(self.state.left):
            content = place.get() if _is_there(place) else None
            if not isinstance(content, torch.Tensor) or content is twins.get(("tensor", place.name)):
                raise CaptureError(
                    f"the step leaves a tensor in {place.name} at its first call only",
                    next_step="call the step once before it is planned",
                )
            self.outputs.append(OutputSlot("left", place.name, (position,)))
            returned.append(content.detach())
        return returned

    def _numbers_after(self) -> dict[tuple[Any, ...], Any]:
        """The numbers of the optimizer state that the host knows when the step is over; notes the decisions."""
        records = {}
        after = {}
        for key, content in self.optimizers.contents():
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
        found: list[tuple[Any, Write]] = []
        for slot, tensor in self.originals:
            twin = self.twins.get(slot.name)
            for place in slot.places:
                if not _holds(place, tensor, twin):
                    found.append((place.identity, rebound(place, tensor, self.state)))
                with contextlib.suppress(LookupError):  # a list that was shortened; it is put back whole
                    place.set(tensor)
        for (place, number), symbol in zip(self.numbers, self.symbols, strict=False):
            if not _holds(place, symbol):
                found.append((place.identity, Write(place.name)))
            place.set(number)
        self.optimizers.put_back()
        return found


def _holds(place: Place, *contents: Any) -> bool:
    try:
        found = place.get()
    except (LookupError, AttributeError, ValueError):  # deleted meanwhile
        return False
    return any(found is content for content in contents)


def _is_there(place: Place) -> bool:
    try:
        place.get()
    except (LookupError, AttributeError, ValueError):
        return False
    return True


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
