"""Python numbers that an optimizer counts in: whether a program that has them as symbols is the one of plain numbers.

A symbol is no `int` and no `float`. An optimizer that asks for the type would take another branch, in silence; the
trace with plain numbers takes the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from neaptide.errors import CaptureError
from neaptide.frontends.programs.same_program import is_same_but_for_numbers
from neaptide.frontends.state.step_slots import NUMBER_TYPES, EntryPattern, PlainSpec, hyper_parameters
from neaptide.frontends.state.step_state import StepState

if TYPE_CHECKING:
    from neaptide.frontends.programs.captured import CapturedProgram


def counts_in_python(entry: EntryPattern, changing: frozenset[str], state: StepState) -> bool:
    """Whether numbers of the optimizers' state or groups are symbols that the step itself may write."""
    specs = entry.optimizer_state.values()
    if any(isinstance(spec, PlainSpec) and spec.kind in NUMBER_TYPES for spec in specs):
        return True
    return any(entry.name in changing for _, entry in _groups(state))


def check_types_unasked(program: CapturedProgram, plain: CapturedProgram, state: StepState) -> None:
    """Compare a program that has such numbers as symbols with its trace of plain numbers. O(size).

    Raises:
        CaptureError: they are two programs.
    """
    contents = {entry.slot_key(label): entry.content for label, entry in _groups(state)}
    known: Mapping[tuple[Any, ...], Any] = {**contents, **program.entry.numbers}
    graph = program.graph
    numbers = {
        graph.values[value].name: known.get(slot.key, 1)
        for value, slot in zip(graph.inputs, program.inputs, strict=True)
        if slot.key[0] in ("state", "rate") and graph.values[value].is_host_scalar
    }
    written = {k: plain.written[slot] for k, slot in enumerate(program.outputs) if slot in plain.written}
    agree = all(plain.written.get(slot, content) == content for slot, content in program.written.items())
    if not agree or not is_same_but_for_numbers(graph, numbers, plain.graph, written):
        raise CaptureError(
            "the optimizer treats the numbers that it keeps in Python in another way while it is traced",
            why="it asks for their type, or for more than arithmetic can tell",
            next_step="keep the count in a tensor, as torch's optimizers do",
        )


def _groups(state: StepState) -> Iterator[tuple[str, Any]]:
    for label, optimizer in state.optimizers.items():
        for entry in hyper_parameters(label, optimizer):
            yield label, entry
