"""Rules whose rewrites are asked for, and never proposed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.rewrite import Refusal, Rewrite


class AskedFor:
    """A rule that proposes no rewrites: where they are worth it is a question of prices, which rules do not know."""

    __slots__ = ()

    def find(
        self, graph: Graph, registry: OpRegistry, near: Collection[int] | None = None
    ) -> Iterator[Rewrite | Refusal]:
        """Nothing."""
        del graph, registry, near
        return iter(())
