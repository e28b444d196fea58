"""The calls of a program in their order."""

from __future__ import annotations

from neaptide.errors import LoweringError
from neaptide.ir.nodes import Node, operand_values
from neaptide.lower.c.code import Code
from neaptide.lower.c.memory import Arena
from neaptide.lower.c.operators.rows import row_of
from neaptide.lower.c.program import Program, result_values
from neaptide.lower.c.sharing import Sharing, Views


def write_calls(code: Code, program: Program, sharing: Sharing, arena: Arena, views: Views) -> None:
    """Write all calls, and where the checked build marks births and deaths."""
    births: dict[int, list[int]] = {}
    deaths: dict[int, list[int]] = {}
    for root in sharing.roots():
        if root not in program.given:
            births.setdefault(sharing.start[root], []).append(root)
        deaths.setdefault(sharing.end[root] - 1, []).append(root)  # what is kept dies after the last node

    def mark(macro: str, root: int) -> None:
        if arena.nbytes[root]:
            code.call(macro, arena.places[root].text, str(arena.nbytes[root]))

    for position, number in enumerate(program.order):
        for root in births.get(position, ()):
            mark("NT_BORN", root)
        _write_node(code, program, views, program.graph.nodes[number])
        for root in deaths.get(position, ()):
            mark("NT_DEAD", root)


def _write_node(code: Code, program: Program, views: Views, node: Node) -> None:
    row = row_of(node)
    assert row is not None
    _comment(code, program, node)
    shown = {program.graph.values[value].storage for value in node.inputs}
    if node.outputs and program.graph.values[node.outputs[0]].storage in shown:
        if len(node.outputs) > 1:
            raise LoweringError(f"{node.op} has further results beside a view", next_step="drop its mask")
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
