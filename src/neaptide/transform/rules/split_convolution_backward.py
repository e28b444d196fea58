"""The gradient of the input of a convolution is computed by a call of its own.

Kernels compute each gradient by itself, so nothing is computed twice. In parts that overlap, rows of the gradient of the
input are made by two parts, and those of the weight and the bias may count each row once. Alone it wins little: it is for what follows.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ops.aten.dialect import CONVOLUTION_GRADIENTS, GRADIENTS_MASK
from neaptide.transform.drafting import Drafting
from neaptide.transform.node_rule import node_rule


def _make_apart(drafting: Drafting, node: Node, _: bool) -> None:
    edit = drafting.edit
    draft, (first, *others) = edit.draft(node.id), node.outputs
    alone = _only(draft.args, (True, False, False))
    edit.insert_before(node.id, replace(draft, outputs=(first,), args=alone, results=(Ref(0), None, None)))
    _, *wanted = _mask(node)
    slots = iter(range(len(others)))
    rest = tuple(Ref(next(slots)) if is_made else None for is_made in wanted)
    args = _only(draft.args, (False, *wanted))
    edit.replace_node(node.id, replace(draft, outputs=tuple(others), args=args, results=(None, *rest)))


def _is_joint(node: Node) -> bool:
    """Whether a node makes the gradient of a convolution's input, and another one."""
    if node.op != CONVOLUTION_GRADIENTS or node.kwargs:
        return False
    mask = _mask(node)
    return mask[:1] == (True,) and sum(mask) == len(node.outputs) > 1


def _mask(node: Node) -> tuple[bool, ...]:
    """Which gradients are made."""
    mask = node.args[GRADIENTS_MASK] if len(node.args) > GRADIENTS_MASK else ()
    return tuple(item is True for item in mask) if isinstance(mask, tuple) else ()


def _only(args: tuple[Arg, ...], mask: tuple[bool, ...]) -> tuple[Arg, ...]:
    """The arguments of a call that makes some of the gradients."""
    return (*args[:GRADIENTS_MASK], mask, *args[GRADIENTS_MASK + 1 :])


SPLIT_CONVOLUTION_BACKWARD = node_rule(
    name="split_convolution_backward",
    summary="gradients of a convolution are made one by one",
    pattern=lambda _graph, _registry: lambda node: True if _is_joint(node) else None,
    change=_make_apart,
    cannot=("be taken apart", "it makes no gradient of an input beside others"),
)
