"""Groups of nodes that become one operation each, and how a rewrite names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from neaptide.errors import RewriteError
from neaptide.transform.rewrite import Rewrite

NAME: Final = "fusion"
_SIZES: Final = "sizes"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that run as one kernel.

    Attributes:
        nodes: ascending; they are gone afterwards.
        place: the one of them in whose place the kernel runs.
        copies: nodes that the kernel computes for itself, ascending; they may run elsewhere as well.
    """

    nodes: tuple[int, ...]
    place: int
    copies: tuple[int, ...] = ()


def rewrite_of(groups: Iterable[Group]) -> Rewrite:
    """The rewrite that fuses some groups: of each its place, its other nodes, and its copies."""
    nodes: list[int] = []
    sizes: list[int] = []
    for group in groups:
        others = tuple(node for node in group.nodes if node != group.place)
        nodes += (group.place, *others, *group.copies)
        sizes += (len(group.nodes), len(group.copies))
    return Rewrite(NAME, tuple(nodes), ((_SIZES, tuple(sizes)),), keeps_bits=False)


def groups_of(rewrite: Rewrite) -> tuple[Group, ...]:
    """The groups that a rewrite names.

    Raises:
        RewriteError: its sizes do not fit its nodes.
    """
    return tuple(_groups(rewrite))


def _groups(rewrite: Rewrite) -> Iterator[Group]:
    settings = dict(rewrite.settings)
    sizes = settings.get(_SIZES)
    if len(settings) != 1 or not isinstance(sizes, tuple) or len(sizes) % 2 or not sizes:
        raise RewriteError("its settings must be the sizes of its groups: of each its nodes and its copies")
    if min(sizes) < 0 or sum(sizes) != len(rewrite.nodes):
        raise RewriteError(f"its groups have {sum(sizes)} nodes, but it names {len(rewrite.nodes)}")
    start = 0
    for own, copied in zip(sizes[::2], sizes[1::2], strict=True):
        nodes = rewrite.nodes[start : start + own]
        copies = rewrite.nodes[start + own : start + own + copied]
        start += own + copied
        if not nodes or list(copies) != sorted(set(copies)) or len(set(nodes)) < len(nodes):
            raise RewriteError("a group must have nodes, each once, and its copies must ascend")
        yield Group(tuple(sorted(nodes)), nodes[0], copies)
