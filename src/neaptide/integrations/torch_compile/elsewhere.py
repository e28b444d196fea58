"""Bytes of a device beside those of a graph: of other graphs of the model, of the caller's code, and of libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from neaptide.cost.measured import MeasuredCost
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import BORDER_OP, Node
from neaptide.runtime.measuring.meter import storage_bytes

Boxed = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Bytes that are there beside those of a graph.

    Attributes:
        held: while it runs.
        between: at most between its passes, beside what it saves and hands over.
    """

    held: int = 0
    between: int = 0


NOTHING: Final = Elsewhere()


class CostWithBorder(MeasuredCost):
    """Measured costs, and what the border needs: what others take between both passes is its scratch."""

    between = 0

    def node_workspace(self, graph: Graph, node: Node, sizes: Any) -> int:
        """As for all cost models."""
        return self.between if node.op == BORDER_OP else super().node_workspace(graph, node, sizes)


class PassMeter:
    """What the caller's code takes of a card between the passes of a graph, once, from counters that nobody resets.

    Of the highest bytes on the way a counter tells no more than whether they were above all before.
    """

    def __init__(self, device: torch.device, tangents: int, tell: Callable[[Elsewhere], None]) -> None:
        self.device, self.tangents, self.tell = device, tangents, tell
        self._before: tuple[int, int] | None = None
        self._is_done = False

    def forward(self, call: Boxed) -> Boxed:
        """A forward pass, after which is looked."""

        def run(args: list[Any]) -> Any:
            found = call(args)
            if not self._is_done:
                self._before = self._counters()
            return found

        return _boxed(run)

    def backward(self, call: Boxed) -> Boxed:
        """A backward pass, before which is looked."""

        def run(args: list[Any]) -> Any:
            if not self._is_done and self._before is not None:
                self._is_done = True
                self._look([one for one in args[-self.tangents :] if isinstance(one, torch.Tensor)])
            return call(args)

        return _boxed(run)

    def _look(self, tangents: list[torch.Tensor]) -> None:
        assert self._before is not None
        (live, highest), (now, highest_now) = self._before, self._counters()
        handed = live + storage_bytes(tangents, self.device)
        most = max(now, highest_now) if highest_now > highest else now
        self.tell(Elsewhere(max(now - handed, 0), max(most - handed, 0)))

    def _counters(self) -> tuple[int, int]:
        return torch.cuda.memory_allocated(self.device), torch.cuda.max_memory_allocated(self.device)


def _boxed(run: Boxed) -> Boxed:
    run._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001 - by this name AOTAutograd knows it
    return run
