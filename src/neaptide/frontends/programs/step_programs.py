"""The programs of a step: from its first call on until each call leaves the gradients and the state that it found."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from neaptide.errors import CaptureError, HostEffectError
from neaptide.frontends.dims.dynamic_dims import DynamicDim
from neaptide.frontends.kernels.causal_mask import (
    grouped_heads,
    has_masked_attention,
    repeats_grouped_heads,
    restore_causal_attention,
)
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.objects.unread import ReadError, UnreadNames
from neaptide.frontends.programs.captured import CapturedProgram, StepRequest
from neaptide.frontends.programs.graph_reader import read_trace
from neaptide.frontends.programs.host_code import HostCode
from neaptide.frontends.programs.same_program import is_plain_program, leaves_numbers
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.state.step_slots import (
    NUMBER_TYPES,
    EntryPattern,
    HyperParameter,
    PlainSpec,
    argument_name,
    hyper_parameters,
    present_pattern,
)
from neaptide.frontends.state.step_state import StepState, names_of_one
from neaptide.frontends.state.traced import Trace
from neaptide.frontends.trace.rehearsal import refuse_changes
from neaptide.frontends.trace.step_trace import StepCall, trace_step
from neaptide.frontends.watch.optimizer_copies import WrittenNumbersError
from neaptide.frontends.watch.trace_watch import StateWrittenError, Write

MAX_PROGRAMS = 4  # of one step: without optimizer state, and for the branches taken by step counts
LOOK_AHEAD = 40  # steps that are played on the host alone, to find the branches that step counts will take

Programs = tuple[list[CapturedProgram], frozenset[str]]
"""Programs of a step, the usual one last, and the names of the numbers that are inputs of them."""


class LaterCallError(HostEffectError):
    """A later call of the step, to which its own counts lead, cannot be captured."""

    def __init__(self, refusal: CaptureError, call: int, entry: EntryPattern) -> None:
        super().__init__(
            f"at call {call}, counted from this one, {refusal.what}",
            where=refusal.where,
            why=refusal.why,
            next_step=f'{refusal.next_step or "take it out of the step"}; or run such calls as they are (on_mismatch="eager")',
        )
        self.refusal, self.call, self.entry = refusal, call, entry


def state_of(step: Callable[..., Any], host: HostCode | None, extra: Any, unread: UnreadNames) -> StepState:
    """What a step works on, or its head where host code runs after."""
    return find_state(step, extra, unread=unread) if host is None else host.head_state(extra, unread)


class Capture:
    """A step that is being captured: what was asked for, what a trace calls, and the objects it works on."""

    def __init__(
        self,
        step: Callable[..., Any],
        request: StepRequest,
        host: HostCode | None = None,
        called: Callable[..., Any] | None = None,
    ) -> None:
        self.step, self.request, self.host, self.called = step, request, host, called or step
        self.state = state_of(step, host, request.extra, request.unread)
        self.state.counted = request.counted
        self.state.undoes_checkpoints = request.undoes_checkpoints
        self._begun: Trace | None = None  # a trace of the first program that was made on the way to it

    def anew(self) -> Capture:
        """The same with the objects as they are now."""
        return Capture(self.step, self.request, self.host, self.called)

    def with_dims(self, dims: tuple[DynamicDim, ...]) -> Capture:
        """The same for other dims that may vary."""
        other = copy.copy(self)
        other.request = replace(self.request, dims=dims)
        return other

    @property
    def call(self) -> StepCall:
        """What is traced."""
        request = self.request
        return StepCall(self.called, request.args, request.kwargs, self.state, request.dims)

    def trace(
        self, entry: EntryPattern, changing: frozenset[str] = frozenset(), *, plain: bool = False
    ) -> Trace:
        """One trace; see `trace_step`."""
        return trace_step(self.call, entry, changing, plain=plain)

    def program_of(self, trace: Trace, rewrites: Iterable[str] = ()) -> CapturedProgram:
        """A trace as a program; `rewrites` says in words what was changed in it."""
        return read_trace(trace, rewrites, name=self.request.name)

    # -- all programs

    def programs(self) -> Programs:
        """The programs of the step; numbers that were asked to change are inputs as far as that makes no others of them."""
        programs, written = self._programs(frozenset())
        wanted = names_of_one(self.state, self.request.changing) - written
        if not wanted:
            return programs, written
        symbolic = self._with_inputs(wanted, programs)
        if symbolic is None and len(wanted) > 1:
            each = [name for name in sorted(wanted) if self._with_inputs(frozenset({name}), programs)]
            wanted = frozenset(each)
            symbolic = self._with_inputs(wanted, programs) if wanted else None
        return (programs, written) if symbolic is None else (symbolic, wanted | written)

    def first_program(self, changing: frozenset[str]) -> Programs:
        """The program of the first call alone."""
        try:
            return [self._checked(present_pattern(self.state), changing)[0]], changing
        except WrittenNumbersError as error:
            return self.first_program(changing | error.names)

    def _with_inputs(
        self, changing: frozenset[str], concrete: list[CapturedProgram]
    ) -> list[CapturedProgram] | None:
        """The same programs with some numbers as inputs; None where that makes other programs of them."""
        leaves = leaves_of((self.request.args, dict(self.request.kwargs)))
        known = {argument_name(i): leaf for i, leaf in enumerate(leaves)}
        known |= {place.name: place.get() for place in self.state.scalars if place.name in changing}
        known |= {entry.name: entry.content for _, entry in self._groups()}
        numbers = {name: known[name] for name in changing & known.keys()}
        try:
            programs, _ = self._programs(changing)
        except CaptureError:  # the number decides something
            return None
        for symbolic, plain in zip(programs, concrete, strict=False):
            constants = plain.returned.constants
            returned = [slot.key[0] for slot in symbolic.outputs if slot.role == "result"]
            if not all(type(constants[at]) in NUMBER_TYPES for at in returned if at in constants):
                return None  # it would come back as a plain number
            if not is_plain_program(symbolic, numbers, plain):
                return None
        return programs if len(programs) == len(concrete) else None

    def _programs(self, changing: frozenset[str], *, counts: bool = True) -> Programs:
        """The programs of a step from now on until it leaves the gradients and the state that it found.

        Numbers that the step writes itself become inputs beside those in `changing`. Where host code after the program
        clears the gradients, those of the next step are those that this one found. The user's own counts are played
        ahead as well, unless they lead to more programs than there may be; `counts` says whether they are.
        """
        request = self.request
        programs: list[CapturedProgram] = []
        traces: list[Trace] = []
        entry = present_pattern(self.state)
        gradients = entry.gradients
        runs: list[int] = []
        while len(runs) < LOOK_AHEAD:
            index, after = _played(programs, entry)
            if index is None:
                if len(programs) == MAX_PROGRAMS:
                    break
                try:
                    program, trace = self._checked(entry, changing)
                except WrittenNumbersError as error:
                    return self._programs(changing | error.names, counts=counts)
                except (CaptureError, ReadError) as error:
                    if not runs or not counts or not _counts(entry):
                        raise
                    if request.replans and isinstance(error, CaptureError) and not _is_written_once(error):
                        raise LaterCallError(error, len(runs) + 1, entry) from error.__cause__
                    return self._programs(changing, counts=False)
                programs.append(program)
                traces.append(trace)
                index, after = len(programs) - 1, program.exit.numbers
            if not counts:
                after = {key: number for key, number in after.items() if key[0] != "scalar"}
            entry = replace(programs[index].exit, numbers=after)
            if request.clears_gradients:
                entry = replace(entry, gradients=gradients)
            if programs[index].decisions is None and programs[index].accepts(*entry.names()):
                runs += [index] * LOOK_AHEAD
            runs.append(index)
        else:
            if not request.is_known:
                refuse_changes(self.call, traces, changing)
            steady = max(set(runs), key=lambda index: (runs.count(index), index))
            return [p for index, p in enumerate(programs) if index != steady] + [programs[steady]], changing
        if counts and _counts(entry):
            return self._programs(changing, counts=False)
        raise CaptureError(
            "the step never reaches a steady state",
            why=f"after {MAX_PROGRAMS} steps other gradients or optimizer state exist than before, or its step counts "
            "decide otherwise",
            next_step="make each step leave the same gradients and optimizer state after",
        )

    # -- one program

    def _checked(self, entry: EntryPattern, changing: frozenset[str]) -> tuple[CapturedProgram, Trace]:
        """One program and its trace; where the optimizer counts in Python, compared with a trace of plain numbers.

        A symbol is no `int` and no `float`. An optimizer that asks for the type would take another branch, in silence;
        the trace with plain numbers takes the right one.
        """
        trace, rewrites = self._as_eager_branches(entry, changing)
        program = self.program_of(trace, rewrites)
        specs = entry.optimizer_state.values()
        if any(isinstance(spec, PlainSpec) and spec.kind in NUMBER_TYPES for spec in specs) or any(
            setting.name in changing for _, setting in self._groups()
        ):
            plain = self.trace(entry, changing, plain=True)
            restore_causal_attention(plain.recording)
            self._check_types_unasked(program, self.program_of(plain))
        return program, trace

    def _as_eager_branches(self, entry: EntryPattern, changing: frozenset[str]) -> tuple[Trace, list[str]]:
        """A trace that took the branches of eager as far as that can be told, and what was changed in it, in words."""
        begun, trace = self._begun, None
        if begun is not None and not changing and begun.entry == entry:
            trace, self._begun = begun, None
        trace = trace or self.trace(entry, changing)
        rewrites = restore_causal_attention(trace.recording)
        if not rewrites or has_masked_attention(trace.recording):
            rewrites += trace.branches
        if not rewrites or not repeats_grouped_heads(trace.recording):
            return trace, rewrites
        with grouped_heads():
            again = self.trace(entry, changing)
        rewrites_again = restore_causal_attention(again.recording)
        if has_masked_attention(again.recording) or repeats_grouped_heads(again.recording):
            return trace, rewrites
        told = "keys and values of grouped heads are not repeated, as without a mask"
        return again, [*rewrites_again, told]

    def _groups(self) -> Iterator[tuple[str, HyperParameter]]:
        for label, optimizer in self.state.optimizers.items():
            for setting in hyper_parameters(label, optimizer):
                yield label, setting

    # -- numbers that the step counts in

    def _check_types_unasked(self, program: CapturedProgram, plain: CapturedProgram) -> None:
        """Compare a program whose optimizer counts in symbols with its trace of plain numbers. O(size)."""
        contents = {setting.slot_key(label): setting.content for label, setting in self._groups()}
        known: Mapping[tuple[Any, ...], Any] = {**contents, **program.entry.numbers}
        values = program.graph.values
        numbers = {
            slot.name: known.get(slot.key, 1)
            for value, slot in zip(program.graph.inputs, program.inputs, strict=True)
            if slot.key[0] in ("state", "rate") and values[value].is_host_scalar
        }
        if not is_plain_program(program, numbers, plain):
            raise CaptureError(
                "the optimizer treats the numbers that it keeps in Python in another way while it is traced",
                why="it asks for their type, or for more than arithmetic can tell",
                next_step="keep the count in a tensor, as torch's optimizers do",
            )

    def check_counts(self, changing: frozenset[str]) -> None:
        """Compare a step that has numbers of the user's, in which it counts, as symbols with its trace of plain numbers.

        They are inputs and outputs of the program: `self.seen += len(x)` in front of a backward pass, say. Two traces, in
        which the numbers in `changing` are inputs.
        """
        state, counted = self.state, self.state.counted
        if counted != names_of_one(state, counted):
            raise CaptureError(
                f"numbers that the step counts in are called alike ({', '.join(sorted(counted))})",
                next_step="give one of these variables another name",
            )
        numbers = {place.name: place.get() for place in state.scalars if place.name in counted}
        try:
            symbolic, also_written = self._traced_whole(changing)
        except WrittenNumbersError as error:  # it makes numbers of parameter groups of its counts
            return self.check_counts(changing | error.names)
        state.counted = frozenset()
        try:
            plain, writes = self._traced_whole(changing)
        finally:
            state.counted = counted
        after = {**numbers, **{write.name: write.after for write in writes}}
        without = self.program_of(symbolic.without_outputs("number"))
        is_alike = is_plain_program(without, numbers, self.program_of(plain), after)
        if not is_alike or not leaves_numbers(self.program_of(symbolic), numbers, after):
            raise CaptureError(
                f"the step treats numbers that it counts in ({', '.join(sorted(counted))}) in another way while it is traced",
                why="it asks for their type, or for more than arithmetic can tell",
                next_step="keep the count in a tensor, or update it after the last tensor operation",
            )
        if not (also_written or changing or self.request.dims):
            self._begun = symbolic
        return None

    def _traced_whole(self, changing: frozenset[str]) -> tuple[Trace, tuple[Write, ...]]:
        """A trace of the whole step, and what it wrote that is no output of it."""
        try:
            return self.trace(present_pattern(self.state), changing), ()
        except StateWrittenError as refusal:
            if refusal.trace is None:
                raise
            return refusal.trace, tuple(refusal.writes)


def counted_in(refusal: CaptureError) -> frozenset[str]:
    """Names of the numbers that a refused step wrote where numbers were; none where it was refused for something else."""
    told = refusal.refusal if isinstance(refusal, LaterCallError) else refusal
    writes = told.writes if isinstance(told, StateWrittenError) else ()
    return frozenset(write.name for write in writes if write.is_count)


def _counts(entry: EntryPattern) -> bool:
    return any(key[0] == "scalar" for key in entry.numbers)


def _is_written_once(refusal: CaptureError) -> bool:
    """Whether a call is refused for plain data alone that it writes, which it would not be when it comes."""
    return isinstance(refusal, StateWrittenError) and all(
        write.can_be_done and not write.is_count for write in refusal.writes
    )


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
