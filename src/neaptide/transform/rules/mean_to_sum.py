"""Means are taken as sums and divided: the mean of parts is no mean of the whole where parts are unequal.

A loss that is averaged over the tokens that count becomes the sum over them and a division by their number, which follows
from the labels alone. The sum may then be taken in parts. (Normalisers split exactly; fission of MAGIS, Chen et al.,
ASPLOS 2024, has no rule for them.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Named, Node, Ref
from neaptide.ir.registry import Call
from neaptide.ir.values import Value
from neaptide.ops.means import (
    DIVIDE,
    DIVIDE_BY_NUMBER,
    FILL_WHERE,
    IS,
    IS_NOT,
    MEAN_LOSS_GRADIENTS,
    MEAN_LOSSES,
    MEANS,
    SELECT,
    SUM,
    SUM_OF_ALL,
    MeanLoss,
)
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.drafting import Drafting
from neaptide.transform.fission.split import is_dense, plain_size
from neaptide.transform.node_rule import node_rule
from neaptide.transform.rewrite import Rewrite, refused

_ZERO = SizeExpr.const(0)


@dataclass(frozen=True)
class _Replacing:
    """One node on its way."""

    edit: GraphEdit
    graph: Graph
    node: Node

    def mean(self) -> None:
        operand, result = self._operand(0), self.graph.values[self.node.outputs[0]]
        elements, results = _elements(operand.shape), _elements(result.shape)
        count = elements // results if results != _ZERO else elements
        if count * results != elements:
            raise RewriteError("the number of elements of a mean does not follow from its shapes")
        self._sum_and_divide(MEANS[self.node.op], self.node.args, plain_size(count))

    def loss(self, loss: MeanLoss) -> None:
        args = self._with_sum(loss)
        if loss.target is None:
            self._sum_and_divide(self.node.op, args, plain_size(_elements(self._operand(0).shape)))
            return
        total = self._weight_of_targets(loss)
        self.edit.replace_uses(self.node.outputs[1], total)
        self._sum_and_divide(self.node.op, args, total, is_value=True)

    def gradient(self, loss: MeanLoss) -> None:
        """The gradient of a mean is that of a sum, from a gradient that is divided first."""
        node, operand = self.node, self._operand(1)
        arriving = self._operand(0)
        divided = self._like(arriving, f"{arriving.name}_of_one", arriving.dtype)
        count = plain_size(_elements(operand.shape))
        self._insert_before(DIVIDE_BY_NUMBER, (arriving.id,), divided, (Ref(0), count))
        draft = self.edit.draft(node.id)
        self.edit.replace_node(node.id, replace(draft, args=self._with_sum(loss)))
        self.edit.replace_uses(arriving.id, divided, [node.id], outputs=False)

    def _sum_and_divide(
        self, op: str, args: tuple[Arg, ...], divisor: int | SizeExpr, *, is_value: bool = False
    ) -> None:
        """The node makes a sum; after it a division, by a number or by a value, makes what it made before."""
        node, edit = self.node, self.edit
        total = self.graph.values[node.outputs[0]]
        mean = self._like(total, f"{total.name}_mean", total.dtype)
        edit.replace_uses(total.id, mean)
        edit.replace_node(node.id, replace(edit.draft(node.id), op=op, args=args))
        divide = NodeDraft(DIVIDE_BY_NUMBER, (total.id,), (mean,), (Ref(0), divisor), source=node.source)
        if is_value:
            assert isinstance(divisor, int)
            args = (Ref(0), Ref(1))
            divide = NodeDraft(DIVIDE, (total.id, divisor), (mean,), args, source=node.source)
        edit.insert_after(node.id, divide)

    def _weight_of_targets(self, loss: MeanLoss) -> int:
        """The weights of all targets that count, added up; a number, as the loss would give it."""
        node, old = self.node, self.graph.values[self.node.outputs[1]]
        call = Call(self.graph, node)
        target = call.value(loss.target if loss.target is not None else 0)
        weight = call.value(loss.weight)
        ignored = call.arg(loss.ignored, "ignore_index", -100)
        assert target is not None
        to_dtype = (("dtype", Named("dtype", old.dtype)),)
        total = self._like(old, old.name, old.dtype)
        if weight is None:
            counts = self._like(target, f"{target.name}_counts", "bool")
            self._insert_before(IS_NOT, (target.id,), counts, (Ref(0), ignored))
            self._insert_before(SUM_OF_ALL, (counts,), total, (Ref(0),), to_dtype)
            return total
        if len(target.shape) != 1:
            raise refused(node, f"has weights of classes and targets of {len(target.shape)} dims")
        passed = self._like(target, f"{target.name}_passed", "bool")
        chosen = self._like(target, f"{target.name}_chosen", target.dtype)
        picked = self._like(target, f"{weight.name}_picked", weight.dtype)
        counted = self._like(target, f"{weight.name}_counted", weight.dtype)
        self._insert_before(IS, (target.id,), passed, (Ref(0), ignored))
        self._insert_before(FILL_WHERE, (target.id, passed), chosen, (Ref(0), Ref(1), 0))
        self._insert_before(SELECT, (weight.id, chosen), picked, (Ref(0), 0, Ref(1)))
        self._insert_before(FILL_WHERE, (picked, passed), counted, (Ref(0), Ref(1), 0))
        self._insert_before(SUM_OF_ALL, (counted,), total, (Ref(0),), to_dtype)
        return total

    def _with_sum(self, loss: MeanLoss) -> tuple[Arg, ...]:
        """The arguments of the node, asking for a sum."""
        args = self.node.args
        if loss.reduction < len(args):
            return (*args[: loss.reduction], SUM, *args[loss.reduction + 1 :])
        # What may be left out in front of it are weights, and then there are none.
        return (*args, *[None] * (loss.reduction - len(args)), SUM)

    def _operand(self, position: int) -> Value:
        found = Call(self.graph, self.node).value(position)
        if found is None:
            raise RewriteError(f"{self.node.op} has no operand {position}")
        return found

    def _like(self, value: Value, name: str, dtype: str) -> int:
        """A value of the shape and strides of another, or dense where that has holes, on its device."""
        assert value.storage is not None
        strides = value.strides if is_dense(value) else None
        return self.edit.fresh(
            name, dtype, value.shape, device=self.graph.storages[value.storage].device, strides=strides
        )

    def _insert_before(
        self,
        op: str,
        inputs: Sequence[int],
        output: int,
        args: tuple[Arg, ...],
        kwargs: tuple[tuple[str, Arg], ...] = (),
    ) -> None:
        draft = NodeDraft(op, tuple(inputs), (output,), args, kwargs, source=self.node.source)
        self.edit.insert_before(self.node.id, draft)


def _elements(shape: Sequence[SizeExpr]) -> SizeExpr:
    """Number of elements of a shape."""
    return prod(shape, start=SizeExpr.const(1))


def takes_mean(node: Node) -> bool:
    """Whether an operation divides by a number of elements that parts of its operands would not have."""
    loss = MEAN_LOSSES.get(node.op) or MEAN_LOSS_GRADIENTS.get(node.op)
    return node.op in MEANS or (loss is not None and loss.is_mean(node))


def _take_sum(drafting: Drafting, node: Node, _: bool) -> None:
    replacing = _Replacing(drafting.edit, drafting.graph, node)
    if node.op in MEANS:
        replacing.mean()
    elif node.op in MEAN_LOSS_GRADIENTS:
        replacing.gradient(MEAN_LOSS_GRADIENTS[node.op])
    else:
        replacing.loss(MEAN_LOSSES[node.op])


MEAN_TO_SUM = node_rule(
    name="mean_to_sum",
    summary="means are sums that are scaled afterwards",
    pattern=lambda _graph, _registry: lambda node: True if takes_mean(node) else None,
    change=_take_sum,
    cannot=("be taken as a sum", "it takes no mean"),
    keeps_bits=False,
)


def mean_to_sum(nodes: Collection[int]) -> Rewrite:
    """The rewrite that takes the means of some nodes as sums."""
    return Rewrite(MEAN_TO_SUM.name, tuple(sorted(nodes)), (), keeps_bits=False)
