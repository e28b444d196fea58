"""Results on top of operands: an operation overwrites an operand that nobody needs any more.

Eager makes a result beside each operand and lets the operand go after it, so that both are there at once. At the peak of
a training step that is often the gradient of an activation. Kernels that read every element before they write it give the
same bits on top of the operand; which ones do is in the op table (`ops.in_place`).
In program order nothing after such a node needs the operand, and the graph itself made it. Bytes never grow.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.analysis.in_place import in_place_operands
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ops.in_place import InPlaceForm, in_place_form
from neaptide.transform.drafting import Drafting
from neaptide.transform.node_rule import Uses, node_rule, operand_at

_Place = tuple[int, InPlaceForm]
"""An operand, by value id, that a node may overwrite, and how."""


class _Places:
    """Which nodes of a graph may overwrite an operand. O(size of the graph) to make."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.graph, self.registry, self.uses = graph, registry, Uses(graph)
        self.sizes = [storage.nbytes for storage in graph.storages]

    def of(self, node: Node) -> _Place | str | None:
        """The operand that a node may overwrite; why none; None where its kernel or layout leave no choice."""
        reasons = []
        for operand in in_place_operands(self.graph, node, self.registry, self.sizes):
            form = self._form(node, operand)
            storage = self.graph.values[operand].storage
            if form is None or storage is None:
                continue
            if storage in self.uses.given:
                reasons.append("the operand is the caller's")
            elif storage in self.uses.handed_back:
                reasons.append("the operand is handed back")
            elif self.uses.needed[storage][-1] != node.id:
                reasons.append("the operand is needed later")
            else:
                return operand, form
        return reasons[0] if reasons else None

    def _form(self, node: Node, operand: int) -> InPlaceForm | None:
        forms = (
            in_place_form(self.registry, node.op, position)
            for position in self.registry.require(node.op).in_place
            if operand_at(node, position) == operand
        )
        return next((form for form in forms if form is not None), None)


def _overwrite(drafting: Drafting, node: Node, place: _Place) -> None:
    edit = drafting.edit
    (operand, form), draft = place, edit.draft(node.id)
    kwargs = draft.kwargs
    if form.keyword:
        kwargs = tuple(sorted((*kwargs, (form.keyword, Ref(node.inputs.index(operand))))))
    edit.replace_node(node.id, replace(draft, op=form.op, kwargs=kwargs, writes=(operand,)))
    edit.place_on(node.outputs[0], operand)


IN_PLACE = node_rule(
    name="in_place",
    summary="results are computed in place",
    pattern=lambda graph, registry: _Places(graph, registry).of,
    change=_overwrite,
    cannot=("work in place", "its kernel overwrites no operand of that layout"),
)
