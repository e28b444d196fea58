"""One graph for a whole training step: forward, loss, backward and the optimizer's update."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError, PlanMismatch
from neaptide.frontends.captured import CapturedProgram, CapturedStep
from neaptide.frontends.causal_mask import restore_causal_attention
from neaptide.frontends.counted_state import check_types_unasked, counts_in_python
from neaptide.frontends.first_writes import FirstWrites
from neaptide.frontends.grouped_heads import grouped_heads, has_masked_attention, repeats_grouped_heads
from neaptide.frontends.host_code import cut_again, cut_behind, not_cut
from neaptide.frontends.mode_facts import check_modes
from neaptide.frontends.optimizer_twins import WrittenNumbersError
from neaptide.frontends.rehearsal import refuse_changes
from neaptide.frontends.same_program import is_same_but_for_numbers
from neaptide.frontends.signature_reader import SignatureReader
from neaptide.frontends.state_finder import find_state
from neaptide.frontends.step_slots import (
    EntryPattern,
    Trace,
    argument_name,
    hyper_parameters,
    present_pattern,
)
from neaptide.frontends.step_state import StepState
from neaptide.frontends.step_trace import trace_step
from neaptide.frontends.trace_reader import read_trace
from neaptide.frontends.trace_watch import StateWrittenError
from neaptide.ops import registry

MAX_PROGRAMS = 4  # of one step: without optimizer state, and for the branches taken by step counts
LOOK_AHEAD = 40  # steps that are played on the host alone, to find the branches that step counts will take


def capture_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: Any = None,
    name: str = "",
    changing: frozenset[str] = frozenset(),
    watched: bool = True,
) -> CapturedStep:
    """Capture a training step without running it, allocating tensors or changing the user's objects.

    Args:
        step: `step(*args, **kwargs)` does forward, loss, backward and `optimizer.step()`.
        args: a batch as in training; only shapes, strides, dtypes and devices matter.
        kwargs: further arguments.
        state: modules, optimizers and tensors that cannot be found by looking through `step`.
        name: of the graph, for reports.
        changing: names of Python floats, as `Signature.changed_floats` gives them, that become inputs of the
            program. One that decides a branch, a shape or a type cannot; then all stay guards.
        watched: whether impure Python is looked for; off only to measure what that costs.

    Raises:
        CaptureError: the step is no straight-line program of tensors; names the user's line.
    """
    began = time.perf_counter()
    check_modes()
    given = kwargs or {}
    request = _Request(args, given, state, name or _name_of(step), changing, is_watched=watched)
    with _collector_paused():
        try:
            captured = _captured(step, lambda: find_state(step, state), step, request)
        except CaptureError as refusal:
            captured = _captured_before_host_code(step, request, refusal)
    return replace(captured, seconds=time.perf_counter() - began)


@dataclass(frozen=True)
class _Request:
    """What a capture is asked for, besides the step."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    extra: Any
    name: str
    changing: frozenset[str]
    clears_gradients: bool = False
    is_watched: bool = True


def _captured(
    step: Callable[..., Any], find: Callable[[], StepState], called: Callable[..., Any], request: _Request
) -> CapturedStep:
    """A step that is traced by calling `called`, which works on what `find` finds."""
    found = find()
    found.is_watched = request.is_watched
    SignatureReader(found).read(request.args, request.kwargs)  # refuses arguments that cannot be guarded
    try:
        programs, symbolic = _all_programs(called, request, found)
    except StateWrittenError as refusal:
        return _captured_after_writes(step, find, called, request, refusal, found)
    return _assembled(step, request, found, programs, symbolic)


def _captured_before_host_code(
    step: Callable[..., Any], request: _Request, refusal: CaptureError
) -> CapturedStep:
    """The step up to the first statement that has an effect on the host, which runs behind it from there on.

    Raises:
        CaptureError: the first refusal, with the reason why the step cannot be cut.
    """
    try:
        host = cut_behind(step, request.args, request.kwargs, request.extra)
    except LookupError as reason:
        raise not_cut(refusal, str(reason)) from refusal.__cause__
    stepped: set[int] = set()
    traced = host.watched_head(stepped, find_state(step, request.extra))
    request = replace(request, clears_gradients=host.clears_gradients)
    try:
        captured = _captured(step, lambda: host.head_state(request.extra), traced, request)
        numbers = host.written_numbers(captured.state) - request.changing
        if numbers:
            request = replace(request, changing=request.changing | numbers)
            captured = _captured(step, lambda: host.head_state(request.extra), traced, request)
        for program in captured.programs:
            host.refuse_odd_variables(program.result_spec, program.constants)
        objects = {place.name: place.get() for place in captured.state.objects}
        keys = [key for program in captured.programs for key in program.borrowed.values()]
        host.refuse_training(stepped, [objects[name] for kind, name in keys if kind == "object"])
    except CaptureError as reason:
        raise not_cut(refusal, reason.why or reason.what) from refusal.__cause__
    steady, *first = (replace(p, rewrites=(*p.rewrites, host.describe())) for p in captured.programs)
    return replace(captured, steady=steady, first=tuple(first), host=host)


def _all_programs(
    step: Callable[..., Any], request: _Request, found: StepState
) -> tuple[list[CapturedProgram], frozenset[str]]:
    """The programs of a step, and the names of the numbers that are inputs of them."""
    args, kwargs, changing = request.args, request.kwargs, request.changing
    clears = request.clears_gradients
    programs, written = _programs(step, args, kwargs, found, frozenset(), request.name, clears)
    if changing - written:
        asked = changing - written
        symbolic = _with_numbers_as_inputs(step, args, kwargs, found, asked, programs, clears)
        return (programs, written) if symbolic is None else (symbolic, changing | written)
    return programs, written


def _assembled(
    step: Callable[..., Any],
    request: _Request,
    found: StepState,
    programs: list[CapturedProgram],
    changing: frozenset[str],
) -> CapturedStep:
    steady = programs[-1]
    first = [program for program in programs[:-1] if not steady.covers(program)]
    used = {slot.name for program in programs for slot in program.inputs}
    used |= {key[1] for program in programs for key in program.borrowed.values()}
    _set_unused_aside(found, {slot.name for slot in found.tensors if slot.role == "tensor"} - used)
    reader = SignatureReader(found, changing)
    signature = reader.read(request.args, request.kwargs)
    return CapturedStep(step, found, steady, tuple(first), signature, reader, 0.0, changing)


def _captured_after_writes(
    step: Callable[..., Any],
    find: Callable[[], StepState],
    called: Callable[..., Any],
    request: _Request,
    refusal: StateWrittenError,
    found: StepState,
) -> CapturedStep:
    """The step as it is once it has written plain data that it would write again at every call.

    Raises:
        CaptureError: with that data in place it still writes, or computes something else.
    """
    if refusal.trace is None or not all(write.can_be_done for write in refusal.writes):
        raise refusal
    writes = FirstWrites.of(refusal.writes, found)
    with writes.done():
        try:
            later = find()
            later.left = [place for place, _ in writes.left]
            programs, changing = _all_programs(called, request, later)
            again = trace_step(called, request.args, request.kwargs, later, refusal.trace.entry)
        except StateWrittenError:
            raise refusal from None
        read = {slot.name for program in programs for slot in program.inputs}
        kept = {place.identity for slot in later.tensors if slot.name in read for place in slot.places}
        captured = _assembled(step, request, later, programs, changing)
    overwritten = {write.name for place, write in writes.found if place.identity not in kept}
    name = request.name
    first_call = _program(refusal.trace, [], name).graph
    if not is_same_but_for_numbers(first_call, {}, _program(_without_left(again), [], name).graph):
        raise CaptureError(
            f"the step writes {refusal.writes[0].name}, and computes something else from then on",
            where=refusal.where,
            why="its first call is another program than all later ones",
            next_step="call the step once before it is planned",
        )
    return replace(captured, first_writes=replace(writes, overwritten=frozenset(overwritten)))


def _without_left(trace: Trace) -> Trace:
    """A trace without the tensors that it leaves in places: they are its last outputs."""
    count = sum(slot.role == "left" for slot in trace.outputs)
    if count:
        trace.recording.records[-1].args = trace.recording.records[-1].args[:-count]
    return replace(trace, outputs=trace.outputs[: len(trace.outputs) - count])


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """A capture makes many small objects and hardly a cycle; looking for cycles costs it a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _with_numbers_as_inputs(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    found: StepState,
    changing: frozenset[str],
    concrete: list[CapturedProgram],
    clears_gradients: bool,
) -> list[CapturedProgram] | None:
    """The same programs with some numbers as inputs; None where that makes other programs of them."""
    leaves = pytree.tree_leaves((args, dict(kwargs)))
    numbers = {argument_name(i): leaf for i, leaf in enumerate(leaves) if argument_name(i) in changing}
    numbers |= {place.name: place.get() for place in found.scalars if place.name in changing}
    for label, optimizer in found.optimizers.items():
        entries = hyper_parameters(label, optimizer)
        numbers |= {entry.name: entry.content for entry in entries if entry.name in changing}
    try:
        programs, _ = _programs(step, args, kwargs, found, changing, concrete[0].graph.name, clears_gradients)
    except CaptureError:  # the number decides something
        return None
    for symbolic, plain in zip(programs, concrete, strict=False):
        by_value = {
            symbolic.graph.values[value].name: float(numbers[slot.name])
            for value, slot in zip(symbolic.graph.inputs, symbolic.inputs, strict=True)
            if slot.name in numbers
        }
        if not is_same_but_for_numbers(symbolic.graph, by_value, plain.graph):
            return None
    return programs if len(programs) == len(concrete) else None


def _programs(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    found: StepState,
    changing: frozenset[str],
    name: str,
    clears_gradients: bool,
) -> tuple[list[CapturedProgram], frozenset[str]]:
    """The programs of a step from now on until it leaves the gradients and the state that it found.

    With them the names of the numbers that are inputs: those given, and those that the step writes itself. Where host
    code behind the program clears the gradients, those of the next step are those that this one found.
    """
    programs: list[CapturedProgram] = []
    traces: list[Trace] = []
    entry = present_pattern(found)
    gradients = entry.gradients
    runs: list[int] = []
    while len(runs) < LOOK_AHEAD:
        index, after = _played(programs, entry)
        if index is None:
            if len(programs) == MAX_PROGRAMS:
                break
            try:
                program, trace = _checked_program(step, args, kwargs, found, entry, changing, name)
            except WrittenNumbersError as error:
                return _programs(step, args, kwargs, found, changing | error.names, name, clears_gradients)
            programs.append(program)
            traces.append(trace)
            index, after = len(programs) - 1, programs[-1].exit.numbers
        entry = replace(programs[index].exit, numbers=after)
        if clears_gradients:
            entry = replace(entry, gradients=gradients)
        if programs[index].decisions is None and programs[index].accepts(*entry.names()):
            runs += [index] * LOOK_AHEAD
        runs.append(index)
    else:
        if found.is_watched:
            refuse_changes(step, args, kwargs, found, traces, changing)
        steady = max(set(runs), key=lambda index: (runs.count(index), index))
        return [p for index, p in enumerate(programs) if index != steady] + [programs[steady]], changing
    raise CaptureError(
        "the step never reaches a steady state",
        why=f"after {MAX_PROGRAMS} steps other gradients or optimizer state exist than before, or its step counts "
        "decide otherwise",
        next_step="make each step leave the same gradients and optimizer state behind",
    )


def _checked_program(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    found: StepState,
    entry: EntryPattern,
    changing: frozenset[str],
    name: str,
) -> tuple[CapturedProgram, Trace]:
    """One program and its trace; where the optimizer counts in Python, also traced with plain numbers and compared."""
    trace, rewrites = _traced(step, args, kwargs, found, entry, changing)
    program = _program(trace, rewrites, name)
    if counts_in_python(entry, changing, found):
        plain = trace_step(step, args, kwargs, found, entry, changing, plain=True)
        check_types_unasked(program, _program(plain, restore_causal_attention(plain.recording), name), found)
    return program, trace


def _played(
    programs: list[CapturedProgram], entry: EntryPattern
) -> tuple[int | None, Mapping[tuple[Any, ...], Any]]:
    """Which program a step runs that finds this, and the numbers that it leaves."""
    for index, program in enumerate(programs):
        if not program.accepts(*entry.names()):
            continue
        decisions = program.decisions
        if decisions is None:
            return index, entry.numbers
        given = zip(decisions.keys, decisions.numbers, strict=True)
        numbers = [entry.numbers.get(key, then) for key, then in given]
        if decisions.holds(numbers):
            return index, {**entry.numbers, **decisions.after(numbers)}
    return None, {}


def rebind_step(
    captured: CapturedStep,
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: Any = None,
) -> CapturedStep:
    """The same capture for other objects of the same make: another model from the same factory, say.

    Nothing is traced again; names, shapes, flags and hyper-parameters must all agree.

    Raises:
        PlanMismatch: naming what differs.
    """
    try:
        host = None if captured.host is None else cut_again(captured.host, step)
    except LookupError as reason:
        raise PlanMismatch(
            "the host code of this step cannot run behind the program", why=str(reason)
        ) from None

    def find() -> StepState:
        return find_state(step, state) if host is None else host.head_state(state)

    before = captured.first_writes
    writes = replace(FirstWrites.of(before.writes, find()), overwritten=before.overwritten)
    with writes.done():
        found = find()
        _set_unused_aside(found, {slot.name for slot in captured.state.unused})
        found.environment = list(captured.state.environment)
        again = replace(
            captured,
            step=step,
            state=found,
            reader=SignatureReader(found, captured.changing),
            first_writes=writes,
            host=host,
        )
        signature = again.read_signature(args, kwargs or {})
    differences = signature.of_any_objects().differences(captured.signature.of_any_objects())
    if differences:
        raise PlanMismatch(
            "these objects differ from those that the step was captured with",
            why="; ".join(differences[:4]),
            next_step="make the factory return the same model and batch each time",
        )
    return replace(again, signature=signature)


def _set_unused_aside(found: StepState, names: set[str]) -> None:
    """Loose tensors that no program reads are neither inputs nor guarded."""
    found.unused = [slot for slot in found.tensors if slot.name in names]
    found.tensors = [slot for slot in found.tensors if slot.name not in names]


def _traced(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    found: StepState,
    entry: EntryPattern,
    changing: frozenset[str],
) -> tuple[Trace, list[str]]:
    """A trace that took the branches of eager as far as that can be told, and what was changed in it, in words."""
    trace = trace_step(step, args, kwargs, found, entry, changing)
    rewrites = restore_causal_attention(trace.recording)
    if not rewrites or not repeats_grouped_heads(trace.recording):
        return trace, rewrites
    with grouped_heads():
        again = trace_step(step, args, kwargs, found, entry, changing)
    rewrites_again = restore_causal_attention(again.recording)
    if has_masked_attention(again.recording) or repeats_grouped_heads(again.recording):
        return trace, rewrites
    return again, [*rewrites_again, "keys and values of grouped heads are not repeated, as without a mask"]


def _program(trace: Trace, rewrites: list[str], name: str) -> CapturedProgram:
    read = read_trace(trace, registry(), name=name)
    graph = read.graph
    ignores = not any(slot.role == "gradient" for slot in read.inputs)
    return CapturedProgram(
        graph=graph,
        inputs=read.inputs,
        outputs=trace.outputs,
        result_spec=trace.result_spec,
        constants=trace.constants,
        entry=trace.entry,
        exit=trace.exit,
        kept_gradients=trace.kept_gradients,
        ignores_gradients=ignores,
        observations=read.observations,
        unknown_ops=read.unknown_ops,
        rewrites=(*rewrites, *_undone(len(read.checkpoints))),
        checkpoints=read.checkpoints,
        borrowed=trace.borrowed,
        attached=trace.attached,
        written=trace.written,
        decisions=trace.decisions,
    )


def _undone(checkpoints: int) -> list[str]:
    if not checkpoints:
        return []
    return [f"activation checkpointing of {checkpoints} calls is undone: what is recomputed is planned anew"]


def _name_of(step: Callable[..., Any]) -> str:
    return getattr(step, "__qualname__", type(step).__name__)
