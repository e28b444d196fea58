"""How much more memory would hold buffers that do not fit."""

from __future__ import annotations

import threading
from dataclasses import replace

from neaptide.layout.pools.placing import place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import LayoutProblem
from neaptide.outcome import Limits


def missing_bytes(
    problem: LayoutProblem,
    spaces: tuple[MemorySpace, ...],
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
) -> int:
    """Bytes that the dearest space needs beyond its capacity for a layout that was found; 0 where it needs none.

    So many are enough; a longer search may find that fewer are. Every buffer may lie in every space.
    """
    last = max(range(len(spaces)), key=lambda number: spaces[number].cost_per_byte)
    capacity = spaces[last].capacity_bytes
    if capacity is None:
        return 0
    endless = tuple(
        replace(space, capacity_bytes=None) if number == last else space
        for number, space in enumerate(spaces)
    )
    found = place_in_spaces(PooledProblem(problem, endless), limits, interrupt).require()
    return max(found.space_bytes(last) - capacity, 0)
