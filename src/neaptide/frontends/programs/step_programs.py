"""The programs of a step: from its first call on until each call leaves the gradients and the state that it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from neaptide.errors import CaptureError, HostEffectError
from neaptide.frontends.dims.dynamic_dims import DynamicDim
from neaptide.frontends.kernels.causal_mask import restore_causal_attention
from neaptide.frontends.kernels.grouped_heads import (
    grouped_heads,
    has_masked_attention,
    repeats_grouped_heads,
)
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.objects.unread import ALL_READ, ReadError, UnreadNames
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.frontends.programs.counted_state import check_types_unasked, counts_in_python
from neaptide.frontends.programs.same_program import is_same_but_for_numbers
from neaptide.frontends.state.step_slots import (
    NUMBER_TYPES,
    EntryPattern,
    Trace,
    argument_name,
    hyper_parameters,
    present_pattern,
)
from neaptide.frontends.state.step_state import StepState, names_of_one
from neaptide.frontends.trace.rehearsal import refuse_changes
from neaptide.frontends.trace.step_trace import trace_step
from neaptide.frontends.trace.trace_reader import ReadResult, read_trace
from neaptide.frontends.watch.optimizer_twins import WrittenNumbersError
from neaptide.frontends.watch.trace_watch import StateWrittenError
from neaptide.ops import registry

MAX_PROGRAMS = 4  # of one step: without optimizer state, and for the branches taken by step counts
LOOK_AHEAD = 40  # steps that are played on the host alone, to find the branches that step counts will take


@dataclass(frozen=True)
class StepRequest:
    """What a capture is asked for, besides the step.

    Attributes:
        args: of the call.
        kwargs: likewise.
        extra: state that cannot be found by looking through the step.
        name: of the graph.
        changing: names of Python numbers that become inputs.
        unread: what the step is taken not to read.
        counted: names of Python numbers of the state that the step itself writes.
        clears_gradients: host code behind the program clears the gradients.
        is_watched: whether impure Python is looked for.
        undoes_checkpoints: functions that the user checkpoints run once, as plain code.
        is_known: an earlier capture shows that it does the same each time, so it is not run again to see.
        dims: of the arguments, that may vary.
        replans: calls that differ are captured again.
        begun: a trace of the first program that was made for this very request; taken out by who goes on with it.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    extra: Any
    name: str
    changing: frozenset[str]
    unread: UnreadNames = ALL_READ
    counted: frozenset[str] = frozenset()
    clears_gradients: bool = False
    is_watched: bool = True
    undoes_checkpoints: bool = False
    is_known: bool = False
    dims: tuple[DynamicDim, ...] = ()
    replans: bool = False
    begun: list[Trace] = field(default_factory=list)


class LaterCallError(HostEffectError):
    """A later call of the step, to which its own counts lead, cannot be captured.

    Attributes:
        refusal: of that call.
        call: number of it, 1 for the call that is captured.
        entry: what that call finds.
    """

    def __init__(self, refusal: CaptureError, call: int, entry: EntryPattern) -> None:
        super().__init__(
            f"at call {call}, counted from this one, {refusal.what}",
            where=refusal.where,
            why=refusal.why,
            next_step=f'{refusal.next_step or "take it out of the step"}; or run such calls as they are (on_mismatch="eager")',
        )
        self.refusal, self.call, self.entry = refusal, call, entry


def all_programs(
    step: Callable[..., Any], request: StepRequest, found: StepState
) -> tuple[list[CapturedProgram], frozenset[str]]:
    """The programs of a step, and the names of the numbers that are inputs of them. The last program is the usual one.

    Raises:
        CaptureError: the step is no straight-line program, or never leaves what it found.
    """
    changing = names_of_one(found, request.changing)
    programs, written = _programs(step, request, found, frozenset())
    if changing - written:
        wanted = changing - written
        symbolic = _with_numbers_as_inputs(step, request, found, wanted, programs)
        if symbolic is None and len(wanted) > 1:
            each = {name: frozenset({name}) for name in sorted(wanted)}
            wanted = frozenset(
                name
                for name, one in each.items()
                if _with_numbers_as_inputs(step, request, found, one, programs) is not None
            )
            symbolic = _with_numbers_as_inputs(step, request, found, wanted, programs) if wanted else None
        return (programs, written) if symbolic is None else (symbolic, wanted | written)
    return programs, written


def _with_numbers_as_inputs(
    step: Callable[..., Any],
    request: StepRequest,
    found: StepState,
    changing: frozenset[str],
    concrete: list[CapturedProgram],
) -> list[CapturedProgram] | None:
    """The same programs with some numbers as inputs; None where that makes other programs of them."""
    leaves = leaves_of((request.args, dict(request.kwargs)))
    numbers = {argument_name(i): leaf for i, leaf in enumerate(leaves) if argument_name(i) in changing}
    numbers |= {place.name: place.get() for place in found.scalars if place.name in changing}
    for label, optimizer in found.optimizers.items():
        entries = hyper_parameters(label, optimizer)
        numbers |= {entry.name: entry.content for entry in entries if entry.name in changing}
    try:
        programs, _ = _programs(step, request, found, changing)
    except CaptureError:  # the number decides something
        return None
    for symbolic, plain in zip(programs, concrete, strict=False):
        by_value = {
            symbolic.graph.values[value].name: numbers[slot.name]
            for value, slot in zip(symbolic.graph.inputs, symbolic.inputs, strict=True)
            if slot.name in numbers
        }
        results = {k: slot.key[0] for k, slot in enumerate(symbolic.outputs) if slot.role == "result"}
        returned = {k: plain.constants[at] for k, at in results.items() if at in plain.constants}
        if not all(type(number) in NUMBER_TYPES for number in returned.values()):
            return None  # it would come back as a plain number
        if not is_same_but_for_numbers(symbolic.graph, by_value, plain.graph, returned):
            return None
    return programs if len(programs) == len(concrete) else None


def _programs(
    step: Callable[..., Any],
    request: StepRequest,
    found: StepState,
    changing: frozenset[str],
    *,
    counts: bool = True,
) -> tuple[list[CapturedProgram], frozenset[str]]:
    """The programs of a step from now on until it leaves the gradients and the state that it found.

    With them the names of the numbers that are inputs: those given, and those that the step writes itself. Where host
    code behind the program clears the gradients, those of the next step are those that this one found. The user's own
    counts are played ahead as well, unless they lead to more programs than there may be; `counts` says whether they are.
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
                program, trace = _checked_program(step, request, found, entry, changing)
            except WrittenNumbersError as error:
                return _programs(step, request, found, changing | error.names, counts=counts)
            except (CaptureError, ReadError) as error:
                if not runs or not counts or not _counts(entry):
                    raise
                if request.replans and isinstance(error, CaptureError) and not _is_written_once(error):
                    raise LaterCallError(error, len(runs) + 1, entry) from error.__cause__
                return _programs(step, request, found, changing, counts=False)
            programs.append(program)
            traces.append(trace)
            index, after = len(programs) - 1, programs[-1].exit.numbers
        after = after if counts else {key: number for key, number in after.items() if key[0] != "scalar"}
        entry = replace(programs[index].exit, numbers=after)
        if request.clears_gradients:
            entry = replace(entry, gradients=gradients)
        if programs[index].decisions is None and programs[index].accepts(*entry.names()):
            runs += [index] * LOOK_AHEAD
        runs.append(index)
    else:
        if found.is_watched and not request.is_known:
            refuse_changes(step, request.args, request.kwargs, found, traces, changing, request.dims)
        steady = max(set(runs), key=lambda index: (runs.count(index), index))
        return [p for index, p in enumerate(programs) if index != steady] + [programs[steady]], changing
    if counts and _counts(entry):
        return _programs(step, request, found, changing, counts=False)
    raise CaptureError(
        "the step never reaches a steady state",
        why=f"after {MAX_PROGRAMS} steps other gradients or optimizer state exist than before, or its step counts "
        "decide otherwise",
        next_step="make each step leave the same gradients and optimizer state behind",
    )


def _counts(entry: EntryPattern) -> bool:
    return any(key[0] == "scalar" for key in entry.numbers)


def _is_written_once(refusal: CaptureError) -> bool:
    """Whether a call is refused for plain data alone that it writes, which it would not be when it comes."""
    return isinstance(refusal, StateWrittenError) and all(
        write.can_be_done and not write.is_count for write in refusal.writes
    )


def first_program(
    step: Callable[..., Any], request: StepRequest, found: StepState, changing: frozenset[str]
) -> tuple[CapturedProgram, frozenset[str]]:
    """The program of the first call alone, and the names of the numbers that are inputs of it."""
    try:
        return _checked_program(step, request, found, present_pattern(found), changing)[0], changing
    except WrittenNumbersError as error:
        return first_program(step, request, found, changing | error.names)


def _checked_program(
    step: Callable[..., Any],
    request: StepRequest,
    found: StepState,
    entry: EntryPattern,
    changing: frozenset[str],
) -> tuple[CapturedProgram, Trace]:
    """One program and its trace; where the optimizer counts in Python, also traced with plain numbers and compared."""
    trace, rewrites = _traced(step, request, found, entry, changing)
    name = request.name
    program = program_of(trace, rewrites, name)
    if counts_in_python(entry, changing, found):
        plain = _trace(step, request, found, entry, changing, plain=True)
        check_types_unasked(
            program, program_of(plain, restore_causal_attention(plain.recording), name), found
        )
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
            written = {
                ("scalar", *slot.key): n for slot, n in program.written.items() if slot.role == "number"
            }
            return index, {**entry.numbers, **written, **decisions.after(numbers)}
    return None, {}


def _traced(
    step: Callable[..., Any],
    request: StepRequest,
    found: StepState,
    entry: EntryPattern,
    changing: frozenset[str],
) -> tuple[Trace, list[str]]:
    """A trace that took the branches of eager as far as that can be told, and what was changed in it, in words."""
    is_begun = bool(request.begun) and not changing and request.begun[0].entry == entry
    trace = request.begun.pop() if is_begun else _trace(step, request, found, entry, changing)
    rewrites = restore_causal_attention(trace.recording)
    if not rewrites or has_masked_attention(trace.recording):
        rewrites += trace.branches
    if not rewrites or not repeats_grouped_heads(trace.recording):
        return trace, rewrites
    with grouped_heads():
        again = _trace(step, request, found, entry, changing)
    rewrites_again = restore_causal_attention(again.recording)
    if has_masked_attention(again.recording) or repeats_grouped_heads(again.recording):
        return trace, rewrites
    return again, [*rewrites_again, "keys and values of grouped heads are not repeated, as without a mask"]


def _trace(
    step: Callable[..., Any],
    request: StepRequest,
    found: StepState,
    entry: EntryPattern,
    changing: frozenset[str],
    *,
    plain: bool = False,
) -> Trace:
    args, kwargs = request.args, request.kwargs
    return trace_step(step, args, kwargs, found, entry, changing, plain=plain, dims=request.dims)


def program_of(trace: Trace, rewrites: list[str], name: str) -> CapturedProgram:
    """A trace as a program: its graph, and what its inputs and outputs are to the user.

    Args:
        trace: of one call.
        rewrites: what was changed in it, in words.
        name: of the graph.
    """
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
        rewrites=(*rewrites, *_about_checkpoints(read, undone=trace.undoes_checkpoints), *trace.sizes.notes),
        checkpoints=read.checkpoints,
        borrowed=trace.borrowed,
        attached=trace.attached,
        open_results=trace.open_results,
        written=trace.written,
        decisions=trace.decisions,
        sizes=trace.sizes,
        argument_flags=trace.argument_flags,
        changes=trace.changes,
    )


def _about_checkpoints(read: ReadResult, *, undone: bool) -> list[str]:
    count, graph = len(read.checkpoints), read.graph
    notes = []
    if undone and count:
        owned = set(graph.input_storages())
        nodes = [graph.nodes[number] for numbers in read.checkpoints for number in numbers]
        writers = [n for n in nodes if any(access.storage in owned for access in n.effects.writes)]
        told = (
            f"; what {writers[0].op} writes at {writers[0].source.location} then differs" if writers else ""
        )
        notes.append(
            f'checkpoints="undo": {count} checkpointed calls run once, as plain code, and not twice as in eager{told}'
        )
    elif count:
        notes.append(
            f"activation checkpointing of {count} calls is undone: what is recomputed is planned anew"
        )
    if read.recomputed:
        first = graph.nodes[read.recomputed[0]]
        notes.append(
            f"{len(read.recomputed)} operations of the recomputation stay, because they write state or depend on what "
            f"does; the first is {first.op} at {first.source.location}"
        )
    return notes
