"""A product that something is added to adds to it itself: `x + a @ b` is one operation.

Gradients meet in sums: those of three projections of one activation, of the two branches of a gated unit, of both ends of a
residual. Eager makes each product, then the sum, so that three tensors of one size are there at once. A product that is
told what to add to makes one, or none where it may overwrite what it adds to, and the pass over memory of the sum goes. It
is the rule of distributivity `a @ b + c @ d = [a c] @ [b; d]` without the concatenations (A-trans of MAGIS, Chen et al.,
ASPLOS 2024, after TASO, Jia et al., SOSP 2019). Only products that nothing else uses, in the place where they are: bytes never
grow in program order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neaptide.analysis.alias import is_pure_view, view_base
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.values import Value
from neaptide.ops.aten.dialect import ADD, PRODUCTS, VIEW
from neaptide.ops.dialect import Inserted, operands_of
from neaptide.transform.drafting import Drafting
from neaptide.transform.fission.split import plain_size
from neaptide.transform.node_rule import Uses, is_row_major, node_rule, operand_at, used_once


@dataclass(frozen=True, slots=True)
class _Place:
    """What becomes of a sum.

    Attributes:
        views: nodes that lead from it to the sum, and from the addend, which go: nothing else uses them.
        addend: value that it adds to; it shows all its elements in their order.
    """

    product: Node
    views: tuple[int, ...]
    addend: int
    onto: bool


class _Places:
    """Which sums of a graph may go into a product. O(size of the graph) to make."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.uses = graph, Uses(graph)
        self.users, self.outputs = graph.consumers(), set(graph.outputs)
        self.is_used_once = used_once(graph)

    def of(self, node: Node) -> _Place | str | None:
        """What becomes of a node; why nothing; None where it is no sum of a product."""
        if node.op != ADD or node.kwarg("alpha", 1) != 1 or len(node.args) != 2 or not node.effects.is_pure:
            return None
        first, second = operand_at(node, 0), operand_at(node, 1)
        if first is None or second is None or first == second:
            return None
        reasons = []
        for added, other in ((second, first), (first, second)):
            place = self._place(node, added, other)
            if isinstance(place, _Place):
                return place
            reasons.append(place)
        return next((reason for reason in reasons if reason is not None), None)

    def _place(self, node: Node, added: int, other: int) -> _Place | str | None:
        """With one operand as the product and the other as what it adds to."""
        values = self.graph.values
        product, views = self._product(added)
        if product is None:
            return None
        result, made, addend = values[node.outputs[0]], values[product.outputs[0]], self._base(other)
        if not all(map(is_row_major, (result, made, addend))):
            return None
        if not (result.shape == values[added].shape == values[other].shape):
            return None
        if not (result.dtype == made.dtype == addend.dtype):
            return None
        chain = (product.outputs[0], *(self.graph.nodes[view].outputs[0] for view in views))
        if not all(map(self.is_used_once, chain)):
            return "the product is used elsewhere"
        producer = self.graph.producer(addend.id)
        if producer is not None and producer > product.id:
            return "what it is added to is made after the product"
        if self.uses.written_between(addend.storage, product.id, node.id):
            return "what it is added to is written into before the sum"
        idle = (*views, *self._idle(node.id, other, addend.id))
        return _Place(product, idle, addend.id, self._may_go(node, product, addend))

    def _idle(self, user: int, value: int, base: int) -> Iterator[int]:
        """Views between a value and the one that it is a view of, as far as one node alone uses them, the last first."""
        while value != base and set(self.users[value]) == {user} and value not in self.outputs:
            producer = self.graph.producer(value)
            assert producer is not None
            yield producer
            user, value = producer, self.graph.nodes[producer].inputs[0]

    def _may_go(self, node: Node, product: Node, addend: Value) -> bool:
        """Whether nothing needs an addend after the product."""
        assert addend.storage is not None
        storage = self.graph.storages[addend.storage]
        if storage.id in self.uses.given | self.uses.handed_back or storage.nbytes != addend.nbytes:
            return False
        if storage.id in {self.graph.values[value].storage for value in product.inputs}:
            return False
        behind = [user for user in self.uses.needed[storage.id] if user > product.id]
        return all(
            user == node.id or is_pure_view(self.graph, self.graph.nodes[user]) for user in behind
        ) and all(user <= node.id for user in behind)

    def _product(self, value: int) -> tuple[Node | None, tuple[int, ...]]:
        """The product that a value shows all of, and the views between, the last one first."""
        views: list[int] = []
        while (producer := self.graph.producer(value)) is not None:
            node = self.graph.nodes[producer]
            if node.op in PRODUCTS and node.effects.is_pure:
                return node, tuple(views)
            if (
                not is_pure_view(self.graph, node)
                or len(node.inputs) != 1
                or not is_row_major(self.graph.values[value])
            ):
                break
            views.append(producer)
            value = node.inputs[0]
        return None, ()

    def _base(self, value: int) -> Value:
        """What a value is a view of, where that has the same elements in the same order; else the value."""
        shown, base = self.graph.values[value], self.graph.values[view_base(self.graph, value)]
        alike = is_row_major(base) and base.numel == shown.numel and base.dtype == shown.dtype
        return base if alike and base.offset == shown.offset else shown


def _put(drafting: Drafting, node: Node, place: _Place) -> None:
    """Put one sum into its product."""
    graph, product, out = drafting.graph, place.product, node.outputs[0]
    made, total, addend = graph.values[product.outputs[0]], graph.values[out], place.addend
    if drafting.shape(addend) != made.shape:
        name = f"{graph.values[addend].name}_addend"
        addend = drafting.insert(product.id, _shaped(made), (addend,), made.shape, name)
    is_shaped = total.shape == made.shape
    if not is_shaped:
        out = drafting.fresh(made.shape, made.dtype, f"{total.name}_whole", like=node)
    form = PRODUCTS[product.op]
    call = Inserted(form.onto, is_onto=True) if place.onto else Inserted(form.op)
    drafting.replace(product.id, call, (addend, *operands_of(product)), (out,))
    for view in place.views:
        drafting.edit.remove(view)
    if is_shaped:
        drafting.edit.remove(node.id)
    else:
        drafting.replace(node.id, _shaped(total), (out,))


def _shaped(like: Value) -> Inserted:
    return Inserted(VIEW, args=(tuple(map(plain_size, like.shape)),), is_view=True)


ACCUMULATE_IN_GEMM = node_rule(
    name="accumulate_in_gemm",
    summary="sums are accumulated in GEMM",
    pattern=lambda graph, _: _Places(graph).of,
    change=_put,
    cannot=("go into a product", "it adds no product of its own layout"),
    keeps_bits=False,
)
