"""The gradients of a convolution are made one by one: that of the input by a call of its own.

Kernels compute each gradient by itself, so nothing is computed twice. In parts that overlap, rows of the gradient of the
input are made by two parts, and those of the weight and the bias may count each row once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from neaptide.errors import RewriteError
from neaptide.ir.edit import Edited, GraphEdit
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ops.rewritten import CONVOLUTION_GRADIENTS, GRADIENTS_MASK
from neaptide.transform.rewrite import Refusal, Rewrite
from neaptide.transform.rules.node_places import found_places, named_nodes


@dataclass(frozen=True, slots=True)
class GradientsApart:
    """Has the gradient of a convolution's input made by a call of its own.

    The nodes of a rewrite are the convolutions' gradients; no settings. Alone it wins little: it is for what follows.
    """

    name: str = "gradients_apart"
    keeps_bits: bool = True
    each_node: bool = True
    are_alternatives: bool = False
    summary: str = "gradients of a convolution are made one by one"

    def find(
        self, graph: Graph, registry: OpRegistry, near: Collection[int] | None = None
    ) -> Iterator[Rewrite | Refusal]:
        """As `Rule.find`: one rewrite for all gradients that are made together with that of an input. O(nodes)."""
        del registry
        return found_places(self, graph, near, lambda node: True if _is_joint(node) else None)

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        del registry
        edit = GraphEdit(graph)
        for number in named_nodes(rewrite):
            node = graph.nodes[number]
            if not _is_joint(node):
                raise RewriteError(
                    f"{node.op} makes no gradient of an input beside others",
                    where=node.source.location or None,
                )
            draft, (first, *others) = edit.draft(number), node.outputs
            mask = (True, False, False)
            alone = _only(draft.args, mask), (Ref(0), None, None)
            edit.insert_before(number, replace(draft, outputs=(first,), args=alone[0], results=alone[1]))
            _, *wanted = _mask(node)
            slots = iter(range(len(others)))
            rest = tuple(Ref(next(slots)) if is_made else None for is_made in wanted)
            left = replace(
                draft,
                outputs=tuple(others),
                args=_only(draft.args, (False, *wanted)),
                results=(None, *rest),
            )
            edit.replace_node(number, left)
        return edit.finish()


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
