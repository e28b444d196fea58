"""The outer search: variants of a graph, each planned by the inner search."""

from typing import Final

from neaptide.ask import CLOSE, DEFAULT_STRATEGY
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.named_peers import COMBINATIONS, MAGIS, TRANSFORM_ONLY

MICRO_BATCH: Final = "micro_batch"
"""Whole-step micro-batching, each part planned by itself: the strategy that a search over variants has to beat."""


OF_VARIANTS: Final = (MICRO_BATCH, *COMBINATIONS, MAGIS)
"""Strategies that look for parts."""


def inner_strategy(name: str) -> str:
    """The strategy that plans each variant, where one of some name is asked for."""
    return DEFAULT_STRATEGY if name in OF_VARIANTS else name


def check_variants(strategy_name: str, numerics: str) -> None:
    """Refuse a strategy that looks for parts where the bits are kept."""
    if strategy_name in OF_VARIANTS and numerics != CLOSE:
        raise UsageError(
            f"the strategy {strategy_name!r} takes sums in another order", next_step='say numerics="close"'
        )


def check_host(strategy_name: str, budget: Budget) -> None:
    """Refuse room on the host that a search over variants would not use."""
    if strategy_name == TRANSFORM_ONLY and budget.host_bytes:
        raise UsageError(
            f"the strategy {strategy_name!r} moves nothing to the host",
            why="it looks for parts alone",
            next_step="leave the room on the host out, or choose 'transform_then_plan'",
        )
    if strategy_name == MAGIS and budget.state_between_steps:
        raise UsageError(
            f"the strategy {strategy_name!r} moves no state between two steps",
            why="what the step is called with stays on the device",
            next_step="leave state_between_steps out, or leave the strategy out",
        )
