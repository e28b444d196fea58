"""Fusion: operations that a kernel computes in one go, without a byte for what is only inside.

Eager runs each operation as a kernel of its own, with a result in memory. Element by element, or row by row, a compiler
(Inductor: Ansel et al., "PyTorch 2", ASPLOS 2024) computes a chain of them in one pass. A plan of the unfused graph keeps
and recomputes values that then do not exist, so the graph is fused before it is planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.fusion.contract import contract
from neaptide.transform.fusion.find import find_groups
from neaptide.transform.fusion.group import NAME, groups_of, rewrite_of
from neaptide.transform.rewrite import STATIC, Rewrite, Rule, Sizes


def _found(graph: Graph, registry: OpRegistry) -> Iterator[Rewrite]:
    if groups := find_groups(graph, registry):
        yield rewrite_of(groups)


def _applied(graph: Graph, registry: OpRegistry, rewrite: Rewrite, _: Sizes = STATIC) -> Edited:
    return contract(graph, registry, groups_of(rewrite))


FUSION: Final = Rule(
    name=NAME,
    summary="operations run as one kernel",
    find=_found,
    apply=_applied,
    keeps_bits=False,
)
"""Puts a fused operation in the place of each group. A rewrite names all groups of a graph, or some of them."""
