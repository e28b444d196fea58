"""The judge of layouts over several memory spaces; shares no code with what makes them."""

from __future__ import annotations

from dataclasses import replace

from neaptide.errors import VerifyError
from neaptide.layout.pools.spaces import PooledLayout, PooledProblem
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout


def check_pooled_layout(pooled: PooledProblem, layout: PooledLayout) -> None:
    """Make sure that every buffer lies in an allowed space, clashes with none, and that sizes and cost are as said.

    Raises:
        VerifyError: names what is wrong.
    """
    buffers = pooled.problem.buffers
    if len(layout.places) != len(buffers) or len(layout.arena_bytes) != len(pooled.spaces):
        raise VerifyError("the layout is not one of this problem")
    cost = 0
    arenas: dict[tuple[int, int], list[int]] = {}
    for index, (buffer, place) in enumerate(zip(buffers, layout.places, strict=True)):
        if not 0 <= place.space < len(pooled.spaces):
            raise VerifyError(f"buffer {buffer.name!r} lies in the space {place.space}, which is not there")
        space = pooled.spaces[place.space]
        names = pooled.allowed.get(buffer.name)
        if names is not None and space.name not in names:
            raise VerifyError(f"buffer {buffer.name!r} lies in {space.name!r}, where it is not allowed")
        if buffer.offset is not None and place.arena != 0:
            raise VerifyError(f"the fixed buffer {buffer.name!r} lies in the arena {place.arena}")
        cost += pooled.accesses.get(buffer.name, 1) * buffer.nbytes * space.cost_per_byte
        arenas.setdefault((place.space, place.arena), []).append(index)
    if cost != layout.cost:
        raise VerifyError(f"the layout is said to cost {layout.cost}, it costs {cost}")
    for number, (space, sizes) in enumerate(zip(pooled.spaces, layout.arena_bytes, strict=True)):
        if {arena for at, arena in arenas if at == number} != set(range(len(sizes))):
            raise VerifyError(
                f"the space {space.name!r} has {len(sizes)} arenas, not those that buffers lie in"
            )
        if space.capacity_bytes is not None and sum(sizes) > space.capacity_bytes:
            raise VerifyError(
                f"the arenas in {space.name!r} have {sum(sizes)} bytes, more than {space.capacity_bytes}"
            )
        for arena, size in enumerate(sizes):
            members = arenas[number, arena]
            part = LayoutProblem(
                tuple(
                    replace(buffers[index], alignment=max(buffers[index].alignment, space.alignment))
                    for index in members
                )
            )
            offsets = tuple(layout.places[index].offset for index in members)
            limit = size if space.max_arena_bytes is None else min(size, space.max_arena_bytes)
            check_layout(part, Layout(offsets, size), capacity_bytes=limit)
