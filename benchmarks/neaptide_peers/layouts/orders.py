"""Orders in which rules of the grid place buffers: by size, lifetime, area, overlaps, contention, time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from neaptide.layout.bounds import bytes_live_at
from neaptide.layout.problem import Ints, LayoutProblem


@dataclass(frozen=True, slots=True)
class BufferKeys:
    """What rules sort buffers by; all arrays are by buffer. A gap counts as in use, except in bytes live at a step.

    Attributes:
        sizes: bytes.
        lives: steps.
        areas: sizes times lives, as ranks: products may exceed 64 bits.
        section_areas: the same with sections for steps.
        overlap_sizes: the same with overlaps for steps.
        sections: maximal sets of buffers live together that it belongs to.
        overlaps: other buffers that are live together with it.
        contention: most bytes live at a step of its lifetime.
        busiest: rank of that step: 0 for the one with the most bytes live of all, the earlier of equals.
        starts: first steps.
        ends: one past the last steps.
        alignments: of offsets.
    """

    sizes: Ints
    lives: Ints
    areas: Ints
    section_areas: Ints
    overlap_sizes: Ints
    sections: Ints
    overlaps: Ints
    contention: Ints
    busiest: Ints
    starts: Ints
    ends: Ints
    alignments: Ints

    @staticmethod
    def of(problem: LayoutProblem) -> BufferKeys:
        """The keys of a problem. O(n log n)."""
        starts, ends, sizes = problem.starts, problem.ends, problem.sizes
        before = np.searchsorted(np.sort(ends), starts, side="right")
        after = np.searchsorted(np.sort(starts), ends, side="left")
        overlaps = after - before - 1
        sections = _sections(starts, ends)
        contention, busiest = _contention(problem)
        return BufferKeys(
            sizes=sizes,
            lives=ends - starts,
            areas=_ranked_products(sizes, ends - starts),
            section_areas=_ranked_products(sizes, sections),
            overlap_sizes=_ranked_products(sizes, overlaps),
            sections=sections,
            overlaps=overlaps,
            contention=contention,
            busiest=busiest,
            starts=starts,
            ends=ends,
            alignments=problem.alignments,
        )


Columns: TypeAlias = Callable[[BufferKeys], tuple[Ints, ...]]
"""Sort keys, ascending, the first decides."""

ORDERS: Final[Mapping[str, Columns]] = MappingProxyType(
    {
        "size": lambda k: (-k.sizes, -k.lives),
        "life": lambda k: (-k.lives, -k.sizes),
        "start": lambda k: (k.starts, -k.sizes),
        "breadth": lambda k: (k.busiest, -k.sizes),
        "area": lambda k: (-k.areas,),
        "section_area": lambda k: (-k.section_areas,),
        "overlaps": lambda k: (-k.overlaps, -k.sizes),
        "overlap_size": lambda k: (-k.overlap_sizes,),
        "contention": lambda k: (-k.contention, -k.sections, -k.areas),
        "contention_area": lambda k: (-k.contention, -k.areas, -k.sections),
        "sections": lambda k: (-k.sections, -k.areas, -k.contention),
        "end": lambda k: (-k.ends, -k.sizes),
    }
)
"""Orders by name. Breadth (Pisarchyk and Lee, arXiv 2001.03288) is of the busiest step that a buffer lives at, as a
buffer problem has no ops: bytes live there stand for the operands of an op. The three with contention or sections
first are the static ranks TWA, TAW and WAT of MiniMalloc (ASPLOS 2023).
"""


def _sections(starts: Ints, ends: Ints) -> Ints:
    """Maximal sets of live buffers by buffer: there is one where the event after a start is an end. O(n log n)."""
    points = np.unique(np.concatenate([starts, ends]))
    first, last = np.searchsorted(points, starts), np.searchsorted(points, ends)
    begins = np.zeros(len(points) + 1, dtype=np.bool_)
    begins[first + 1] = True
    stops = np.zeros(len(points) + 1, dtype=np.bool_)
    stops[last] = True
    so_far = np.cumsum(begins & stops)
    return so_far[last] - so_far[first]


def _contention(problem: LayoutProblem) -> tuple[Ints, Ints]:
    """Bytes at the busiest step of each lifetime, and the rank of that step. O(n log n)."""
    points, live = bytes_live_at(problem)
    by_bytes = np.lexsort((points, -live))
    rank = np.empty(len(points), dtype=np.int64)
    rank[by_bytes] = np.arange(len(points))
    first, last = np.searchsorted(points, problem.starts), np.searchsorted(points, problem.ends)
    busiest = _range_minimum(rank, first, last)
    return live[by_bytes][busiest], busiest


def _range_minimum(values: Ints, first: Ints, last: Ints) -> Ints:
    """Minimum of `values[first:last]` for each pair, none of them empty. O((values + pairs) log values)."""
    level = np.frexp(last - first)[1] - 1  # floor of log2
    result = np.empty(len(first), dtype=np.int64)
    table = values
    for power in range(int(level.max(initial=-1)) + 1):
        due = level == power
        width = 1 << power
        result[due] = np.minimum(table[first[due]], table[last[due] - width])
        table = np.minimum(table[:-width], table[width:])
    return result


def _ranked_products(left: Ints, right: Ints) -> Ints:
    products = [a * b for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    rank = {product: at for at, product in enumerate(sorted(set(products)))}
    return np.array([rank[product] for product in products], dtype=np.int64)
