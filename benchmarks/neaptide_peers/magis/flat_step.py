"""What a search sees of a step: tensors, which nodes make and need them, and what the nodes take in parts.

A *tensor* is what has bytes of its own: in a recorded step each value, in a captured program each storage. A view makes no
tensor. It needs the one that it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from neaptide.ir.axes import Along
from neaptide_peers.magis.offloads import Copying


class Counting(Protocol):
    """By which conventions parts are counted."""

    @property
    def holds_pieces(self) -> bool:
        """Whether a part holds its pieces of the results until it ends; else a piece is gone when it is merged."""
        ...

    def is_copied(self, value: int, along: Along) -> bool:
        """Whether a part of a value that is handed to a region takes bytes of its own.

        Args:
            value: of the graph.
            along: where the axis lies in it.
        """
        ...

    def part_seconds(self, node: int, parts: int, divided: Mapping[int, int]) -> float:
        """Seconds of a node for one of so many parts.

        Args:
            node: which one; it runs along the axes of all regions that it is in.
            parts: of all these regions together.
            divided: by tensor, into how many parts it is cut; whole tensors are not in it.
        """
        ...

    def merge_seconds(self, parts: int, sums: Sequence[int], joined: Sequence[int]) -> float:
        """Seconds to merge the results of all parts of a region.

        Args:
            parts: of the region.
            sums: bytes of the results that are sums.
            joined: bytes of those that are put together from their parts.
        """
        ...


@dataclass(frozen=True, slots=True)
class View:
    """A node that hands a tensor on.

    Attributes:
        node: which one.
        users: nodes that need what it makes.
        is_output: the step returns what it makes.
    """

    node: int
    users: tuple[int, ...]
    is_output: bool


@dataclass(frozen=True, slots=True)
class FlatStep:
    """A step.

    Attributes:
        inputs: tensors that are there at first, and go after their last use.
        kept: tensors that stay to the end.
        persistent_bytes: that are there all the time, beside the tensors.
        nbytes: by tensor.
        tensor_of: by value of the graph; -1 for one without bytes.
        operands: by node, tensors that it needs and does not make.
        made: by node, the tensors that it makes.
        maker: by tensor, its node; -1 for inputs.
        users: by tensor, nodes that need it, ascending.
        before: by node, nodes that must run first.
        workspace: by node, bytes that it needs while it runs.
        again_until: by node, the first node that it may not run again before: what it reads is overwritten by then. 0 where
            it may never run again.
        views: by node, the views of what it makes, ascending.
        counting: by which conventions parts are counted.
        copying: what may wait on the host; None where nothing may.
    """

    inputs: tuple[int, ...]
    kept: frozenset[int]
    persistent_bytes: int
    nbytes: tuple[int, ...]
    tensor_of: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]
    made: tuple[tuple[int, ...], ...]
    maker: tuple[int, ...]
    users: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    workspace: tuple[int, ...]
    again_until: tuple[int, ...]
    views: tuple[tuple[View, ...], ...]
    counting: Counting
    copying: Copying | None
