"""Python numbers that the user counts in within the step: `self.seen += len(x)` in front of a backward pass, say.

They are inputs and outputs of the program, as those that an optimizer counts in (`counted_state`). A symbol is no `int`
and no `float`, so the trace with symbols is compared with one of plain numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from neaptide.errors import CaptureError
from neaptide.frontends.programs.same_program import folded_outputs, is_same_but_for_numbers
from neaptide.frontends.programs.step_programs import LaterCallError, StepRequest, program_of
from neaptide.frontends.state.step_slots import NUMBER_TYPES, Trace, present_pattern
from neaptide.frontends.state.step_state import StepState, names_of_one
from neaptide.frontends.trace.step_trace import trace_step
from neaptide.frontends.watch.optimizer_twins import WrittenNumbersError
from neaptide.frontends.watch.trace_watch import StateWrittenError, Write


def counted_in(refusal: CaptureError) -> frozenset[str]:
    """Names of the numbers that a refused step wrote where numbers were; none where it was refused for something else."""
    told = refusal.refusal if isinstance(refusal, LaterCallError) else refusal
    writes = told.writes if isinstance(told, StateWrittenError) else ()
    return frozenset(write.name for write in writes if write.is_count)


def check_counted(called: Callable[..., Any], request: StepRequest, found: StepState) -> list[Trace]:
    """Compare a step that has such numbers as symbols with its trace of plain numbers. Two traces.

    Returns:
        The trace with symbols, where it is one of the first program.

    Raises:
        CaptureError: they are two programs.
    """
    counted = found.counted
    if counted != names_of_one(found, counted):
        raise CaptureError(
            f"numbers that the step counts in are called alike ({', '.join(sorted(counted))})",
            next_step="give one of these variables another name",
        )
    numbers = {place.name: place.get() for place in found.scalars if place.name in counted}
    try:
        symbolic, also_written = _traced(called, request, found)
    except WrittenNumbersError as error:  # it makes numbers of parameter groups of its counts
        return check_counted(called, replace(request, changing=request.changing | error.names), found)
    found.counted = frozenset()
    try:
        plain, writes = _traced(called, request, found)
    finally:
        found.counted = counted
    program = program_of(symbolic, [], request.name)
    by_value = {
        program.graph.values[value].name: numbers[slot.name]
        for value, slot in zip(program.graph.inputs, program.inputs, strict=True)
        if slot.key[0] == "scalar" and slot.name in numbers
    }
    after = {**numbers, **{write.name: write.after for write in writes}}
    outputs = zip(program.outputs, folded_outputs(program.graph, by_value), strict=True)
    is_same = all(
        token == ("number", after[slot.name])
        for slot, token in outputs
        if slot.role == "number" and type(after.get(slot.name)) in NUMBER_TYPES
    )
    is_same &= all(
        after.get(slot.name, plain.written.get(slot)) == content for slot, content in symbolic.written.items()
    )
    without = _without_numbers(symbolic)
    fixed: dict[Any, Any] = {
        **plain.written,
        **{("result", at): content for at, content in plain.constants.items()},
    }
    keys: list[Any] = [slot if slot in fixed else (slot.role, *slot.key) for slot in without.outputs]
    written = {at: fixed[key] for at, key in enumerate(keys) if key in fixed}
    graph = program_of(without, [], request.name).graph
    if not is_same or not is_same_but_for_numbers(
        graph, by_value, program_of(plain, [], request.name).graph, written
    ):
        raise CaptureError(
            f"the step treats numbers that it counts in ({', '.join(sorted(counted))}) in another way while it is traced",
            why="it asks for their type, or for more than arithmetic can tell",
            next_step="keep the count in a tensor, or update it behind the last tensor operation",
        )
    return [] if also_written or request.changing or request.dims else [symbolic]


def _traced(
    called: Callable[..., Any], request: StepRequest, found: StepState
) -> tuple[Trace, tuple[Write, ...]]:
    """A trace of the whole step, and what it wrote that is no output of it."""
    try:
        entry = present_pattern(found)
        trace = trace_step(
            called, request.args, request.kwargs, found, entry, request.changing, dims=request.dims
        )
    except StateWrittenError as refusal:
        if refusal.trace is None:
            raise
        return refusal.trace, tuple(refusal.writes)
    return trace, ()


def _without_numbers(trace: Trace) -> Trace:
    """A trace without the numbers that it writes: they are its last outputs where it leaves no tensors."""
    recording = copy.copy(trace.recording)
    output = copy.copy(recording.records[-1])
    kept = [k for k, slot in enumerate(trace.outputs) if slot.role != "number"]
    output.args = tuple(output.args[k] for k in kept)
    recording.records = [*recording.records[:-1], output]
    return replace(trace, recording=recording, outputs=tuple(trace.outputs[k] for k in kept))
