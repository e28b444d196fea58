"""Which views run again after a recomputation: those through which somebody later needs what it makes.

A name means what its node made last. What a view showed before the recomputation stays the old tensor, so a later user of the
view would keep that alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neaptide_peers.magis.flat_step import View


def views_again(
    views: Sequence[View], is_before: Callable[[int], bool], is_later: Callable[[int], bool]
) -> list[int]:
    """The nodes of the views that run again, ascending. O(views and their users).

    Args:
        views: of what runs again, ascending.
        is_before: whether a node has run when the recomputation runs.
        is_later: whether a node runs after that, for the first time or again.
    """
    wanted: list[int] = []
    for view in reversed(views):
        if is_before(view.node) and (
            view.is_output or any(is_later(user) or user in wanted for user in view.users)
        ):
            wanted.append(view.node)
    return sorted(wanted)
