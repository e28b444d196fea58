"""The judge of in-place choices: plays the schedule on places and watches what lies there. Shares no code with the search."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from neaptide.errors import VerifyError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule, Step


@dataclass(slots=True, eq=False)
class _Place:
    """Bytes, and who wrote them last: a storage of the caller, or one execution of a node."""

    owner: object


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a variable stands for: a place, and the owner that it expects there."""

    place: _Place
    owner: object


def check_in_place(
    graph: Graph,
    schedule: Schedule,
    choices: Iterable[tuple[Step, int, int]],
    *,
    donated: Collection[int] = (),
) -> None:
    """Make sure that no step, and not the caller, finds overwritten bytes. O(size of the schedule).

    It holds for any schedule of the graph, so also for one other than the choices were made for.

    Args:
        choices: (step, result, operand) of every result that is written on top of an operand.

    Raises:
        VerifyError: names the value whose bytes are gone and the step that needs them, or a choice that cannot be
            meant.
    """
    wanted = {(step.target, step.occurrence): (output, operand) for step, output, operand in choices}
    variables: dict[int, _Seen] = {}
    callers = {storage: _Place(storage) for storage in graph.input_storages()}
    for value in graph.inputs:
        storage = graph.values[value].storage
        if storage is not None:
            variables[value] = _Seen(callers[storage], storage)
    for step in schedule.node_steps():
        node = graph.nodes[step.target]
        for value in needed_inputs(graph, node):
            if graph.values[value].storage is not None:
                _expect(graph, variables[value], value, f"node {node.id} ({node.op})")
        chosen = wanted.pop((step.target, step.occurrence), None)
        _run(graph, node, variables, chosen)
    for target, occurrence in wanted:
        raise VerifyError(f"a choice is for node {target}, occurrence {occurrence}, which never runs")
    for value in graph.outputs:
        if value in variables:
            _expect(graph, variables[value], value, "the caller")
    given_up = {graph.values[v].storage for v in donated}
    for storage, place in callers.items():
        if place.owner != storage and storage not in given_up:
            raise VerifyError(f"{graph.storages[storage].name or storage} is the caller's and is overwritten")


def _run(graph: Graph, node: Node, variables: dict[int, _Seen], chosen: tuple[int, int] | None) -> None:
    fresh: dict[int, _Seen] = {}
    for storage in graph.created_storages(node):
        owner = object()
        fresh[storage] = _Seen(_Place(owner), owner)
    if chosen is not None:
        output, operand = chosen
        made, over = graph.values[output], graph.values[operand]
        if made.storage not in fresh or operand not in node.inputs:
            raise VerifyError(f"node {node.id} does not make {made.name} anew out of {over.name}")
        if (made.dtype, made.shape, made.strides, made.offset) != (
            over.dtype,
            over.shape,
            over.strides,
            over.offset,
        ):
            raise VerifyError(f"{made.name} does not lie exactly on {over.name}")
        place = variables[operand].place
        place.owner = fresh[made.storage].owner
        fresh[made.storage] = _Seen(place, place.owner)
    for value in node.outputs:
        seen = graph.values[value].storage
        if seen is not None:
            operand = next((v for v in node.inputs if graph.values[v].storage == seen), value)
            variables[value] = fresh[seen] if seen in fresh else variables[operand]


def _expect(graph: Graph, seen: _Seen, value: int, who: str) -> None:
    if seen.place.owner != seen.owner:
        raise VerifyError(f"{who} needs {graph.values[value].name}, whose bytes have been overwritten")
