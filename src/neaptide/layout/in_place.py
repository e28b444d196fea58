"""Results in the bytes of operands under a schedule: which may, their checker, and the layout problem in which both have one buffer.

An operand is checked by storage instance, not by storage: a recomputed one is another instance. Views count through the
instance that they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from neaptide.analysis.in_place import in_place_operands
from neaptide.analysis.liveness import Liveness, compute_liveness
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import VerifyError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, Step
from neaptide.layout.from_schedule import OUTSIDE, ScheduleBuffers
from neaptide.layout.problem import Buffer, LayoutProblem


@dataclass(frozen=True, slots=True)
class InPlaceChoice:
    """A result that is written on top of an operand."""

    step: Step
    output: int
    operand: int
    made: int  # index in `Liveness.instances` of the storage instance that holds the result
    taken: int  # index of the instance whose bytes it takes


def choose_in_place(
    graph: Graph,
    schedule: Schedule,
    registry: OpRegistry,
    *,
    storage_bytes: Mapping[int, int] | None = None,
) -> tuple[InPlaceChoice, ...]:
    """Every result that may live in an operand's bytes does, in the order of their steps. O(size of the schedule).

    An instance has its last use at one step only, so that two results never compete for one. The first operand that will
    do is taken. What the caller owns or is handed is left alone.
    """
    sizes = evaluate_storage_bytes(graph, None, storage_bytes)
    liveness = compute_liveness(graph, schedule)
    uses = instance_uses(graph, liveness)
    kept = {*uses.handed_back, *(i for i, owned in enumerate(liveness.instances) if owned.is_persistent)}
    choices = []
    for position, step in enumerate(liveness.steps):
        node, seen = graph.nodes[step.target], uses.seen[position]
        for operand in in_place_operands(graph, node, registry, sizes):
            made, taken = seen[node.outputs[0]], seen[operand]
            if uses.last[taken] == position and kept.isdisjoint((made, taken)):
                choices.append(InPlaceChoice(step, node.outputs[0], operand, made, taken))
                break
    check_in_place(graph, schedule, [(c.step, c.output, c.operand) for c in choices])
    return tuple(choices)


@dataclass(frozen=True, slots=True)
class InstanceUses:
    """Who uses which storage instance."""

    # By position, the instance of each value that the step needs or makes; host scalars have none.
    seen: tuple[Mapping[int, int], ...]
    # By instance, the position of the last step that makes, needs, overwrites or shows it; -1 for none.
    last: tuple[int, ...]
    handed_back: frozenset[int]


def instance_uses(graph: Graph, liveness: Liveness) -> InstanceUses:
    """Follow the bindings of a schedule. O(total inputs and outputs of its steps)."""
    bindings = iter(liveness.bindings)
    current = {value: next(bindings).instance for value in graph.inputs}
    seen: list[dict[int, int]] = []
    last = [-1] * len(liveness.instances)
    for position, step in enumerate(liveness.steps):
        node = graph.nodes[step.target]
        here = {value: current[value] for value in needed_inputs(graph, node)}
        for value in node.outputs:
            current[value] = here[value] = next(bindings).instance
        seen.append({value: instance for value, instance in here.items() if instance is not None})
        for instance in seen[-1].values():
            last[instance] = position
    return InstanceUses(tuple(seen), tuple(last), liveness.handed_back(graph))


def share(buffers: ScheduleBuffers, choices: Iterable[InPlaceChoice]) -> ScheduleBuffers:
    """The layout problem in which chosen results have the buffers of their operands. O(buffers + choices).

    A shared buffer has the name and the kind of the first of its instances, the largest size and alignment, and lives
    from the first to the end of the last.

    Raises:
        VerifyError: a choice whose instances do not meet in time, or that would put a buffer of the arena and bytes
            outside in one place.
    """
    members = list(buffers.problem.buffers)
    place = list(buffers.buffer_of)
    head = list(range(len(members)))
    for choice in sorted(choices, key=lambda c: c.made):
        over, under = place[choice.made], place[choice.taken]
        if over == under == OUTSIDE:
            continue
        made, taken = (buffers.liveness.instances[i].storage for i in (choice.made, choice.taken))
        what = f"storage {made} in the bytes of storage {taken}"
        if OUTSIDE in {over, under}:
            raise VerifyError(f"{what}: one of them is in the arena, the other is not")
        members[under] = _merged(members[under], members[over], what)
        head[over] = place[choice.made] = under
    kept = [index for index, first in enumerate(head) if first == index]
    number = {old: new for new, old in enumerate(kept)} | {OUTSIDE: OUTSIDE}
    return replace(
        buffers,
        problem=LayoutProblem(tuple(members[index] for index in kept), buffers.problem.name),
        buffer_of=tuple(number[index] for index in place),
    )


def _merged(first: Buffer, second: Buffer, what: str) -> Buffer:
    if not first.start <= second.start < first.end:
        raise VerifyError(
            f"{what}: the result begins at {second.start}, the operand's bytes end at {first.end}"
        )
    if first.gaps or second.gaps or first.offset is not None or second.offset is not None:
        raise VerifyError(f"{what}: buffers with gaps or fixed places are not shared")
    return replace(
        first,
        end=max(first.end, second.end),
        nbytes=max(first.nbytes, second.nbytes),
        alignment=max(first.alignment, second.alignment),
    )


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
    for storage, place in callers.items():
        if place.owner != storage:
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
