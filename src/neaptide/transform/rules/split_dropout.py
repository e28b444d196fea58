"""A dropout that draws its mask and applies it in one operation draws the mask first, by an operation of its own.

What draws random numbers does not run in parts: the parts would draw others. Drawn apart, the mask is whole and is there before
the region begins; applying it works element by element, runs in parts, and may run again. The same numbers come from the
same state of the generator, which is left in the same state. Only on the CPU: on other devices one kernel for both draws other
numbers than a kernel that only draws.
"""

from __future__ import annotations

from neaptide.ir.edits.edit import NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Named, Node, Ref
from neaptide.ops.dropouts import APPLY_MASK, DRAW, FUSED_DROPOUT, MASK_DTYPE, UNFILLED_LIKE, kept_factor
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.drafting import Drafting
from neaptide.transform.node_rule import alias_like, fresh_like, node_rule

_CPU = "cpu"
_NOTHING = SizeExpr.const(0)


_Place = tuple[float, float]
"""The chance of a dropout that can draw first, and the factor of what stays, in the dtype of the operand."""


def _place(graph: Graph, node: Node) -> _Place | str | None:
    """The chance and the factor of a dropout; why it stays in one; None where it is none, or draws nothing."""
    if node.op != FUSED_DROPOUT or node.effects.rng is None:
        return None
    if node.kwargs or node.results is not None or len(node.outputs) != len(("result", "mask")):
        return "it is called in a way of its own"
    chance = node.args[1]
    operand, mask = graph.values[node.inputs[0]], graph.values[node.outputs[1]]
    if isinstance(chance, bool) or not isinstance(chance, int | float):
        return "its chance is known only when it runs"
    if operand.storage is None or graph.storages[operand.storage].device != _CPU:
        return "on its device a kernel that only draws gives other numbers"
    if _NOTHING in operand.shape or mask.dtype != MASK_DTYPE:
        return "it has no elements"
    factor = kept_factor(float(chance), operand.dtype)
    return f"its factor is no number of {operand.dtype}" if factor is None else (float(chance), factor)


def _draw_first(drafting: Drafting, node: Node, place: _Place) -> None:
    edit, graph = drafting.edit, drafting.graph
    operand, (result, number) = node.inputs[0], node.outputs
    chance, factor = place
    mask = graph.values[number]
    unfilled = fresh_like(edit, graph, number, f"{mask.name}_unfilled")
    drawn = alias_like(edit, mask, unfilled)
    dtype = (("dtype", Named("dtype", MASK_DTYPE)),)
    edit.insert_before(
        node.id,
        NodeDraft(UNFILLED_LIKE, (operand,), (unfilled,), (Ref(0),), dtype, reads=(), source=node.source),
    )
    edit.insert_before(
        node.id,
        NodeDraft(
            DRAW,
            (unfilled,),
            (drawn,),
            (Ref(0), 1.0 - chance),
            writes=(unfilled,),
            rng=node.effects.rng,
            source=node.source,
        ),
    )
    edit.replace_uses(number, drawn)
    arguments = (Ref(0), Ref(1), factor)
    edit.replace_node(
        node.id, NodeDraft(APPLY_MASK, (operand, drawn), (result,), arguments, source=node.source)
    )


SPLIT_DROPOUT = node_rule(
    name="split_dropout",
    summary="masks of dropout are sampled before they are applied",
    pattern=lambda graph, _: lambda node: _place(graph, node),
    change=_draw_first,
    cannot=("draw first", "it draws no mask that it applies"),
)
