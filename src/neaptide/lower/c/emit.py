"""The calls of a program in their order; a loop is a `for` loop over trips, whose parts are views that move with the trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neaptide.analysis.loops import trips
from neaptide.ir.nodes import Node
from neaptide.lower.c.code import Code
from neaptide.lower.c.elementwise_ops import fill
from neaptide.lower.c.memory import Arena
from neaptide.lower.c.node_call import NodeCall
from neaptide.lower.c.rows import row_of
from neaptide.lower.c.sharing import Program, Sharing, Views, operand_values, result_values
from neaptide.lower.c.views import Place, View


@dataclass(frozen=True, slots=True)
class Scope:
    """A program with its places: the whole one, or the body of a loop in some trip.

    Attributes:
        bases: the begin of each memory; in the body of a loop, the begin of the body's own arena.
    """

    program: Program
    sharing: Sharing
    arena: Arena
    bases: tuple[Place, ...]
    views: Views
    depth: int = 0


def scope_of(
    program: Program,
    sharing: Sharing,
    arena: Arena,
    bases: tuple[Place, ...],
    given: Mapping[int, View],
    depth: int = 0,
) -> Scope:
    """`given`: where values outside the arena lie."""
    places = {s: bases[memory].moved(offset) for s, (memory, offset) in arena.offsets.items()}
    return Scope(program, sharing, arena, bases, Views(sharing, program, given, places), depth)


def write_calls(code: Code, scope: Scope) -> None:
    """Write all calls, and where the checked build marks births and deaths."""
    sharing, program = scope.sharing, scope.program
    births: dict[int, list[int]] = {}
    deaths: dict[int, list[int]] = {}
    for root in sharing.roots():
        if root not in program.given:
            births.setdefault(sharing.start[root], []).append(root)
        deaths.setdefault(sharing.end[root] - 1, []).append(root)  # what is kept dies after the last node
    for position, number in enumerate(program.order):
        for root in births.get(position, ()):
            _mark(code, "NT_BORN", scope, root)
        node = program.graph.nodes[number]
        if node.regions:
            _write_loop(code, scope, node)
        else:
            _write_node(code, scope, node)
        for root in deaths.get(position, ()):
            _mark(code, "NT_DEAD", scope, root)


def _mark(code: Code, macro: str, scope: Scope, root: int) -> None:
    memory, offset = scope.arena.offsets[root]
    if scope.arena.nbytes[root]:
        code.call(macro, scope.bases[memory].moved(offset).text, str(scope.arena.nbytes[root]))


def _write_node(code: Code, scope: Scope, node: Node) -> None:
    program, views = scope.program, scope.views
    row = row_of(node)
    assert row is not None
    _comment(code, program, node)
    shown = {program.graph.values[value].storage for value in node.inputs}
    if node.outputs and program.graph.values[node.outputs[0]].storage in shown:
        return
    operands = [None if v is None else views[v] for v in operand_values(node)]
    results = [None if v is None else views[v] for v in result_values(node)]
    call = program.call(node, code, operands, results)
    if row.dense and not all(view is None or view.is_dense for view in (*operands, *results)):
        raise call.refusal("has an operand with holes", "its kernel takes row-major tensors")
    try:
        row.emit(call)
    except KeyError as error:
        raise call.refusal(f"has a setting that is not known here: {error}") from error


def _comment(code: Code, program: Program, node: Node) -> None:
    names = ", ".join(program.graph.values[value].name for value in node.outputs)
    code.line(f"/* {node.op.split('.')[1]}{' -> ' if names else ''}{names} */")


def _write_loop(code: Code, scope: Scope, node: Node) -> None:
    """Trips of the same sizes are one `for` loop; a shorter last one follows by itself."""
    program, loop = scope.program, node.regions[0]
    body = scope.arena.bodies[node.id]
    memory, offset = scope.arena.body_offsets[node.id]
    bases = (scope.bases[memory].moved(offset),)
    _comment(code, program, node)
    for merge in loop.merges:
        if merge.how == "sum":
            nothing = NodeCall(code, "Loop", 0, (), (), {}, ())
            fill(nothing, 0, scope.views[node.outputs[merge.output]])
    variable, first = f"trip{scope.depth}", 0
    for count, binding in trips(program.graph, node, loop, program.binding):
        inside = replace(body.program, binding={**program.binding, **binding})
        trip = variable if count > 1 else first
        given = _handed(scope, node, body.program, inside, trip)
        if count > 1:
            code.line(f"for (int32_t {variable} = 0; {variable} < {count}; {variable}++) {{")
        code.indent += count > 1
        write_calls(
            code, scope_of(inside, body.sharing, body.arena, bases, given, scope.depth + 1)
        )
        code.indent -= count > 1
        if count > 1:
            code.line("}")
        first += count


def _handed(
    scope: Scope, node: Node, full: Program, inside: Program, trip: str | int
) -> dict[int, View]:
    """Where the inputs of a body lie in a trip; its number is a variable of the program or a constant."""
    loop, views = node.regions[0], scope.views
    body = loop.body
    sliced = {part.input: part for part in loop.slices}
    given = {}
    for position, outer in enumerate(node.inputs):
        inner = body.inputs[position]
        view = views[outer]
        if position in sliced:
            part = sliced[position]
            step = part.step.evaluate(scope.program.binding)
            length = inside.dims(body.values[inner])[part.axis]
            view = _moving(view, part.axis, step, length, trip)
        given[inner] = view
    for merge, inner in zip(loop.merges, loop.destinations(), strict=True):
        view = views[node.outputs[merge.output]]
        if merge.how == "concat":
            step = full.dims(body.values[inner])[merge.axis]
            length = inside.dims(body.values[inner])[merge.axis]
            view = _moving(view, merge.axis, step, length, trip)
        given[inner] = view
    return given


def _moving(view: View, axis: int, step: int, length: int, trip: str | int) -> View:
    """The part of a tensor that belongs to a trip."""
    if isinstance(trip, int):
        return view.part(axis, trip * step, length)
    part = view.part(axis, 0, length)
    nbytes = step * view.strides[axis] * view.item_bytes
    place = replace(part.place, trips=(*part.place.trips, (trip, nbytes)))
    return replace(part, place=place)
