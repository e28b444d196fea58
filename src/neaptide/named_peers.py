"""Peers by name, and the one place that loads them.

The package `neaptide_peers` holds what neaptide measures itself against. It decides no default answer, so no other room imports
it: whoever is asked for a peer by name gets it here, and only then is its module imported.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Final

from neaptide.errors import MissingExtra

_GROUP: Final = "neaptide.peers"

EVICTION: Final = (
    "dtr",
    "dtr_classes",
    "dtr_local",
    "evict_cheapest",
    "evict_largest",
    "evict_oldest",
)
"""Heuristics of eviction, simulated by one strategy."""

WITH_OFFLOADS: Final = ("pofo",)
"""Ways to choose what is recomputed and what waits on the host; their modules have `choose_offload` as well."""

STRATEGIES: Final = (
    "sqrt_n",
    "drop_cheap",
    "per_block",
    "revolve",
    "rotor",
    "checkmate",
    "moccasin",
    "min_cut",
    "min_cut_ratios",
    *WITH_OFFLOADS,
    *EVICTION,
)
"""Ways to choose what is recomputed."""

TRANSFORM_ONLY: Final = "transform_only"
COMBINATIONS: Final = (TRANSFORM_ONLY, "transform_then_plan", "plan_then_transform")
"""Ways to look for parts and for a schedule one after the other."""

MAGIS: Final = "magis"
"""The search of MAGIS for parts, recomputations and offloads at once, over captured programs: `strategy` of the room of that name."""

LISTS: Final = ("reverse_post_order", "xla_list", "xla_dfs", "xla_post_order", "forward_list")
"""Orders made at once, of `orders.lists`."""

STRUCTURES: Final = ("tree", "series_parallel", "pumpkin", "dominant")
"""Orders of problems that have one structure as a whole, of `orders.structures`."""

CP_WINDOWS: Final = "cp_windows"
"""The way to order operations that needs OR-tools."""
ORDERS: Final = ("serenity_dp", "hierarchical", CP_WINDOWS)
"""Ways to order operations."""

PASSES: Final = ("random_pick", "greedy", "beam", "transfer_graph", "exhaustive")
"""Ways to choose passes and their order; `transfer_graph` is that of OPASS."""

LAYOUTS: Final = ("canonical", "cp_sat")
"""Ways to lay buffers out."""

RULES: Final = (
    "first_fit",
    "ort",
    "tflite",
    "tflm",
    "xla",
    "tvm_size",
    "tvm_conflicts",
    "executorch",
    "inductor",
    "breadth",
    "tags",
    "hill_climb",
)
"""Placement rules of other planners, of `layouts.rules`."""

RECORDED: Final = "search"
"""The same search over recorded steps, in the same room."""

_ORDERS_OF_BUFFERS: Final = (
    "size",
    "life",
    "start",
    "breadth",
    "area",
    "section_area",
    "overlaps",
    "overlap_size",
    "contention",
    "contention_area",
    "sections",
    "end",
)
_OWN_RULE: Final = "size_first"
GRID: Final = tuple(
    name for order in _ORDERS_OF_BUFFERS for name in (f"{order}_first", f"{order}_best") if name != _OWN_RULE
)
"""Placement rules of `layouts.rules` by order and fit, but for the one of the default."""


def peer(room: str, name: str) -> ModuleType:
    """The module of a peer.

    It has `strategy` where the room is `passes`, `solve` where the room is `strategies` (and `choose_offload` for those in `WITH_OFFLOADS`), `combinations` or `magis`;
    `find_order` where it is `orders`; `find_layout` where it is `layouts`.
    """
    packages = _packages()
    if not packages:
        raise MissingExtra(
            f"{name} is not installed",
            why="methods of others come with the source of neaptide, not with the package",
            next_step="run `pip install ./benchmarks` in a checkout of it",
        )
    return importlib.import_module(f"{packages[0]}.{room}.{name}")


@cache
def _packages() -> tuple[str, ...]:
    """Packages that say that they hold peers."""
    return tuple(point.value for point in entry_points(group=_GROUP))
