"""What a card's allocator and libraries take beside what a joint graph asks for, as for planned steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from neaptide.analysis.sizes import usual_device
from neaptide.cost.cards.cublas import library_blocks
from neaptide.ir.graph import Graph
from neaptide.ir.registry import Trait
from neaptide.ir.schedule import Schedule
from neaptide.planner.pricing import Pricing
from neaptide.policy.card_bytes import allocator_peaks


@dataclass(frozen=True)
class Card:
    """A graph, with what its card takes beside it; of a graph elsewhere, that is nothing.

    Attributes:
        blocks: that libraries keep, in bytes.
        bytes_beside: those, and what the blocks of program order are larger than was asked for.
    """

    graph: Graph
    pricing: Pricing
    is_card: bool
    blocks: tuple[int, ...] = ()
    bytes_beside: int = 0

    @staticmethod
    def of(graph: Graph, pricing: Pricing) -> Card:
        """What is known of a graph before it is planned."""
        where = torch.device(usual_device(graph))
        if where.type != "cuda":
            return Card(graph, pricing, is_card=False)
        rows = (pricing.registry.find(node.op) for node in graph.nodes)
        multiplies = any(row is not None and row.is_a(Trait.CONTRACTION) for row in rows)
        blocks = library_blocks(torch.cuda.get_device_capability(where)[0]) if multiplies else ()
        assumed = pricing.prices(graph).assumed
        written = allocator_peaks(graph, Schedule.program_order(graph), assumed, blocks)
        beside = sum(blocks) + written.allocated - written.requested
        return Card(graph, pricing, True, blocks, max(beside, 0))

    def blocks_over(self, schedule: Schedule, allowed: int) -> int:
        """Bytes by which the blocks of a plan of the graph are above what it and the libraries may take; 0 off cards."""
        if not self.is_card:
            return 0
        assumed = self.pricing.prices(self.graph).assumed
        taken = allocator_peaks(self.graph, schedule, assumed, self.blocks).allocated
        return max(0, taken - allowed - self.bytes_beside)
