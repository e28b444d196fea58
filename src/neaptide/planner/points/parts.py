"""How long the parts of a program's loops are at a shape: one part where that fits, else few that go well with evictions.

The loops of a program may run in any number of parts, which is chosen for each shape. More parts hold fewer bytes and
take longer. So does recomputation around the loops. Which of both is taken, and how much of it, is decided by scripts: what
they take is known exactly for each number of parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import chosen_dims, own_length
from neaptide.symbolic.size_expr import SizeExpr

_LADDER: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_LOWER: Final = 0.99  # more parts are looked at while the peak without evictions gets lower by a hundredth

Lengths = Mapping[str, int]
"""By dim, elements of a part."""


@dataclass(frozen=True, slots=True)
class PartLength:
    """A dim that says how long a part is."""

    dim: str  # its name
    length: SizeExpr  # of the axis that is in parts

    def in_parts(self, count: int, binding: Mapping[str, int]) -> int:
        """Elements of a part where there are at most `count`; the last part may be shorter."""
        length = self.length.evaluate(binding)
        return -(-length // min(count, length))


def part_lengths(graph: Graph) -> tuple[PartLength, ...]:
    """The dims of a graph that calls choose. O(nodes)."""
    wanted, found = chosen_dims(graph), dict[str, PartLength]()
    for node in graph.nodes:
        for loop in node.regions:
            for part in loop.slices:
                whole = own_length(part, graph.values[node.inputs[part.input]])
                for dim in part.step.dims().intersection(wanted):
                    found.setdefault(dim, PartLength(dim, whole // part.step.substitute({dim: 1})))
    return tuple(found[dim] for dim in wanted)


def numbers_of_parts(parts: Sequence[PartLength], binding: Mapping[str, int]) -> list[Lengths]:
    """Lengths of parts that are tried at a shape, those in fewest parts first; one part is the first."""
    found: list[Lengths] = []
    for count in _LADDER:
        lengths = {part.dim: part.in_parts(count, binding) for part in parts}
        if not found or lengths != found[-1]:
            found.append(lengths)
    return found


def tried(peaks: Iterable[int], budget_bytes: int) -> list[int]:
    """Which of some numbers of parts are compared by scripts: one part, the last that is worth it, and one between them.

    The last is the first with which everything fits. Where nothing does, it is the first beyond which the peak does not get
    lower any more. `peaks` are bytes without evictions, those of the fewest parts first; no more are asked for than needed.
    """
    last, lowest = 0, math.inf
    for number, nbytes in enumerate(peaks):
        if nbytes < _LOWER * lowest:
            last, lowest = number, nbytes
        if nbytes <= budget_bytes:
            last = number
            break
    return sorted({0, (last + 1) // 2, last})
