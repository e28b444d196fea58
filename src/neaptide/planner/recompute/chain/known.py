"""Chains of blocks that have been found in a step, and what their blocks cost: the same whatever the budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from neaptide.planner.recompute.chain.blocks import BlockChain
from neaptide.planner.recompute.chain.program import ChainCosts


@dataclass(slots=True)
class KnownChains:
    """What searches of one step need not work out again.

    Attributes:
        chains: by order of first executions and the most blocks asked for.
        costs: by identity of a chain, the chain (so that no other takes its identity) and the options of its blocks.
    """

    chains: dict[tuple[tuple[int, ...], int], BlockChain] = field(default_factory=dict)
    costs: dict[int, tuple[BlockChain, ChainCosts]] = field(default_factory=dict)
