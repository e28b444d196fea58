"""Operations that keep the axis of a join run on its pieces, before it."""

from __future__ import annotations

from typing import Final

from neaptide.ir.nodes import Node
from neaptide.ir.registry import Trait
from neaptide.transform.drafting import Drafting
from neaptide.transform.joins import Joins, Readers, run_on_pieces
from neaptide.transform.node_rule import node_rule
from neaptide.transform.rewrite import Rule


def _move(drafting: Drafting, node: Node, readers: Readers) -> None:
    """Run what reads a join on its pieces; the join goes."""
    run_on_pieces(drafting, node.outputs[0], readers.pieces, readers.chains)
    drafting.edit.remove(node.id)


_SIZE_KEPT: Final = frozenset({Trait.ELEMENTWISE, Trait.NORMALISATION})


def _rule(name: str, summary: str, traits: frozenset[Trait]) -> Rule:
    return node_rule(
        name,
        summary,
        lambda graph, registry: Joins(graph, registry, traits, _SIZE_KEPT).of,
        _move,
        ("be moved", "it is no join that they read"),
        apart=True,
    )


ELEMENTWISE_BEFORE_CONCAT: Final = _rule(
    "elementwise_before_concat",
    "element-wise operations run on the tensors that a concat joins",
    _SIZE_KEPT,
)
POOL_BEFORE_CONCAT: Final = _rule(
    "pool_before_concat",
    "pools and means run on the tensors that a concat joins",
    frozenset({Trait.POOLING, Trait.REDUCTION}),
)
